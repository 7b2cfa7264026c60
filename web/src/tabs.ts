/** All tabs in order. */
import type { Component } from "svelte";
import type { PageContents } from "./data/contents";
import { pageView } from "./data/taskView";
import AboutTab from "./about/AboutTab.svelte";
import BeamTab from "./beam/BeamTab.svelte";
import CompareTab from "./compare/CompareTab.svelte";
import CorpusTab from "./corpus/CorpusTab.svelte";
import ExamplesTab from "./examples/ExamplesTab.svelte";
import StatesTab from "./states/StatesTab.svelte";
import TrainingTab from "./training/TrainingTab.svelte";
import WhatIfTab from "./what-if/WhatIfTab.svelte";

export interface Tab {
  /** Name in the address. */
  readonly name: string;
  readonly title: string;
  readonly component: Component;
  /** Whether there is content. */
  readonly shown: (contents: PageContents) => boolean;
}

const hasExamples = (contents: PageContents): boolean => contents.examples.length > 0 || contents.served;
// A single trace in a notebook has no run.
const hasRun = (contents: PageContents): boolean => contents.served || (contents.card !== null && contents.examples.length > 0);
/** Only autoregressive models have a beam and decoder states. */
const isAutoregressive = (contents: PageContents): boolean => pageView(contents).autoregressive;
const hasBeam = (contents: PageContents): boolean => isAutoregressive(contents) && (hasRun(contents) || contents.examples.some((example) => example.traces.some((trace) => trace.search_tree)));

const hasStates = (contents: PageContents): boolean =>
  isAutoregressive(contents) && (contents.state_space !== null || contents.served || contents.examples.some((example) => example.traces.some((trace) => trace.states)));

export const TABS: readonly Tab[] = [
  { name: "examples", title: "Examples", component: ExamplesTab, shown: hasExamples },
  { name: "beam", title: "Beam", component: BeamTab, shown: hasBeam },
  { name: "what-if", title: "What if", component: WhatIfTab, shown: hasRun },
  { name: "corpus", title: "Corpus", component: CorpusTab, shown: (contents) => contents.corpus !== null },
  { name: "compare", title: "Compare", component: CompareTab, shown: (contents) => contents.compared_runs.length > 0 },
  { name: "states", title: "States", component: StatesTab, shown: hasStates },
  { name: "training", title: "Training", component: TrainingTab, shown: (contents) => contents.training !== null },
  { name: "about", title: "About", component: AboutTab, shown: (contents) => contents.card !== null },
];
