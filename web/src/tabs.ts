/** The tabs, in their order: the only place that knows all of them. */
import type { Component } from "svelte";
import type { Contents } from "./data/contents";
import { pageView } from "./data/task";
import About from "./about/About.svelte";
import Beam from "./beam/Beam.svelte";
import Compare from "./compare/Compare.svelte";
import Corpus from "./corpus/Corpus.svelte";
import Examples from "./examples/Examples.svelte";
import Space from "./space/Space.svelte";
import Training from "./training/Training.svelte";
import WhatIf from "./what-if/WhatIf.svelte";

export interface Tab {
  /** In the address. */
  readonly name: string;
  readonly title: string;
  readonly component: Component;
  /** Whether there is anything to show. */
  readonly shown: (contents: Contents) => boolean;
}

const some = (contents: Contents): boolean => contents.items.length > 0 || contents.served;
// One trace in a notebook has no run behind it, and no need to be told what a run could show.
const run = (contents: Contents): boolean => contents.served || (contents.card !== null && contents.items.length > 0);
/** What is not written symbol by symbol has neither a beam nor states of steps. */
const written = (contents: Contents): boolean => pageView(contents).autoregressive;
const beams = (contents: Contents): boolean => written(contents) && (run(contents) || contents.items.some((item) => item.traces.some((trace) => trace.lattice)));

const spaced = (contents: Contents): boolean =>
  written(contents) && (contents.space !== null || contents.served || contents.items.some((item) => item.traces.some((trace) => trace.states)));

export const TABS: readonly Tab[] = [
  { name: "examples", title: "Examples", component: Examples, shown: some },
  { name: "beam", title: "Beam", component: Beam, shown: beams },
  { name: "what-if", title: "What if", component: WhatIf, shown: run },
  { name: "corpus", title: "Corpus", component: Corpus, shown: (contents) => contents.corpus !== null },
  { name: "compare", title: "Compare", component: Compare, shown: (contents) => contents.rivals.length > 0 },
  { name: "space", title: "Space", component: Space, shown: spaced },
  { name: "training", title: "Training", component: Training, shown: (contents) => contents.training !== null },
  { name: "about", title: "About", component: About, shown: (contents) => contents.card !== null },
];
