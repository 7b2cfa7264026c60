import { expect, test } from "vitest";
import { encodeGrid, columnSums, subtractGrids, toGrid, gridFromRows, decodeArray, toPlainLists, row } from "../src/data/arrays";

test("an encoded array is little-endian float32 in base64", () => {
  // Written by hand: 1.0 is 0x3f800000, −2.5 is 0xc0200000.
  const data = btoa(String.fromCharCode(0, 0, 0x80, 0x3f, 0, 0, 0x20, 0xc0));
  expect([...decodeArray({ shape: [2], data })]).toEqual([1, -2.5]);
});

test("the shape gives rows and columns; a vector is one row", () => {
  const square = encodeGrid(gridFromRows([[1, 2], [3, 4]]));
  expect([...row(toGrid(square), 1)]).toEqual([3, 4]);
  expect(toGrid({ shape: [4], data: square.data })).toMatchObject({ rows: 1, columns: 4 });
  expect(toGrid({ shape: [0, 3], data: "" })).toMatchObject({ rows: 0, columns: 3 });
});

test("lists are decoded like encoded arrays", () => {
  const rows = [[1, 2], [3, 4]];
  expect(toGrid(rows)).toEqual(toGrid(encodeGrid(gridFromRows(rows))));
  expect(toGrid([1, 2, 3])).toMatchObject({ rows: 1, columns: 3 });
  expect([...decodeArray([])]).toEqual([]);
});

test("plain lists replace encoded arrays in readable JSON", () => {
  const square = encodeGrid(gridFromRows([[1, 2], [3, 4]]));
  const values = { name: "map", of: [square, { shape: [4], data: square.data }, { shape: [0, 3], data: "" }], none: null };
  expect(JSON.parse(JSON.stringify(values, (_, value: unknown) => toPlainLists(value)))).toEqual({ name: "map", of: [[[1, 2], [3, 4]], [1, 2, 3, 4], []], none: null });
});

test("a shape that does not match the data is an error", () => {
  expect(() => decodeArray({ shape: [2, 2], data: "" })).toThrow("2 × 2");
});

test("column sums and differences", () => {
  const a = gridFromRows([[1, 2], [3, 4]]);
  expect([...columnSums(a)]).toEqual([4, 6]);
  expect([...subtractGrids(a, gridFromRows([[1, 1], [1, 1]])).values]).toEqual([0, 1, 2, 3]);
  expect(() => subtractGrids(a, gridFromRows([[1, 2]]))).toThrow();
});
