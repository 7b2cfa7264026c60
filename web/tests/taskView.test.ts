import { expect, test } from "vitest";
import { registerTaskViews, positionMarks, metricName, pageView, sourcePosition, taskViewOf } from "../src/data/taskView";
import type { PageContents, PageExample } from "../src/data/contents";
import { logSeries } from "../src/drawing/plot";
import { describeResult, explainError } from "../src/selection/exampleRows";
import { example as makeExample, trace, VIEWS } from "./fixtures";

registerTaskViews(VIEWS);

const predictedExample = (task: "tag" | "classify" | "point", source: string, target: string[], expected: string[]): PageExample => ({
  ...makeExample(source, target.join(""), expected.join(""), target.map((symbol, step) => ({ kind: symbol === expected[step] ? "same" : "substitution", step, expected: expected[step]! }))),
  traces: [{ ...trace("x".repeat(target.length), source), task, target, top: target.map((symbol) => [[symbol, -0.1], ["2", -3]] as [string, number][]) }],
});

test("errors are described with the nouns of the task", () => {
  const tags = predictedExample("tag", "abc", ["V", "C", "C"], ["V", "V", "C"]);
  expect(describeResult(tags, ["V"])).toBe("Wrong: 1 of 3 tags: position 2, “b”: “C” instead of “V”.");
  expect(describeResult(predictedExample("classify", "abc", ["yes"], ["no"]), ["yes"])).toBe("Wrong: “yes” instead of “no”.");
  const index = predictedExample("point", "abc", ["3"], ["2"]);
  expect(describeResult(index, ["3"])).toBe("Wrong: position 3, “c” instead of position 2, “b”.");
  expect(explainError(index, index.traces[0]!).join(" ")).toMatch(/^Prediction: “3” with p = .*The expected symbol “2” has p = [^.]*.*rank 2\.$/);
});

test("a predicted position maps to a source index or null", () => {
  const index = predictedExample("point", "abc", ["3"], ["2"]);
  expect([...positionMarks(index.traces[0]!, { ...index, references: ["2"] })]).toEqual([[1, "expected"], [2, "predicted"]]);
  expect([...positionMarks(index.traces[0]!, { ...index, references: ["3"] })]).toEqual([[2, "correct"]]);
  expect(["1", "4", "0", "x", null].map((text) => sourcePosition(index.traces[0]!, text))).toEqual([0, null, null, null, null]);
});

test("metrics have the names of the task", () => {
  const log = [{ event: "validated", samples: 1, exact_match: 5, symbol_accuracy: 6, symbol_error_rate: 7, loss: 1, best: true }];
  expect(logSeries(log, VIEWS.tag!).metrics.map((each) => each.name)).toEqual(["sequence accuracy", "tag accuracy"]);
  expect(logSeries(log, VIEWS.point!).metrics.map((each) => each.name)).toEqual(["accuracy"]);
  expect(logSeries(log, VIEWS.transduce!).metrics).toHaveLength(3);
  expect(metricName(VIEWS.classify!, "training_loss")).toBe("training loss");
});

test("a page without a model card has the view of its trace", () => {
  const examples = [predictedExample("tag", "a", ["V"], ["V"])];
  expect(pageView({ tasks: VIEWS, card: null, examples } as unknown as PageContents)).toBe(VIEWS.tag);
  expect(pageView({ tasks: {}, card: null, examples: [] } as unknown as PageContents).autoregressive).toBe(true);
});

test("an unknown task is shown by the view in the contents", () => {
  const view = { ...VIEWS.classify!, texts: false, symbol: "end", symbols: "ends", output: "span", scores: { exact_match: "spans right" } };
  registerTaskViews({ ...VIEWS, span: view });
  const first = predictedExample("tag", "abc", ["1", "2"], ["1", "3"]);
  const span: PageExample = { ...first, references: ["1-3"], traces: [{ ...first.traces[0]!, task: "span", output: "1-2" }] };
  expect(taskViewOf(span.traces[0])).toBe(view);
  expect(describeResult(span, ["1", "2"])).toBe("Wrong: “1-2” instead of “1-3”.");
  expect(metricName(view, "exact_match")).toBe("spans right");
  registerTaskViews(VIEWS);
});
