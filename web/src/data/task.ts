/** What a model's answers are. Only "transduce" writes them symbol by symbol: it alone has beams, prefixes and states. */
import type { Contents, Item, Trace } from "./contents";

export type Task = Trace["task"];

/** Of a page; one trace alone has no card. */
export function taskOf(contents: Contents): Task {
  return contents.card?.task ?? contents.items[0]?.traces[0]?.task ?? "transduce";
}

/** The place in the source that an answered or wanted position names; null where it names none. */
export function placeOf(trace: Trace, position: string | null | undefined): number | null {
  const place = Number(position) - 1 + trace.features;
  return /^[1-9][0-9]*$/.test(position ?? "") && place < trace.source.length ? place : null;
}

/** Where a pointing model pointed ("answer"), where it should have ("wanted"), or both ("right"). */
export function marked(trace: Trace, item: Item): ReadonlyMap<number, "answer" | "wanted" | "right"> {
  const marks = new Map<number, "answer" | "wanted" | "right">();
  if (trace.task !== "point") return marks;
  for (const reference of item.references) {
    const place = placeOf(trace, reference);
    if (place !== null) marks.set(place, "wanted");
  }
  const answer = placeOf(trace, trace.target[0]);
  if (answer !== null) marks.set(answer, marks.has(answer) ? "right" : "answer");
  return marks;
}

/** What metrics of the log are called for such answers; null: it says nothing there. */
export function metricName(task: Task, name: string): string | null {
  const plain = name.replaceAll("_", " ");
  if (task === "transduce" || name.endsWith("loss")) return plain;
  if (name === "symbol_error_rate") return null;
  if (task === "tag") return { exact_match: "whole sequences right", symbol_accuracy: "accuracy of tags", span_f1: "span F1" }[name] ?? plain;
  return name === "exact_match" ? "accuracy" : name === "symbol_accuracy" ? null : plain;
}
