/** Tabs of the page with models. */
import AboutTab from "../about/AboutTab.svelte";
import BeamTab from "../beam/BeamTab.svelte";
import CompareTab from "../compare/CompareTab.svelte";
import ExamplesTab from "../examples/ExamplesTab.svelte";
import type { Tab } from "../tabs";
import WhatIfTab from "../what-if/WhatIfTab.svelte";

export const MODEL_TABS: readonly Tab[] = [
  { name: "examples", title: "Output", component: ExamplesTab, shown: () => true },
  { name: "beam", title: "Beam", component: BeamTab, shown: () => true },
  { name: "what-if", title: "What if", component: WhatIfTab, shown: () => true },
  { name: "compare", title: "Compare", component: CompareTab, shown: (contents) => contents.compared_runs.length > 0 },
  { name: "about", title: "About", component: AboutTab, shown: () => true },
];
