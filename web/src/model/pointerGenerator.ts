/** Pointer-generator: mixture of the distribution over the vocabulary and the attention weights. Equations: pellucid/model/pointer_generator.py. */
import { logSumExp, softmax } from "./linear";

/** Smallest positive float32 that is not subnormal. */
const MIN_PROBABILITY = 2 ** -126;

/**
 * Log-probabilities of V symbols and S positions, for each hypothesis. `copyIds` has the id of each position's symbol, from 0 to
 * V + S − 1, or −1. Position ids that no symbol has are −∞.
 */
export function mixCopies(logits: Float32Array, weights: Float32Array, gates: Float32Array, copyIds: readonly number[]): Float32Array {
  const [numRows, numPositions] = [gates.length, copyIds.length];
  const size = logits.length / numRows;
  const mixed = new Float32Array(numRows * (size + numPositions)).fill(-Infinity);
  for (let row = 0; row < numRows; row++) {
    const attention = weights.subarray(row * numPositions, (row + 1) * numPositions);
    const generated = softmax(logits.subarray(row * size, (row + 1) * size));
    mixed.set(mixRow(generated, attention, gates[row]!, copyIds), row * (size + numPositions));
  }
  return mixed;
}

/** Log-probabilities of one step whose copies of symbols outside the vocabulary, those from `size` on, are one column. */
export function mergeCopies(logProbabilities: Float32Array, size: number): Float32Array {
  if (logProbabilities.length === size) return logProbabilities;
  const merged = new Float32Array(size + 1);
  merged.set(logProbabilities.subarray(0, size));
  merged[size] = logSumExp(logProbabilities.subarray(size));
  return merged;
}

/** p(w) = (1 − (1 − g) m) generated_w + (1 − g) Σ_{s: x_s = w} α_s with the gate g and the weight m of all positions that can be copied. */
function mixRow(generated: Float32Array, attention: Float32Array, gate: number, copyIds: readonly number[]): Float32Array {
  const [generates, copies] = [1 / (1 + Math.exp(-gate)), 1 / (1 + Math.exp(gate))];
  const copied = new Map<number, number>();
  copyIds.forEach((id, position) => id >= 0 && copied.set(id, (copied.get(id) ?? 0) + attention[position]!));
  const uncopyable = Math.max(0, 1 - [...copied.values()].reduce((sum, weight) => sum + weight, 0));
  const logarithm = (probability: number): number => Math.log(Math.max(MIN_PROBABILITY, probability));
  return Float32Array.from({ length: generated.length + copyIds.length }, (_, id) => {
    if (id >= generated.length && !copied.has(id)) return -Infinity;
    return logarithm((generates + copies * uncopyable) * (generated[id] ?? 0) + copies * (copied.get(id) ?? 0));
  });
}
