import { expect, test } from "vitest";
import { block, gridOf } from "../src/data/blocks";
import type { Edit, Trace } from "../src/data/contents";
import { between, steps, worst } from "../src/data/steps";

const row = (values: number[]) => ({ ...block(gridOf([values])), shape: [values.length] });
const trace = {
  source: ["a"], target: ["x", "y", "⟨end⟩"], log_probabilities: row([Math.log(0.9), Math.log(0.4), 0]), entropy: row([0.5, 1.2, 0]),
  top: [[["x", Math.log(0.9)]], [["y", Math.log(0.4)], ["z", Math.log(0.3)]], [["⟨end⟩", 0]]], forced: [0], painted: [1],
} as unknown as Trace;
const edits: Edit[] = [
  { kind: "same", written: 0, wanted: "x" },
  { kind: "deletion", written: null, wanted: "q" },
  { kind: "substitution", written: 1, wanted: "z" },
  { kind: "deletion", written: null, wanted: "w" },
];

test("each step knows what was expected, what is missing, and what was given", () => {
  const [first, second, end] = steps(trace, edits);
  expect(first).toMatchObject({ kind: "same", missing: [], forced: true, painted: false });
  expect(second).toMatchObject({ kind: "substitution", wanted: "z", missing: ["q"], painted: true });
  expect(second?.choices.map(({ symbol, gold }) => [symbol, gold])).toEqual([["y", false], ["z", true]]);
  expect(end).toMatchObject({ kind: "unknown", missing: ["w"] });
  expect(second?.probability).toBeCloseTo(0.4);
});

test("the worst step is the first wrong one, or the least sure", () => {
  expect(worst(steps(trace, edits))).toBe(1);
  expect(worst(steps(trace, []))).toBe(1);
  expect(worst([])).toBe(0);
});

test("of a symbol too many, what was expected in its place is known", () => {
  const extra: Edit[] = [{ kind: "same", written: 0, wanted: "x" }, { kind: "insertion", written: 1, wanted: null }];
  const [, second, end] = steps(trace, extra);
  expect(second).toMatchObject({ kind: "insertion", wanted: "⟨end⟩" });
  expect(end?.choices).toMatchObject([{ symbol: "⟨end⟩", gold: true }]);
  expect(steps(trace, [])[2]?.choices).toMatchObject([{ gold: false }]);
});

test("outputs of words stand apart, others as they are written", () => {
  const of = (target: string[], output: string) => between({ ...trace, target, output });
  expect(of(["yo", "lo", "quiero", "⟨end⟩"], "yo lo quiero")).toBe(" ");
  expect(of(["y", "o", "⟨end⟩"], "yo")).toBe("");
  expect(of(["y", " ", "o"], "y o")).toBe("");
  expect(of(["yo", "⟨end⟩"], "yo")).toBe("");
});
