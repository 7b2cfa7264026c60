import { clamp } from "../drawing/layout";
// Rows of attention that a person can give to a step: S shares that sum to one.

export type AttentionWeights = Float32Array;

export function oneHotWeights(length: number, position: number): AttentionWeights {
  return Float32Array.from({ length }, (_, index) => (index === position ? 1 : 0));
}

export function uniformWeights(length: number): AttentionWeights {
  return new Float32Array(length).fill(1 / Math.max(1, length));
}

/** All on the position that lies as far along the source as the step along the output; features are left out. */
export function diagonalWeights(length: number, features: number, step: number, steps: number): AttentionWeights {
  const along = steps < 2 ? 0 : step / (steps - 1);
  return oneHotWeights(length, features + Math.round(along * (length - features - 1)));
}

/** The same weights at other positions, drawn by a seed, so that a shared page shows the same (Fisher and Yates). */
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

/** What the bars of a row reach to: 1, or where the weights are small a round number above twice the greatest. */
export function barMaximum(weights: AttentionWeights): number {
  const most = Math.max(0, ...weights);
  return [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2].find((top) => 2 * most <= top && most > 0) ?? 1;
}

/** One share set by hand, the others scaled so that all sum to one (shared evenly where they were nothing). */
export function setWeight(weights: AttentionWeights, position: number, share: number): AttentionWeights {
  const given = clamp(share, 1);
  if (weights.length < 2) return oneHotWeights(weights.length, 0);
  const rest = weights.reduce((total, weight, index) => total + (index === position ? 0 : weight), 0);
  const even = (1 - given) / (weights.length - 1);
  return weights.map((weight, index) => (index === position ? given : rest > 1e-9 ? (weight / rest) * (1 - given) : even));
}
