import { clamp } from "../drawing/layout";
// Attention weights that replace those of a step: S weights that sum to one.

export type AttentionWeights = Float32Array;

export function oneHotWeights(length: number, position: number): AttentionWeights {
  return Float32Array.from({ length }, (_, index) => (index === position ? 1 : 0));
}

export function uniformWeights(length: number): AttentionWeights {
  return new Float32Array(length).fill(1 / Math.max(1, length));
}

/** One-hot weights at the source position proportional to the step; features are skipped. */
export function diagonalWeights(length: number, features: number, step: number, steps: number): AttentionWeights {
  const along = steps < 2 ? 0 : step / (steps - 1);
  return oneHotWeights(length, features + Math.round(along * (length - features - 1)));
}

/** Permutation of weights (Fisher and Yates), seeded so that a shared link shows the same. */
export function permuteWeights(weights: AttentionWeights, seed: number): AttentionWeights {
  const drawn = Float32Array.from(weights);
  let state = (seed * 2654435761 + 1) >>> 0;
  for (let last = drawn.length - 1; last > 0; last--) {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    const other = Math.floor((state / 2 ** 32) * (last + 1));
    [drawn[last], drawn[other]] = [drawn[other]!, drawn[last]!];
  }
  return drawn;
}

/** Upper end of the bars: 1, or a round number above twice the maximum if all weights are small. */
export function barMaximum(weights: AttentionWeights): number {
  const maximum = Math.max(0, ...weights);
  return [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2].find((top) => 2 * maximum <= top && maximum > 0) ?? 1;
}

/** Sets one weight and rescales the others to sum to one (uniformly if they are zero). */
export function setWeight(weights: AttentionWeights, position: number, share: number): AttentionWeights {
  const value = clamp(share, 1);
  if (weights.length < 2) return oneHotWeights(weights.length, 0);
  const remaining = weights.reduce((total, weight, index) => total + (index === position ? 0 : weight), 0);
  const uniform = (1 - value) / (weights.length - 1);
  return weights.map((weight, index) => (index === position ? value : remaining > 1e-9 ? (weight / remaining) * (1 - value) : uniform));
}
