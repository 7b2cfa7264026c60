/** Linear maps, layer normalization, softmax and other functions of rows of numbers. */
import type { Kernel, Matrix } from "./kernel";

/** y = W x + b */
export class Linear {
  constructor(
    private readonly kernel: Kernel,
    readonly matrix: Matrix,
    readonly bias: Float32Array | null,
  ) {}

  get size(): number {
    return this.matrix.rows;
  }

  /** Outputs for `numRows` inputs, one row each. */
  apply(inputs: Float32Array, numRows: number): Float32Array {
    const outputs = this.kernel.multiply(this.matrix, inputs, numRows);
    return this.bias ? addToRows(outputs, this.bias) : outputs;
  }
}

/** Normalization of rows to mean 0 and variance 1, then a gain and a bias. */
export class LayerNorm {
  constructor(
    private readonly gain: Float32Array,
    private readonly bias: Float32Array,
  ) {}

  apply(values: Float32Array): Float32Array {
    return normalizeGroups(values, [this.gain.length], this.gain, this.bias);
  }
}

const EPSILON = 1e-5;

/** Normalizes each group of units of each row, and applies a gain and a bias of the whole row. */
export function normalizeGroups(values: Float32Array, groups: readonly number[], gain: Float32Array, bias: Float32Array): Float32Array {
  const normalized = new Float32Array(values.length);
  for (let start = 0; start < values.length; ) {
    for (const size of groups) {
      const [group, unit] = [values.subarray(start, start + size), start % gain.length];
      const mean = group.reduce((sum, value) => sum + value, 0) / size;
      const scale = 1 / Math.sqrt(group.reduce((sum, value) => sum + (value - mean) ** 2, 0) / size + EPSILON);
      group.forEach((value, index) => (normalized[start + index] = (value - mean) * scale * gain[unit + index]! + bias[unit + index]!));
      start += size;
    }
  }
  return normalized;
}

/** Adds a vector to each row, in place. */
export function addToRows(rows: Float32Array, vector: Float32Array): Float32Array {
  for (let start = 0; start < rows.length; start += vector.length) {
    for (let index = 0; index < vector.length; index++) rows[start + index]! += vector[index]!;
  }
  return rows;
}

/** Sum of two arrays of the same length. */
export const add = (a: Float32Array, b: Float32Array): Float32Array => addToRows(a.slice(), b);

/** Concatenates the rows of several matrices. */
export function joinRows(parts: readonly Float32Array[], numRows: number): Float32Array {
  const sizes = parts.map((part) => part.length / numRows);
  const width = sizes.reduce((sum, size) => sum + size, 0);
  const joined = new Float32Array(numRows * width);
  for (let row = 0, at = 0; row < numRows; row++) {
    parts.forEach((part, index) => {
      joined.set(part.subarray(row * sizes[index]!, (row + 1) * sizes[index]!), at);
      at += sizes[index]!;
    });
  }
  return joined;
}

/** Σ_s weights[s] rows[s] */
export function weightedSum(weights: Float32Array, rows: Float32Array): Float32Array {
  const size = rows.length / weights.length;
  const sum = new Float32Array(size);
  for (let row = 0; row < weights.length; row++) {
    const weight = weights[row]!;
    for (let unit = 0; unit < size; unit++) sum[unit]! += weight * rows[row * size + unit]!;
  }
  return sum;
}

/** Natural logarithm of Σ e^x. */
export function logSumExp(values: Float32Array): number {
  let maximum = -Infinity;
  for (let index = 0; index < values.length; index++) if (values[index]! > maximum) maximum = values[index]!;
  if (maximum === -Infinity) return -Infinity;
  let sum = 0;
  for (let index = 0; index < values.length; index++) sum += Math.exp(values[index]! - maximum);
  return maximum + Math.log(sum);
}

/** Logarithm of the softmax, in place. */
export function logSoftmax(values: Float32Array): Float32Array {
  const total = logSumExp(values);
  for (let index = 0; index < values.length; index++) values[index]! -= total;
  return values;
}

/** Softmax; −∞ becomes 0. */
export function softmax(values: Float32Array): Float32Array {
  const total = logSumExp(values);
  return values.map((value) => Math.exp(value - total));
}
