/** Weights of an attribution layer: attention, occlusion or gradient. */
import { toGrid, type Grid } from "../data/arrays";
import type { Trace } from "../data/contents";
import type { Colormap } from "../drawing/scales";
import type { AttributionLayer } from "./selection.svelte";

export interface LayerWeights {
  readonly weights: Grid;
  readonly colormap: Colormap;
  readonly quantity: string;
}

const QUANTITIES: Record<AttributionLayer, string> = {
  attention: "weight",
  occlusion: "occlusion score",
  gradient: "input × gradient",
};

/** Weights of a layer, or of attention if the trace lacks it. */
export function layerWeights(trace: Trace, layer: AttributionLayer): LayerWeights {
  if (layer === "attention" || !trace.attribution) return { weights: toGrid(trace.attention), colormap: "weight", quantity: QUANTITIES.attention };
  return { weights: toGrid(layer === "occlusion" ? trace.attribution.occlusion : trace.attribution.input_x_gradient), colormap: "difference", quantity: QUANTITIES[layer] };
}
