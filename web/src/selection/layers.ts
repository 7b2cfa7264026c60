/** What says which positions mattered: the weights, and the evidence beside them. */
import { grid, type Grid } from "../data/blocks";
import type { Trace } from "../data/contents";
import type { Hue } from "../drawing/scales";
import type { Layer } from "./selection.svelte";

export interface Shown {
  readonly weights: Grid;
  readonly hue: Hue;
  readonly quantity: string;
}

const QUANTITIES: Record<Layer, string> = {
  attention: "weight",
  erasure: "fall of ln p without its embedding",
  gradient: "gradient × embedding",
};

/** The layer asked for, or attention where the trace does not have it. */
export function layerOf(trace: Trace, layer: Layer): Shown {
  if (layer === "attention" || !trace.evidence) return { weights: grid(trace.attention), hue: "weight", quantity: QUANTITIES.attention };
  return { weights: grid(trace.evidence[layer]), hue: "difference", quantity: QUANTITIES[layer] };
}
