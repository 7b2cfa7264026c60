/** Weights of an attribution layer: attention, occlusion or gradient. */
import { toGrid, type Grid } from "../data/arrays";
import type { Trace } from "../data/contents";
import type { Colormap } from "../drawing/scales";
import { quoteText } from "../drawing/symbols";
import type { AttributionLayer } from "./selection.svelte";

export interface LayerWeights {
  /** Name of the layer, as the first word of a title. */
  readonly title: string;
  readonly weights: Grid;
  readonly colormap: Colormap;
  readonly quantity: string;
}

const TITLES: Record<AttributionLayer, string> = { attention: "Attention", occlusion: "Occlusion", gradient: "Gradient" };
const QUANTITIES: Record<AttributionLayer, string> = {
  attention: "weight",
  occlusion: "occlusion score",
  gradient: "input × gradient",
};

/** Weights of a layer, or of attention if the trace lacks it. */
export function layerWeights(trace: Trace, layer: AttributionLayer): LayerWeights {
  if (layer === "attention" || !trace.attribution) return { title: TITLES.attention, weights: toGrid(trace.attention), colormap: "weight", quantity: QUANTITIES.attention };
  return { title: TITLES[layer], weights: toGrid(layer === "occlusion" ? trace.attribution.occlusion : trace.attribution.input_x_gradient), colormap: "difference", quantity: QUANTITIES[layer] };
}

/** Whether an output has attention weights: without attention, all are zero. An output without steps counts as having them. */
export function hasAttention({ attention }: Trace): boolean {
  const { values } = toGrid(attention);
  return values.length === 0 || values.some((value) => value !== 0);
}

/** Sentence in place of the weights of a model without attention. */
export const describeMissingAttention = (model: string | undefined): string => `${model === undefined ? "This model" : `Model ${quoteText(model)}`} has no attention.`;
