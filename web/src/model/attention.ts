/** Attention of the decoder to the encoder states. Equations: pellucid/model/attention.py. */
import type { Kernel } from "./kernel";
import { add, softmax, weightedSum, type Linear } from "./linear";
import type { Memory } from "./memory";

/** Contexts (R × D) and weights (R × S) of R queries. */
export interface AttentionOutput {
  readonly contexts: Float32Array;
  readonly weights: Float32Array;
}

/** Attention to one source, with its keys. Queries are R × H, the weights of the previous step R × S. */
export interface SourceAttention {
  attend(queries: Float32Array, numRows: number, previous: Float32Array | null): AttentionOutput;
  /** Contexts of given weights, which are the same for all queries. */
  force(weights: Float32Array, numRows: number): AttentionOutput;
}

export interface Attention {
  /** Weights before the first step, if steps read the previous weights. */
  initialWeights(numPositions: number): Float32Array | null;
  /** Computes the keys of a source. */
  prepare(memory: Memory): SourceAttention;
}

/** Scores (or, for monotonic attention, energies) of one query at each position. */
type Scores = (query: Float32Array, previous: Float32Array | null) => Float32Array;

/** Attention by the softmax of a score. `prepareScores` returns the scores of projected queries. */
export function scoredAttention(projectQueries: (queries: Float32Array, numRows: number) => Float32Array, prepareScores: (memory: Memory) => Scores, readsPrevious = false): Attention {
  return {
    initialWeights: (numPositions) => (readsPrevious ? new Float32Array(numPositions) : null),
    prepare(memory) {
      const scores = prepareScores(memory);
      return attendWith(memory, projectQueries, (query, previous) => softmax(maskPositions(scores(query, previous), memory)));
    },
  };
}

/** Attention to a source by a function from a query to its weights. */
function attendWith(memory: Memory, projectQueries: (queries: Float32Array, numRows: number) => Float32Array, computeWeights: Scores): SourceAttention {
  return {
    attend(queries, numRows, previous) {
      const projected = projectQueries(queries, numRows);
      const rows = splitRows(projected, numRows).map((query, row) => computeWeights(query, previous && rowOf(previous, row, memory.numPositions)));
      return { contexts: concatenate(rows.map((weights) => weightedSum(weights, memory.states))), weights: concatenate(rows) };
    },
    force: (weights, numRows) => repeatOutput(weights, weightedSum(weights, memory.states), numRows),
  };
}

function maskPositions(scores: Float32Array, { masked }: Memory): Float32Array {
  for (const position of masked) scores[position] = -Infinity;
  return scores;
}

/** e_s = vᵀ tanh(W q + U h_s + b) */
export function additiveAttention(kernel: Kernel, query: Linear, key: Linear, energy: Float32Array): Attention {
  return scoredAttention((queries, numRows) => query.apply(queries, numRows), (memory) => {
    const keys = key.apply(memory.states, memory.numPositions);
    return (projected) => kernel.additiveScores(projected, keys, energy);
  });
}

/** e_s = qᵀ key_s, with keys computed from the states. */
export function dotAttention(keysOf: (memory: Memory) => Float32Array): Attention {
  return scoredAttention((queries) => queries, (memory) => {
    const keys = keysOf(memory);
    return (query) => Float32Array.from({ length: memory.numPositions }, (_, position) => dot(query, rowOf(keys, position, query.length)));
  });
}

/** e_s = vᵀ tanh(W q + U h_s + b + L f_s), f_s = Σ_j F_j α'_{s+j} with the weights α' of the previous step. */
export function locationAttention(kernel: Kernel, parts: { query: Linear; key: Linear; energy: Float32Array; location: Linear; filters: Float32Array }): Attention {
  const { query, key, energy, location, filters } = parts;
  const numFilters = location.matrix.columns;
  return scoredAttention((queries, numRows) => query.apply(queries, numRows), (memory) => {
    const keys = key.apply(memory.states, memory.numPositions);
    return (projected, previous) => kernel.additiveScores(projected, add(keys, location.apply(filterWeights(previous!, filters, numFilters), memory.numPositions)), energy);
  }, true);
}

/** f_s of each position, S × N. */
function filterWeights(weights: Float32Array, filters: Float32Array, numFilters: number): Float32Array {
  const width = filters.length / numFilters;
  const radius = (width - 1) / 2;
  return Float32Array.from({ length: weights.length * numFilters }, (_, index) => {
    const [position, filter] = [Math.floor(index / numFilters), index % numFilters];
    let sum = 0;
    for (let offset = 0; offset < width; offset++) sum += filters[filter * width + offset]! * (weights[position + offset - radius] ?? 0);
    return sum;
  });
}

