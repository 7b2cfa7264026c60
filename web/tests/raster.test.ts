import { expect, test } from "vitest";
import { gridFromRows } from "../src/data/arrays";
import { scaleByLimit, scaleByMaximum, scaleByRow, aboveUniform, maxPool, chooseScale } from "../src/drawing/raster";
import { colorAt, formatDecimal, formatPercent } from "../src/drawing/scales";

test("max pooling keeps a narrow peak", () => {
  const values = Array.from({ length: 1000 }, (_, index) => (index === 437 ? 0.9 : 0.0001));
  const small = maxPool(gridFromRows([values]), { from: 0, to: 1 }, { from: 0, to: 1000 }, 10, 10);
  expect(small).toMatchObject({ rows: 1, columns: 10 });
  expect(small.values[4]).toBeCloseTo(0.9);
});

test("a window without pooling is unchanged", () => {
  const grid = gridFromRows([[1, 2, 3], [4, 5, 6]]);
  expect([...maxPool(grid, { from: 1, to: 2 }, { from: 1, to: 3 }, 100, 100).values]).toEqual([5, 6]);
});

test("scaling by row and by all", () => {
  const grid = gridFromRows([[1, -2], [0, 0]]);
  expect([...scaleByRow(grid).values]).toEqual([0.5, -1, 0, 0]);
  expect([...scaleByLimit(grid, 4).values]).toEqual([0.25, -0.5, 0, 0]);
  expect([...scaleByMaximum(gridFromRows([[1, -4]])).values]).toEqual([0.25, -1]);
});

test("colors are monotonic: darker with weight on light, lighter on dark", () => {
  const brightness = (value: number, dark: boolean): number => {
    const [r, g, b] = colorAt(value, "weight", dark);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  for (let index = 1; index <= 50; index++) {
    expect(brightness(index / 50, false)).toBeLessThan(brightness((index - 1) / 50, false));
    expect(brightness(index / 50, true)).toBeGreaterThan(brightness((index - 1) / 50, true));
  }
  expect(colorAt(0, "difference", false)).toEqual(colorAt(0, "weight", false));
});

test("formatted numbers", () => {
  expect([formatDecimal(-0.00001), formatDecimal(-0.5), formatDecimal(2, 0)]).toEqual(["0.000", "−0.500", "2"]);
  // A value below 1, or below 100 %, is never rounded to it; a value above 1 may be.
  expect([formatDecimal(0.9996), formatDecimal(-0.9996), formatDecimal(0.999, 2), formatDecimal(99.996, 2), formatDecimal(1), formatDecimal(1.0004), formatDecimal(0.9996, 4)]).toEqual([
    "0.9996", "−0.9996", "0.999", "99.996", "1.000", "1.000", "0.9996",
  ]);
  expect([formatPercent(0.994), formatPercent(0.996), formatPercent(0.9985), formatPercent(0.9999999), formatPercent(1)]).toEqual(["99 %", "99.6 %", "99.9 %", "> 99.9 %", "100 %"]);
  expect([formatPercent(0), formatPercent(0.0001), formatPercent(0.973), formatPercent(0.01), formatPercent(1), formatPercent(0.9999)]).toEqual([
    "0 %", "< 0.1 %", "97 %", "1.0 %", "100 %", "> 99.9 %",
  ]);
});

test("tints of diffuse weights show the share above uniform", () => {
  const weights = new Float32Array(300).fill(0.9 / 298);
  [weights[10], weights[20]] = [0.06, 0.04];
  const tints = aboveUniform(weights);
  expect(tints[10]).toBeCloseTo(1);
  expect(tints[20]).toBeGreaterThan(0.5);
  expect(tints[20]).toBeLessThan(0.75);
  expect(tints[0]).toBe(0);
  expect(Math.max(...aboveUniform(new Float32Array(300).fill(1 / 300)))).toBeLessThan(0.01);
  expect(aboveUniform(new Float32Array(3))).toEqual(new Float32Array(3));
});

test("adjacent maps share one scale", () => {
  const [sharp, spread] = [gridFromRows([[0.9, 0.1]]), gridFromRows([[0.2, 0.2]])];
  expect([chooseScale(sharp, spread), chooseScale(spread, spread), chooseScale(sharp)]).toEqual(["unit", "row", "unit"]);
  // With more columns, cells are about one pixel wide: only a scale by row makes them visible.
  expect([200, 201].map((columns) => chooseScale(gridFromRows([Array.from({ length: columns }, (_, at) => (at ? 0 : 0.5))])))).toEqual(["unit", "row"]);
});

test("rows of many positions are scaled by the share above uniform", () => {
  const [low, high] = [0.003, 0.0045];
  const rows = gridFromRows([Array.from({ length: 300 }, (_, index) => (index % 2 ? high : low)), new Array<number>(300).fill(0)]);
  expect(scaleByRow(rows).values[0]).toBeGreaterThan(0.6);
  expect([...scaleByRow(rows, true).values.subarray(0, 2)]).toEqual([0, 1]);
  expect(Math.max(...scaleByRow(rows, true).values.subarray(300))).toBe(0);
});
