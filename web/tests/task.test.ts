import { expect, test } from "vitest";
import { learn, marked, metricName, pageView, placeOf, viewOf } from "../src/data/task";
import type { Contents, Item } from "../src/data/contents";
import { series } from "../src/drawing/curves";
import { verdict, why } from "../src/selection/browse";
import { item as made, trace, VIEWS } from "./made";

learn(VIEWS);

const answered = (task: "tag" | "classify" | "point", source: string, target: string[], wanted: string[]): Item => ({
  ...made(source, target.join(""), wanted.join(""), target.map((symbol, written) => ({ kind: symbol === wanted[written] ? "same" : "substitution", written, wanted: wanted[written]! }))),
  traces: [{ ...trace("x".repeat(target.length), source), task, target, top: target.map((symbol) => [[symbol, -0.1], ["2", -3]] as [string, number][]) }],
});

test("what is wrong is said in the words of the task", () => {
  const tags = answered("tag", "abc", ["V", "C", "C"], ["V", "V", "C"]);
  expect(verdict(tags, ["V"])).toBe("Wrong: 1 of 3 tags: position 2, “b”, got “C” where “V” was expected.");
  expect(verdict(answered("classify", "abc", ["yes"], ["no"]), ["yes"])).toBe("Wrong: it answered “yes” where “no” was expected.");
  const place = answered("point", "abc", ["3"], ["2"]);
  expect(verdict(place, ["3"])).toBe("Wrong: it pointed at position 3, “c”; position 2, “b”, was expected.");
  expect(why(place, place.traces[0]!).join(" ")).toMatch(/^It answered “3” with p = .*“2”, which was expected, had p = [^.]*.*place 2\.$/);
});

test("a position names a place of the source, or none", () => {
  const place = answered("point", "abc", ["3"], ["2"]);
  expect([...marked(place.traces[0]!, { ...place, references: ["2"] })]).toEqual([[1, "wanted"], [2, "answer"]]);
  expect([...marked(place.traces[0]!, { ...place, references: ["3"] })]).toEqual([[2, "right"]]);
  expect(["1", "4", "0", "x", null].map((text) => placeOf(place.traces[0]!, text))).toEqual([0, null, null, null, null]);
});

test("scores have the names that fit the answers", () => {
  const log = [{ event: "validated", samples: 1, exact_match: 5, symbol_accuracy: 6, symbol_error_rate: 7, loss: 1, best: true }];
  expect(series(log, VIEWS.tag!).metrics.map((each) => each.name)).toEqual(["sequence accuracy", "tag accuracy"]);
  expect(series(log, VIEWS.point!).metrics.map((each) => each.name)).toEqual(["accuracy"]);
  expect(series(log, VIEWS.transduce!).metrics).toHaveLength(3);
  expect(metricName(VIEWS.classify!, "training_loss")).toBe("training loss");
});

test("a page without a card is shown as the task of its trace", () => {
  const items = [answered("tag", "a", ["V"], ["V"])];
  expect(pageView({ tasks: VIEWS, card: null, items } as unknown as Contents)).toBe(VIEWS.tag);
  expect(pageView({ tasks: {}, card: null, items: [] } as unknown as Contents).autoregressive).toBe(true);
});

test("a task that the page was never written for is shown by what its contents tell", () => {
  const view = { ...VIEWS.classify!, texts: false, symbol: "end", symbols: "ends", output: "span", scores: { exact_match: "spans right" } };
  learn({ ...VIEWS, span: view });
  const first = answered("tag", "abc", ["1", "2"], ["1", "3"]);
  const span: Item = { ...first, references: ["1-3"], traces: [{ ...first.traces[0]!, task: "span", output: "1-2" }] };
  expect(viewOf(span.traces[0])).toBe(view);
  expect(verdict(span, ["1", "2"])).toBe("Wrong: it answered “1-2” where “1-3” was expected.");
  expect(metricName(view, "exact_match")).toBe("spans right");
  learn(VIEWS);
});