/** Additive attention with several heads, whose contexts are concatenated and projected; the weights are their mean. */
export function multiHeadAttention(kernel: Kernel, parts: { query: Linear; key: Linear; energy: Float32Array; context: Linear; numHeads: number }): Attention {
  const { query, key, energy, context, numHeads } = parts;
  const size = energy.length / numHeads;
  const headOf = (values: Float32Array, head: number): Float32Array => rowOf(values, head, size);
  return {
    initialWeights: () => null,
    prepare(memory) {
      const keys = splitRows(key.apply(memory.states, memory.numPositions), memory.numPositions);
      const headKeys = Array.from({ length: numHeads }, (_, head) => concatenate(keys.map((each) => headOf(each, head))));
      const computeWeights = (projected: Float32Array, head: number): Float32Array => softmax(maskPositions(kernel.additiveScores(headOf(projected, head), headKeys[head]!, headOf(energy, head)), memory));
      return {
        attend(queries, numRows) {
          const heads = splitRows(query.apply(queries, numRows), numRows).map((projected) => headKeys.map((_, head) => computeWeights(projected, head)));
          const contexts = concatenate(heads.map((rows) => concatenate(rows.map((weights) => weightedSum(weights, memory.states)))));
          return { contexts: context.apply(contexts, numRows), weights: concatenate(heads.map(meanRow)) };
        },
        force(weights, numRows) {
          const contexts = concatenate(headKeys.map(() => weightedSum(weights, memory.states)));
          return repeatOutput(weights, context.apply(contexts, 1), numRows);
        },
      };
    },
  };
}

/** Monotonic attention: each output attends to the next position with a positive energy, from the previous one on. */
export function monotonicAttention(kernel: Kernel, parts: { query: Linear; key: Linear; energy: Float32Array; gain: number; offset: number }): Attention {
  const { query, key, energy, gain, offset } = parts;
  const norm = Math.hypot(...energy);
  const direction = energy.map((value) => (gain * value) / norm);
  return {
    initialWeights: (numPositions) => Float32Array.from({ length: numPositions }, (_, position) => (position === 0 ? 1 : 0)),
    prepare(memory) {
      const keys = key.apply(memory.states, memory.numPositions);
      const project = (queries: Float32Array, numRows: number): Float32Array => query.apply(queries, numRows);
      return attendWith(memory, project, (projected, previous) => {
        const energies = kernel.additiveScores(projected, keys, direction);
        return stopWeights((position) => energies[position]! + offset > 0 && !memory.masked.has(position), previous!);
      });
    },
  };
}

/** An open position gets the sum of the previous weights after the previous open position, up to itself. */
function stopWeights(isOpen: (position: number) => boolean, previous: Float32Array): Float32Array {
  let sum = 0;
  return previous.map((weight, position) => {
    sum += weight;
    if (!isOpen(position)) return 0;
    const stopped = sum;
    sum = 0;
    return stopped;
  });
}

/** No attention: the context is the final state; given weights have the context of their mean. */
export const noAttention: Attention = {
  initialWeights: () => null,
  prepare: (memory) => ({
    attend: (_, numRows) => repeatOutput(new Float32Array(memory.numPositions), memory.final, numRows),
    force: (weights, numRows) => repeatOutput(weights, weightedSum(weights, memory.states), numRows),
  }),
};

function repeatOutput(weights: Float32Array, context: Float32Array, numRows: number): AttentionOutput {
  const repeat = (values: Float32Array): Float32Array => concatenate(Array<Float32Array>(numRows).fill(values));
  return { contexts: repeat(context), weights: repeat(weights) };
}

const rowOf = (values: Float32Array, row: number, size: number): Float32Array => values.subarray(row * size, (row + 1) * size);

function splitRows(values: Float32Array, numRows: number): Float32Array[] {
  return Array.from({ length: numRows }, (_, row) => rowOf(values, row, values.length / numRows));
}

function concatenate(rows: readonly Float32Array[]): Float32Array {
  const values = new Float32Array(rows.reduce((sum, row) => sum + row.length, 0));
  let at = 0;
  for (const row of rows) {
    values.set(row, at);
    at += row.length;
  }
  return values;
}

function meanRow(rows: readonly Float32Array[]): Float32Array {
  return rows[0]!.map((_, index) => rows.reduce((sum, row) => sum + row[index]!, 0) / rows.length);
}

function dot(a: Float32Array, b: Float32Array): number {
  let sum = 0;
  for (let index = 0; index < a.length; index++) sum += a[index]! * b[index]!;
  return sum;
}
