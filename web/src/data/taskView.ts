/** Display of task outputs, as the contents define it; the page does not depend on task names. */
import type { PageContents, PageExample, TaskView, Trace } from "./contents";

/** View before the contents are loaded. */
const UNKNOWN: TaskView = { autoregressive: true, per_position: false, points: false, texts: false, symbol: "symbol", symbols: "symbols", output: "output", scores: {} };
let registeredViews: Record<string, TaskView> = {};

/** Registers the task views of the contents, before anything is drawn. */
export function registerTaskViews(tasks: Record<string, TaskView>): void {
  registeredViews = tasks;
}

export const taskViewOf = (trace: Trace | undefined): TaskView => (trace && registeredViews[trace.task]) ?? UNKNOWN;

/** View of a page; a single trace has no model card. */
export const pageView = ({ tasks, card, examples }: PageContents): TaskView => tasks[card?.task ?? examples[0]?.traces[0]?.task ?? ""] ?? UNKNOWN;

/** Source index of a predicted or expected position; null if it is invalid. */
export function sourcePosition(trace: Trace, position: string | null | undefined): number | null {
  const index = Number(position) - 1 + trace.num_features;
  return /^[1-9][0-9]*$/.test(position ?? "") && index < trace.source.length ? index : null;
}

/** Predicted position ("predicted"), expected position ("expected"), or both ("correct"). */
export function positionMarks(trace: Trace, example: PageExample): ReadonlyMap<number, "predicted" | "expected" | "correct"> {
  const marks = new Map<number, "predicted" | "expected" | "correct">();
  if (!taskViewOf(trace).points) return marks;
  for (const reference of example.references) {
    const index = sourcePosition(trace, reference);
    if (index !== null) marks.set(index, "expected");
  }
  const predicted = sourcePosition(trace, trace.target[0]);
  if (predicted !== null) marks.set(predicted, marks.has(predicted) ? "correct" : "predicted");
  return marks;
}

/** Name of a metric of the log; null if it does not apply. */
export function metricName({ scores }: TaskView, name: string): string | null {
  const metric = scores[name];
  return metric === undefined ? name.replaceAll("_", " ") : metric;
}
