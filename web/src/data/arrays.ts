/** Arrays: decoding from JSON (lists, or base64 of little-endian float32) to flat arrays with shapes. */
import type { EncodedArray } from "./contents";

/** Matrix in row-major order; a vector is one row. */
export interface Grid {
  readonly rows: number;
  readonly columns: number;
  readonly values: Float32Array;
}

/** Array of one or two dimensions, in either form of the schema. */
export type NumberArray = EncodedArray | number[] | number[][];

// Several panels draw the same array, which is decoded once.
const decoded = new WeakMap<NumberArray, Float32Array>();

/** Decodes an array. Throws if data and shape disagree. */
export function decodeArray(array: NumberArray): Float32Array {
  const known = decoded.get(array);
  if (known) return known;
  if (Array.isArray(array)) return Float32Array.from(array.flat());
  const text = atob(array.data);
  const bytes = Uint8Array.from(text, (letter) => letter.charCodeAt(0));
  const count = array.shape.reduce((product, size) => product * size, 1);
  if (bytes.length !== 4 * count) {
    throw new Error(`an array of shape ${array.shape.join(" × ")} has ${bytes.length} bytes`);
  }
  const view = new DataView(bytes.buffer);
  const values = Float32Array.from({ length: count }, (_, index) => view.getFloat32(4 * index, true));
  decoded.set(array, values);
  return values;
}

/** Converts an encoded array to lists, for readable JSON; returns other values unchanged. */
export function toPlainLists(value: unknown): unknown {
  const shape = (value as Partial<EncodedArray> | null)?.shape;
  if (!shape) return value;
  const grid = toGrid(value as EncodedArray);
  const rows = Array.from({ length: grid.rows }, (_, at) => [...row(grid, at)]);
  return shape.length > 1 ? rows : rows[0];
}

/** Converts an array to a matrix; a vector is one row. */
export function toGrid(array: NumberArray): Grid {
  const [first = 0, second] = Array.isArray(array) ? [array.length, (array[0] as number[] | undefined)?.length] : array.shape;
  const [rows, columns] = second === undefined ? [1, first] : [first, second];
  return { rows, columns, values: decodeArray(array) };
}

/** One row, without copying. */
export function row(grid: Grid, index: number): Float32Array {
  return grid.values.subarray(index * grid.columns, (index + 1) * grid.columns);
}

/** Matrix from rows; an empty list has no columns. */
export function gridFromRows(rows: ArrayLike<number>[]): Grid {
  const columns = rows[0]?.length ?? 0;
  const values = new Float32Array(rows.length * columns);
  rows.forEach((each, index) => values.set(each, index * columns));
  return { rows: rows.length, columns, values };
}

/** Selected rows. */
export const selectRows = (grid: Grid, indices: readonly number[]): Grid => gridFromRows(indices.map((index) => row(grid, index)));

/** a − b for matrices of the same shape. */
export function subtractGrids(a: Grid, b: Grid): Grid {
  if (a.rows !== b.rows || a.columns !== b.columns) throw new Error("cannot subtract grids of different shapes");
  return { ...a, values: a.values.map((value, index) => value - (b.values[index] ?? 0)) };
}

/** Smaller differences count as zero. */
export const MIN_DIFFERENCE = 5e-5;

/** Maximum magnitude. */
export function maxMagnitude(grid: Grid): number {
  return grid.values.reduce((maximum, value) => Math.max(maximum, Math.abs(value)), 0);
}

/** Sum of each column. */
export function columnSums(grid: Grid): Float32Array {
  const sums = new Float32Array(grid.columns);
  for (let index = 0; index < grid.values.length; index++) {
    const column = index % grid.columns;
    sums[column] = (sums[column] ?? 0) + (grid.values[index] ?? 0);
  }
  return sums;
}

/** Encodes a matrix, for tests and saved files. */
export function encodeGrid(grid: Grid): EncodedArray {
  const view = new DataView(new ArrayBuffer(4 * grid.values.length));
  grid.values.forEach((value, index) => view.setFloat32(4 * index, value, true));
  let text = "";
  for (const byte of new Uint8Array(view.buffer)) text += String.fromCharCode(byte);
  return { shape: [grid.rows, grid.columns], data: btoa(text) };
}
