import { expect, test } from "vitest";
import { gridFromRows } from "../src/data/arrays";
import { describeOrigin, describeCell } from "../src/parts/readout";

const read = { weights: gridFromRows([[0.9, 0.1], [0, 0]]), source: ["a", " "], target: ["x", "y"], quantity: "weight", isPercent: true };
const plain = (text: string): string => text.replaceAll(/[\u2068\u2069]/g, "");

test("describes a cell, a step, a position and an empty selection", () => {
  expect(plain(describeCell(read, 0, 1))).toBe("Step 1, x; weight on position 2, space: 0.1000.");
  expect(plain(describeCell(read, 0, null))).toBe("Step 1, x; weight on a (1) 90 %, space (2) 10 %.");
  expect(plain(describeCell(read, 1, null))).toBe("Step 2, y; no attention.");
  expect(plain(describeCell(read, null, 0))).toBe("Position 1, a: maximum weight at x (1) 90 %.");
  expect(plain(describeCell({ ...read, unknown: new Set([0]) }, null, 0))).toBe("Position 1, a, not in the vocabulary: maximum weight at x (1) 90 %.");
  const differences = { ...read, weights: gridFromRows([[-0.31, 0.1], [0.2, 0]]), quantity: "weight difference", isPercent: false };
  expect(plain(describeCell(differences, null, 0))).toBe("Position 1, a: greatest weight difference at x (1) −0.310, y (2) 0.200.");
  expect(describeCell(read, null, null)).toBe("");
  expect(describeCell(read, 9, 9)).toBe("");
  const uniform = { ...read, weights: gridFromRows([new Array<number>(300).fill(1 / 300)]), source: new Array<string>(300).fill("a") };
  expect(plain(describeCell(uniform, 0, null))).toBe("Step 1, x; weight on a (1) 0.3 %.");
});

test("describes the origin of a weight: softmax, rank and score differences", () => {
  const description = plain(describeOrigin(read, 0, 1));
  expect(description).toContain("= 0.100, rank 2 of 2; entropy of the row: 0.47 bits");
  expect(description).toContain("relative to the maximum, a (1), that is ln 0.100 − ln 0.900 = −2.20.");
  expect(plain(describeOrigin(read, 0, 0))).not.toContain("relative to the maximum");
  expect(describeOrigin(read, 1, 0)).toBe("");
});
