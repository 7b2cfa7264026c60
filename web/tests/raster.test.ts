import { expect, test } from "vitest";
import { gridOf } from "../src/data/blocks";
import { byAll, byRow, lifted, pooled, scaleOf } from "../src/drawing/raster";
import { colour, decimal, percent } from "../src/drawing/scales";

test("a narrow peak stays when a thousand columns share ten pixels", () => {
  const values = Array.from({ length: 1000 }, (_, place) => (place === 437 ? 0.9 : 0.0001));
  const small = pooled(gridOf([values]), { from: 0, to: 1 }, { from: 0, to: 1000 }, 10, 10);
  expect(small).toMatchObject({ rows: 1, columns: 10 });
  expect(small.values[4]).toBeCloseTo(0.9);
});

test("a window without pooling is the window itself", () => {
  const grid = gridOf([[1, 2, 3], [4, 5, 6]]);
  expect([...pooled(grid, { from: 1, to: 2 }, { from: 1, to: 3 }, 100, 100).values]).toEqual([5, 6]);
});

test("scaling by row and by all", () => {
  const grid = gridOf([[1, -2], [0, 0]]);
  expect([...byRow(grid).values]).toEqual([0.5, -1, 0, 0]);
  expect([...byAll(gridOf([[1, -4]])).values]).toEqual([0.25, -1]);
});

test("more weight is darker on light ground and lighter on dark ground, all the way", () => {
  const brightness = (value: number, dark: boolean): number => {
    const [r, g, b] = colour(value, "weight", dark);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  for (let place = 1; place <= 50; place++) {
    expect(brightness(place / 50, false)).toBeLessThan(brightness((place - 1) / 50, false));
    expect(brightness(place / 50, true)).toBeGreaterThan(brightness((place - 1) / 50, true));
  }
  expect(colour(0, "difference", false)).toEqual(colour(0, "weight", false));
});

test("numbers for people", () => {
  expect([decimal(-0.00001), decimal(-0.5), decimal(2, 0)]).toEqual(["0.000", "−0.500", "2"]);
  // What is below 1, or 100 %, does not look like it; what is above 1 may.
  expect([decimal(0.9996), decimal(-0.9996), decimal(0.999, 2), decimal(99.996, 2), decimal(1), decimal(1.0004), decimal(0.9996, 4)]).toEqual([
    "0.9996", "−0.9996", "0.999", "99.996", "1.000", "1.000", "0.9996",
  ]);
  expect([percent(0.994), percent(0.996), percent(0.9985), percent(0.9999999), percent(1)]).toEqual(["99 %", "99.6 %", "99.9 %", "> 99.9 %", "100 %"]);
  expect([percent(0), percent(0.0001), percent(0.973), percent(0.01), percent(1), percent(0.9999)]).toEqual([
    "0 %", "< 0.1 %", "97 %", "1.0 %", "100 %", "> 99.9 %",
  ]);
});

test("of weights over many positions, what lies above an even share stands out, and differences are seen", () => {
  const weights = new Float32Array(300).fill(0.9 / 298);
  [weights[10], weights[20]] = [0.06, 0.04];
  const tints = lifted(weights);
  expect(tints[10]).toBeCloseTo(1);
  expect(tints[20]).toBeGreaterThan(0.5);
  expect(tints[20]).toBeLessThan(0.75);
  expect(tints[0]).toBe(0);
  expect(Math.max(...lifted(new Float32Array(300).fill(1 / 300)))).toBeLessThan(0.01);
  expect(lifted(new Float32Array(3))).toEqual(new Float32Array(3));
});

test("what stands side by side has one scale", () => {
  const [sharp, spread] = [gridOf([[0.9, 0.1]]), gridOf([[0.2, 0.2]])];
  expect([scaleOf(sharp, spread), scaleOf(spread, spread), scaleOf(sharp)]).toEqual(["unit", "row", "unit"]);
  // A cell that is hardly wider than a pixel is seen where it is the darkest of its row alone.
  expect([200, 201].map((columns) => scaleOf(gridOf([Array.from({ length: columns }, (_, at) => (at ? 0 : 0.5))])))).toEqual(["unit", "row"]);
});

test("rows of many positions differ by what lies above an even share, not by their size", () => {
  const [low, high] = [0.003, 0.0045];
  const rows = gridOf([Array.from({ length: 300 }, (_, place) => (place % 2 ? high : low)), new Array<number>(300).fill(0)]);
  expect(byRow(rows).values[0]).toBeGreaterThan(0.6);
  expect([...byRow(rows, true).values.subarray(0, 2)]).toEqual([0, 1]);
  expect(Math.max(...byRow(rows, true).values.subarray(300))).toBe(0);
});
