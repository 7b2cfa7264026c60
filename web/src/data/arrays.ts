/** Numbers as they come (lists, or base64 of little-endian float32) and as they are used (a flat array with its shape). */
import type { EncodedArray } from "./contents";

/** `rows` × `columns` numbers, row by row; a vector is one row. */
export interface Grid {
  readonly rows: number;
  readonly columns: number;
  readonly values: Float32Array;
}

/** An array of one or two dimensions, in either form of the schema. */
export type NumberArray = EncodedArray | number[] | number[][];

// One array is drawn by several panels: it is decoded once, and forgotten with the array.
const decoded = new WeakMap<NumberArray, Float32Array>();

/** The numbers of an array. Throws where its data and shape disagree. */
export function decodeArray(block: NumberArray): Float32Array {
  const known = decoded.get(block);
  if (known) return known;
  if (Array.isArray(block)) return Float32Array.from(block.flat());
  const text = atob(block.data);
  const bytes = Uint8Array.from(text, (letter) => letter.charCodeAt(0));
  const count = block.shape.reduce((product, size) => product * size, 1);
  if (bytes.length !== 4 * count) {
    throw new Error(`a block of shape ${block.shape.join(" × ")} has ${bytes.length} bytes`);
  }
  const view = new DataView(bytes.buffer);
  const values = Float32Array.from({ length: count }, (_, place) => view.getFloat32(4 * place, true));
  decoded.set(block, values);
  return values;
}

/** An array of the compact form as lists; for JSON that people read. Any other value stays. */
export function toPlainLists(value: unknown): unknown {
  const shape = (value as Partial<EncodedArray> | null)?.shape;
  if (!shape) return value;
  const of = toGrid(value as EncodedArray);
  const rows = Array.from({ length: of.rows }, (_, at) => [...row(of, at)]);
  return shape.length > 1 ? rows : rows[0];
}

/** An array as rows and columns; a vector is one row. */
export function toGrid(block: NumberArray): Grid {
  const [first = 0, second] = Array.isArray(block) ? [block.length, (block[0] as number[] | undefined)?.length] : block.shape;
  const [rows, columns] = second === undefined ? [1, first] : [first, second];
  return { rows, columns, values: decodeArray(block) };
}

/** One row, without copying. */
export function row(of: Grid, index: number): Float32Array {
  return of.values.subarray(index * of.columns, (index + 1) * of.columns);
}

/** Rows of numbers as a grid; an empty list has no columns. */
export function gridFromRows(rows: ArrayLike<number>[]): Grid {
  const columns = rows[0]?.length ?? 0;
  const values = new Float32Array(rows.length * columns);
  rows.forEach((each, index) => values.set(each, index * columns));
  return { rows: rows.length, columns, values };
}

/** The rows at these places, in their order. */
export const selectRows = (of: Grid, places: readonly number[]): Grid => gridFromRows(places.map((place) => row(of, place)));

/** a − b, of the same shape. */
export function subtractGrids(a: Grid, b: Grid): Grid {
  if (a.rows !== b.rows || a.columns !== b.columns) throw new Error("cannot subtract grids of different shapes");
  return { ...a, values: a.values.map((value, place) => value - (b.values[place] ?? 0)) };
}

/** What differs by less does not differ: it is told as 0. */
export const MIN_DIFFERENCE = 5e-5;

/** How far the farthest number is from zero. */
export function maxMagnitude(of: Grid): number {
  return of.values.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
}

/** How much each column was given by all rows together. */
export function columnSums(of: Grid): Float32Array {
  const sums = new Float32Array(of.columns);
  for (let place = 0; place < of.values.length; place++) {
    const column = place % of.columns;
    sums[column] = (sums[column] ?? 0) + (of.values[place] ?? 0);
  }
  return sums;
}

/** A block of these numbers: for tests, and for files that a reader saves. */
export function encodeGrid(of: Grid): EncodedArray {
  const view = new DataView(new ArrayBuffer(4 * of.values.length));
  of.values.forEach((value, place) => view.setFloat32(4 * place, value, true));
  let text = "";
  for (const byte of new Uint8Array(view.buffer)) text += String.fromCharCode(byte);
  return { shape: [of.rows, of.columns], data: btoa(text) };
}
