/** How outputs of each task are shown, as the contents tell it: nothing of the page asks which task it is. */
import type { PageContents, PageExample, TaskView, Trace } from "./contents";

/** Before anything is known. */
const UNKNOWN: TaskView = { autoregressive: true, per_position: false, points: false, texts: false, symbol: "symbol", symbols: "symbols", output: "output", scores: {} };
let known: Record<string, TaskView> = {};

/** To be called with the contents' own, before any of them is drawn. */
export function registerTaskViews(tasks: Record<string, TaskView>): void {
  known = tasks;
}

export const taskViewOf = (trace: Trace | undefined): TaskView => (trace && known[trace.task]) ?? UNKNOWN;

/** Of a page; one trace alone has no card. */
export const pageView = ({ tasks, card, examples }: PageContents): TaskView => tasks[card?.task ?? examples[0]?.traces[0]?.task ?? ""] ?? UNKNOWN;

/** The place in the source that an answered or expected position names; null where it names none. */
export function sourcePosition(trace: Trace, position: string | null | undefined): number | null {
  const place = Number(position) - 1 + trace.features;
  return /^[1-9][0-9]*$/.test(position ?? "") && place < trace.source.length ? place : null;
}

/** Where a pointing model pointed ("answer"), where it should have ("expected"), or both ("right"). */
export function positionMarks(trace: Trace, example: PageExample): ReadonlyMap<number, "answer" | "expected" | "right"> {
  const marks = new Map<number, "answer" | "expected" | "right">();
  if (!taskViewOf(trace).points) return marks;
  for (const reference of example.references) {
    const place = sourcePosition(trace, reference);
    if (place !== null) marks.set(place, "expected");
  }
  const answer = sourcePosition(trace, trace.target[0]);
  if (answer !== null) marks.set(answer, marks.has(answer) ? "right" : "answer");
  return marks;
}

/** What a score of the log is called; null: it says nothing there. */
export function metricName({ scores }: TaskView, name: string): string | null {
  const told = scores[name];
  return told === undefined ? name.replaceAll("_", " ") : told;
}
