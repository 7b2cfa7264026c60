import { expect, test } from "vitest";
import { encodeGrid, gridFromRows } from "../src/data/arrays";
import type { EditOperation, Trace } from "../src/data/contents";
import { symbolSeparator, outputSteps, leastCertainStep } from "../src/data/steps";

const row = (values: number[]) => ({ ...encodeGrid(gridFromRows([values])), shape: [values.length] });
const trace = {
  source: ["a"], target: ["x", "y", "⟨end⟩"], log_probabilities: row([Math.log(0.9), Math.log(0.4), 0]), entropy: row([0.5, 1.2, 0]),
  top: [[["x", Math.log(0.9)]], [["y", Math.log(0.4)], ["z", Math.log(0.3)]], [["⟨end⟩", 0]]], forced: [0], forced_attention: [1],
} as unknown as Trace;
const edits: EditOperation[] = [
  { kind: "same", step: 0, expected: "x" },
  { kind: "deletion", step: null, expected: "q" },
  { kind: "substitution", step: 1, expected: "z" },
  { kind: "deletion", step: null, expected: "w" },
];

test("each step has its expected, missing and forced symbols", () => {
  const [first, second, end] = outputSteps(trace, edits);
  expect(first).toMatchObject({ kind: "same", missing: [], forced: true, attentionForced: false });
  expect(second).toMatchObject({ kind: "substitution", expected: "z", missing: ["q"], attentionForced: true });
  expect(second?.candidates.map(({ symbol, isExpected }) => [symbol, isExpected])).toEqual([["y", false], ["z", true]]);
  expect(end).toMatchObject({ kind: "unknown", missing: ["w"] });
  expect(second?.probability).toBeCloseTo(0.4);
});

test("the selected step is the first wrong or the least probable", () => {
  expect(leastCertainStep(outputSteps(trace, edits))).toBe(1);
  expect(leastCertainStep(outputSteps(trace, []))).toBe(1);
  expect(leastCertainStep([])).toBe(0);
});

test("an insertion has the next expected symbol", () => {
  const extra: EditOperation[] = [{ kind: "same", step: 0, expected: "x" }, { kind: "insertion", step: 1, expected: null }];
  const [, second, end] = outputSteps(trace, extra);
  expect(second).toMatchObject({ kind: "insertion", expected: "⟨end⟩" });
  expect(end?.candidates).toMatchObject([{ symbol: "⟨end⟩", isExpected: true }]);
  expect(outputSteps(trace, [])[2]?.candidates).toMatchObject([{ isExpected: false }]);
});

test("only words are separated by spaces", () => {
  const of = (target: string[], output: string) => symbolSeparator({ ...trace, target, output });
  expect(of(["yo", "lo", "quiero", "⟨end⟩"], "yo lo quiero")).toBe(" ");
  expect(of(["y", "o", "⟨end⟩"], "yo")).toBe("");
  expect(of(["y", " ", "o"], "y o")).toBe("");
  expect(of(["yo", "⟨end⟩"], "yo")).toBe("");
});
