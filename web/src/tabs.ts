/** The tabs, in their order: the only place that knows all of them. */
import type { Component } from "svelte";
import type { Contents } from "./contents";
import Beam from "./Beam.svelte";
import Output from "./Output.svelte";

export interface Tab {
  /** In the address. */
  readonly name: string;
  readonly title: string;
  readonly component: Component;
  /** Whether there is anything to show. */
  readonly shown: (contents: Contents) => boolean;
}

const some = (contents: Contents): boolean => contents.items.length > 0 || contents.served;
const beams = (contents: Contents): boolean =>
  contents.served || contents.items.some((item) => item.traces.some((trace) => trace.beam));

export const TABS: readonly Tab[] = [
  { name: "examples", title: "Examples", component: Output, shown: some },
  { name: "beam", title: "Beam", component: Beam, shown: beams },
];
