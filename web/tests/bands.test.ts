import { expect, test } from "vitest";
import { nonOverlapping, bandLayout, pictureWidth } from "../src/links/bands";

const letters = (count: number): string[] => Array.from({ length: count }, () => "a");

test("a short row is centered, its cells of bounded width", () => {
  const short = bandLayout(letters(4), 1000);
  expect(short.width(0)).toBe(76);
  expect(short.middle(1) + short.middle(2)).toBeCloseTo(1000);
  expect(short.interval).toBe(1);
});

test("a picture scrolls up to a width, then shrinks and omits labels", () => {
  expect(pictureWidth([letters(50)], 1000)).toBe(1000);
  expect(pictureWidth([letters(100)], 1000)).toBe(1000);
  expect(bandLayout(letters(100), 1000).fontSize).toBeLessThan(15);
  expect(pictureWidth([letters(140)], 1000)).toBeGreaterThan(1000);
  expect(pictureWidth([letters(1000)], 1000)).toBe(1000);
  const long = bandLayout(letters(1000), 1000);
  expect(long.width(3)).toBeCloseTo(1);
  expect(long.interval).toBe(50);
  expect(bandLayout([], 100).edges).toEqual([50]);
});

test("overlapping numbers are omitted, the largest first kept", () => {
  const selected = nonOverlapping([{ index: 5, value: 0.6 }, { index: 6, value: 0.3 }, { index: 9, value: 0.1 }], (index) => index * 10, 25);
  expect([...selected]).toEqual([5, 9]);
});
