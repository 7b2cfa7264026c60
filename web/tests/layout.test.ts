import { expect, test } from "vitest";
import { gridFromRows } from "../src/data/arrays";
import { cellAt, linkCurve, cellEdges, topValues, clampRange, labelInterval, isNth, argmax, pruneLinks, distributeWidths, labelStep, zoomRange } from "../src/drawing/layout";

test("pruned links hold the requested mass with the fewest links", () => {
  const weights = gridFromRows([[0.5, 0.3, 0.15, 0.05], [0.97, 0.01, 0.01, 0.01]]);
  const { links, share } = pruneLinks(weights, 0.95);
  expect(links.map(({ step, position }) => [step, position])).toEqual([[0, 0], [0, 1], [0, 2], [1, 0]]);
  expect(share).toBeCloseTo((0.95 + 0.97) / 2);
});

test("the number of links is limited to the heaviest", () => {
  const weights = gridFromRows(Array.from({ length: 50 }, (_, step) => Array.from({ length: 50 }, (_, s) => (s === step ? 0.51 : 0.01))));
  const { links, share } = pruneLinks(weights, 1, 50);
  expect(links).toHaveLength(50);
  expect(links.every(({ step, position }) => step === position)).toBe(true);
  expect(share).toBeCloseTo(0.51);
});

test("rows without weight have no links", () => {
  expect(pruneLinks(gridFromRows([[0, 0]]), 0.95)).toEqual({ links: [], share: 0 });
});

test("cells share the width, and a coordinate maps to its cell", () => {
  expect(distributeWidths([10, 10], 100, 30)).toEqual([30, 30]);
  expect(distributeWidths([10, 30], 20, 30)).toEqual([10, 10]);
  const places = cellEdges([5, 10, 5]);
  expect(places).toEqual([0, 5, 15, 20]);
  expect([-1, 0, 4.9, 5, 19.9, 20].map((at) => cellAt(places, at))).toEqual([null, 0, 0, 1, 2, null]);
  expect(cellAt([0], 0)).toBeNull();
});

test("label intervals are round numbers", () => {
  expect([20, 9, 4, 1, 0.3].map((cell) => labelStep(cell, 16))).toEqual([1, 2, 5, 20, 100]);
  expect([10, 9.9, 4, 1].map((cell) => labelInterval(cell, 10, 16))).toEqual([1, 5, 5, 20]);
  expect([0, 1, 4, 9, 10].map((index) => [isNth(index, 1), isNth(index, 5)])).toEqual([[true, false], [true, false], [true, true], [true, true], [true, false]]);
});

test("ranges are clamped, and zooming keeps the position under the pointer", () => {
  expect(clampRange({ from: -5, to: 5 }, 20)).toEqual({ from: 0, to: 10 });
  expect(clampRange({ from: 15, to: 45 }, 20)).toEqual({ from: 0, to: 20 });
  const range = zoomRange({ from: 0, to: 1000 }, 1000, 0.5, 0.25);
  expect(range).toEqual({ from: 125, to: 625 });
  expect(zoomRange({ from: 0, to: 8 }, 1000, 0.5)).toEqual({ from: 0, to: 8 });
});

test("link curves, argmax and largest values", () => {
  expect(linkCurve(0, 0, 10, 20)).toBe("M0 0C0 10 10 10 10 20");
  expect(argmax([1, 3, 2])).toBe(1);
  expect(argmax([])).toBe(-1);
  expect(topValues([0.1, -0.5, 0, 0.3], 2)).toEqual([{ index: 1, value: -0.5 }, { index: 3, value: 0.3 }]);
});
