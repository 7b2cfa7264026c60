import { expect, test } from "vitest";
import { cellAtPoint, heatMapLayout } from "../src/matrix/heatMapLayout";

const letters = (count: number): string[] => Array.from({ length: count }, () => "a");
const all = (count: number) => ({ from: 0, to: count });

test("small maps have large square cells with every label", () => {
  const small = heatMapLayout(letters(8), letters(6), all(8), all(6), 900);
  expect(small.cell).toEqual({ width: 30, height: 30 });
  expect(small.interval).toEqual({ columns: 1, rows: 1 });
  expect(small.rotated).toBe(false);
});

test("large maps fit the page and omit labels", () => {
  const large = heatMapLayout(letters(1000), letters(300), all(1000), all(300), 900);
  expect(large.left + large.width).toBeLessThanOrEqual(900);
  expect(large.height).toBeLessThanOrEqual(561);
  expect(large.interval.columns).toBeGreaterThan(5);
});

test("the last position number fits beside the cells", () => {
  for (const [count, availableWidth] of [[1000, 900], [1000, 390], [200, 390], [10000, 900]] as const)
    for (const symbol of ["a", "ZWJ"]) {
      const of = heatMapLayout(letters(count).map(() => symbol), letters(30), all(count), all(30), availableWidth);
      expect(of.rotated).toBe(false);
      expect(of.right + of.cell.width / 2).toBeGreaterThan(3.5 * `${count}`.length);
      expect(of.left + of.width + of.right).toBeLessThanOrEqual(availableWidth);
    }
});

test("row labels have room for repetition numbers of two digits", () => {
  const left = (count: number): number => heatMapLayout(letters(8), Array.from({ length: count }, () => "wide"), all(8), all(count), 900).left;
  expect(left(12)).toBeGreaterThanOrEqual(9 + 4 * 0.6 * 14 + 2 * 5);
  expect([left(9) - left(1), left(12) - left(9)]).toEqual([5, 5]);
});

test("long words are rotated", () => {
  expect(heatMapLayout(["somewhere", "over"], ["the"], all(2), all(1), 900).rotated).toBe(true);
});

test("cellAtPoint returns the cell in the zoomed window", () => {
  const of = heatMapLayout(letters(8), letters(6), { from: 2, to: 8 }, all(6), 900);
  expect(cellAtPoint(of, of.left + 31, of.top + 61, { from: 2, to: 8 }, all(6))).toEqual([2, 3]);
  expect(cellAtPoint(of, of.left - 1, of.top + 1, { from: 2, to: 8 }, all(6))).toEqual([0, null]);
});
