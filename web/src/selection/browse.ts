// The list of examples: a row of numbers for each, which to show, and in what order. Pure: no page, no model.

import { numbers } from "../data/blocks";
import type { Confusion, Edit, Item, TaskView, Trace } from "../data/contents";
import { between, due, END } from "../data/steps";
import { placeOf, viewOf } from "../data/task";
import { greatest } from "../drawing/layout";
import { percent, probability } from "../drawing/scales";
import { cited, shown, shownText } from "../drawing/symbols";

export type Order = "file" | "loss" | "entropy" | "errors" | "coverage" | "length";

/** Orders that say nothing of answers that are not written symbol by symbol: those of tags, and of one answer alone. */
export const idleOrders = ({ autoregressive, per_position }: TaskView): Order[] => (autoregressive ? [] : per_position ? ["coverage"] : ["coverage", "errors"]);

export const ORDERS: [Order, string][] = [
  ["file", "file order"],
  ["loss", "loss (−ln p per symbol)"],
  ["entropy", "mean entropy"],
  ["errors", "edit distance"],
  ["coverage", "coverage deviation"],
  ["length", "length of the source"],
];

/** What the list knows of an example. */
export interface Row {
  place: number;
  item: Item;
  loss: number;
  entropy: number;
  errors: number;
  coverage: number;
  length: number;
  /** Bits at each step, for the sparkline. */
  bits: Float32Array;
}

export interface Filter {
  /** A regular expression; it looks at source, outputs and references. */
  pattern: string;
  verdict: "all" | "right" | "wrong";
  least: number;
  most: number;
  /** Only these places, with the words that say why; set by a click in another view. */
  only: { places: number[]; why: string } | null;
}

export const EVERYTHING: Filter = { pattern: "", verdict: "all", least: 0, most: Infinity, only: null };

/** −CDP, the mean of ln(1 + |1 − Σ|⁶) over the source's columns Σ: how far each position is from being looked at once (Rikters et al. 2017). */
export function coverageDeviation(weights: Float32Array, sources: number): number {
  if (sources === 0) return 0;
  const sums = new Float64Array(sources);
  for (let index = 0; index < weights.length; index++) sums[index % sources]! += weights[index]!;
  return sums.reduce((total, sum) => total + Math.log1p((1 - sum) ** 6), 0) / sources;
}

export function mean(values: Float32Array): number {
  return values.length === 0 ? 0 : values.reduce((total, value) => total + value, 0) / values.length;
}

/** Mean −ln p of a trace's symbols. */
export function loss(trace: Trace): number {
  return trace.target.length === 0 ? 0 : -trace.score / trace.target.length;
}

export function row(item: Item, place: number): Row {
  const trace = item.traces[0];
  const bits = trace ? numbers(trace.entropy) : new Float32Array();
  return {
    place,
    item,
    bits,
    loss: trace ? loss(trace) : 0,
    entropy: mean(bits),
    errors: item.errors ?? 0,
    coverage: trace ? coverageDeviation(numbers(trace.attention), trace.source.length) : 0,
    length: trace?.source.length ?? 0,
  };
}

/** A regular expression (case counts, Unicode), or why it is none. */
export function expression(pattern: string): RegExp | string {
  try {
    return new RegExp(pattern, "u");
  } catch (error) {
    return String((error as Error).message).replace(/^Invalid regular expression: /, "");
  }
}

/** Places of the examples to show, in order; a bad expression filters nothing. */
export function chosen(rows: Row[], filter: Filter, order: Order, descending: boolean): Row[] {
  const found = expression(filter.pattern);
  const only = filter.only && new Set(filter.only.places);
  const kept = rows.filter(
    (candidate) =>
      (!only || only.has(candidate.place)) &&
      (filter.verdict === "all" || candidate.item.exact === (filter.verdict === "right")) &&
      candidate.length >= filter.least &&
      candidate.length <= filter.most &&
      (typeof found === "string" || texts(candidate.item).some((text) => found.test(text))),
  );
  const sign = descending ? -1 : 1;
  if (order === "file") return descending ? kept.reverse() : kept;
  return kept.sort((left, right) => sign * (left[order] - right[order]) || left.place - right.place);
}

function texts(item: Item): string[] {
  return [item.text, ...(item.traces[0] ? [item.traces[0].output] : []), ...item.references];
}

/** The steps of an output that are wrong, and what was missed before which step (the output's length: at its end). */
export function wrongSteps(edits: Edit[]): { steps: number[]; missed: [number, string][] } {
  const steps: number[] = [];
  const missed: [number, string][] = [];
  let next = 0;
  for (const edit of edits) {
    if (edit.written !== null) next = edit.written + 1;
    if (edit.kind === "deletion") missed.push([next, edit.wanted ?? ""]);
    else if (edit.kind !== "same" && edit.written !== null) steps.push(edit.written);
  }
  return { steps, missed };
}

/** An output in stretches that are right or wrong, “–” where symbols are missing: as few elements as can be, for lists are scrolled fast. */
export function stretches({ edits, traces: [trace] }: Item, most = Infinity): { text: string; wrong: boolean }[] {
  if (!trace) return [];
  const named = viewOf(trace).texts ? shownText : shown;
  const { steps, missed } = wrongSteps(edits);
  const wrong = new Set(steps);
  const found: { text: string; wrong: boolean }[] = [];
  const gap = between(trace);
  const add = (text: string, wrong: boolean): void => {
    const last = found.at(-1);
    if (last) last.text += gap;
    if (last?.wrong === wrong) last.text += text;
    else found.push({ text, wrong });
  };
  [...trace.target, END].slice(0, most).forEach((symbol, step) => {
    if (trace.output) for (const [at] of missed) if (at === step) add("–", true);
    if (symbol !== END) add(named(symbol), wrong.has(step));
  });
  return found;
}

/** The alignment in words: what a person who has read nothing must see first. */
export function verdict(item: Item, target: string[]): string {
  if (item.exact === null) return "There is no reference.";
  if (item.exact) return "Correct: the output equals a reference.";
  const trace = item.traces[0];
  if (trace && !viewOf(trace).autoregressive) return answered(item, trace);
  const wrong = [...item.edits.entries()].filter(([, edit]) => edit.kind !== "same");
  const words = wrong.slice(0, 3).map(([index, edit]) => {
    const wanted = due(item.edits, index);
    const named = wanted === END ? "the end" : cited(wanted);
    if (edit.written === null) {
      const next = item.edits.slice(index).find((each) => each.written !== null)?.written;
      return `${named} is missing ${next == null ? "at the end" : `before step ${next + 1}`}`;
    }
    const own = cited(target[edit.written] ?? "");
    return `step ${edit.written + 1} wrote ${edit.kind === "insertion" ? `an extra ${own} before ${named}` : `${own} where ${named} was expected`}`;
  });
  if (words.length === 0) return "Wrong.";
  return `Wrong: ${words.join("; ")}${wrong.length > 3 ? `; and ${wrong.length - 3} more` : ""}.`;
}

/** The same of tags, of a class, of a position. */
function answered(item: Item, trace: Trace): string {
  const wrong = item.edits.filter((edit) => edit.kind !== "same");
  const wanted = (edit: Edit): string => cited(edit.wanted ?? "");
  const place = (position: string | null | undefined): string => `position ${position}, ${symbolAt(trace, placeOf(trace, position))}`;
  const [first] = wrong;
  if (!first) return "Wrong.";
  const { per_position, points, symbols } = viewOf(trace);
  if (points) return `Wrong: it pointed at ${place(trace.target[0])}; ${place(first.wanted)}, was expected.`;
  if (!per_position) {
    const [was, should] = trace.target.length === 1 ? [trace.target[0], first.wanted] : [trace.output, item.references[0]];
    return `Wrong: it answered “${shownText(was ?? "")}” where “${shownText(should ?? "")}” was expected.`;
  }
  const words = wrong.slice(0, 3).map((edit) => {
    const step = edit.written ?? 0;
    return `position ${step + 1}, ${symbolAt(trace, step + trace.features)}, got ${cited(trace.target[step] ?? "")} where ${wanted(edit)} was expected`;
  });
  return `Wrong: ${wrong.length} of ${trace.target.length} ${symbols}: ${words.join("; ")}${wrong.length > 3 ? `; and ${wrong.length - 3} more` : ""}.`;
}

/** A kind of error as one word, in the address too. */
export const keyOf = (wanted: string | null, written: string | null): string => [wanted, written].map((symbol) => (symbol === null ? "" : `=${symbol}`)).join("\t");

/** One kind of error and how often it was made. */
export function mistake({ written, wanted, times }: Confusion, view: TaskView): string {
  const name = (symbol: string | null): string => (symbol === null ? "nothing" : `“${(view.texts ? shownText : shown)(symbol)}”`);
  return `${name(written)} for ${name(wanted)}: ${times}`;
}

/** The same, of how many places that wanted the symbol (nothing is expected at no place), and how many of them can be opened. */
export const among = (each: Confusion, items: readonly Item[], view: TaskView): string =>
  mistake(each, view) + (each.wanted === null ? "" : ` of ${each.of}`) + opened(each, items);

const makes = (each: Confusion, { wanted, written }: Edit, trace: Trace | undefined): boolean =>
  each.wanted === wanted && each.written === (written === null ? null : trace?.target[written]);

/** How many of the errors of a kind are in the examples that it opens, for the page may hold a part of the file, and in how many examples; "" where it opens one for each. */
export function opened(each: Confusion, items: readonly Item[]): string {
  const times = each.examples.reduce((sum, place) => {
    const item = items[place];
    return sum + (item?.edits.filter((edit) => edit.kind !== "same" && makes(each, edit, item.traces[0])).length ?? 0);
  }, 0);
  const places = each.examples.length;
  return (times < each.times ? `, ${times || "none"} of them shown here` : "") + (places < times ? `, in ${places} example${places > 1 ? "s" : ""}` : "");
}

/** The kinds of the first errors of an output, those that were made more than once in all of the file. */
export function repeated(item: Item, trace: Trace, all: readonly Confusion[]): Confusion[] {
  const found = item.edits.flatMap((edit) =>
    edit.kind === "same" ? [] : all.filter((each) => makes(each, edit, trace) && each.times > 1 && each.examples.length > 0),
  );
  return [...new Set(found)].slice(0, 3);
}

function symbolAt(trace: Trace, place: number | null): string {
  return place === null ? "beyond the source" : cited(trace.source[place] ?? "");
}

/** Why the first wrong step was wrong, as far as the model's own numbers tell: where it looked, and what else it thought of. */
export function why(item: Item, trace: Trace): string[] {
  const edit = item.edits.find((each) => each.kind !== "same");
  if (!edit) return [];
  const view = viewOf(trace);
  const place = item.edits.indexOf(edit);
  // Something missing is seen at the step that wrote what comes after it.
  const step = edit.written ?? item.edits.slice(place).find((each) => each.written !== null)?.written ?? trace.target.length - 1;
  const written = trace.target[step];
  const weights = numbers(trace.attention).subarray(step * trace.source.length, (step + 1) * trace.source.length);
  if (written === undefined || (weights.length === 0 && !view.per_position)) return [];
  const p = (ln: number) => probability(Math.exp(ln));
  const subject = view.autoregressive ? `Step ${step + 1} wrote` : view.per_position ? `Position ${step + 1} got` : "It answered";
  const named = view.texts ? shownText : shown;
  const said = [`${subject} “${named(written)}” with p = ${p(numbers(trace.log_probabilities)[step] ?? 0)}.`];
  // Of a symbol too many, the next one was expected, or the end.
  const right = due(item.edits, place);
  const rank = (trace.top[step] ?? []).findIndex(([symbol]) => symbol === right);
  if (right !== END || view.autoregressive) {
    const wanted = `“${named(right)}”, which was expected,`;
    said.push(rank < 0 ? `${wanted} was not among its ${trace.top[step]?.length ?? 0} most probable.` : `${wanted} had p = ${p(trace.top[step]![rank]![1])}, place ${rank + 1}.`);
  }
  const unseen = trace.unknown.map((at) => `${cited(trace.source[at] ?? "")} (position ${at + 1})`);
  if (unseen.length > 0) said.push(`The model never saw ${unseen.slice(0, 5).join(", ")}${unseen.length > 5 ? ", …" : ""} in training.`);
  const peak = weights.indexOf(Math.max(...weights));
  // Of a position the weights are the answer; tags have none.
  if (view.points) return said;
  if (weights[peak]! > 0) said.push(looked(trace, weights, peak));
  const [from, to] = item.gold?.[step] ?? [0, 0];
  if (edit.written !== null && to > from && weights[peak]! > 0) {
    const inside = peak >= from && peak < to;
    const there = percent(weights.subarray(from, to).reduce((sum, weight) => sum + weight, 0));
    said.push(`The expected symbol comes from ${to - from > 1 ? `positions ${from + 1}–${to}` : `position ${to}`}, which got ${there} of the weight: it attended to the ${inside ? "right" : "wrong"} positions.`);
  }
  return said;
}

/** Where a step looked most; what is little more than an even share is called spread out, for there the place tells little. */
function looked(trace: Trace, weights: Float32Array, at: number): string {
  const weight = weights[at]!;
  const times = weight * trace.source.length;
  const place = `position ${at + 1}, ${cited(trace.source[at]!)}`;
  if (weight >= 0.2 || trace.source.length === 1) return `It attended most to ${place} (${percent(weight)}).`;
  // Some places that share the weight are no haze.
  const several = greatest(weights, 6).filter(({ value }) => value > weight / 2);
  if (times >= 10 && several.reduce((sum, { value }) => sum + value, 0) > 0.5)
    return `It attended to several positions: ${several.map(({ place, value }) => `position ${place + 1}, ${cited(trace.source[place]!)} (${percent(value)})`).join("; ")}.`;
  const much = times < 2 ? "hardly more than" : `${times.toFixed(times < 10 ? 1 : 0)} times`;
  return `Its attention was spread out: at most ${percent(weight)}, on ${place}, ${much} a uniform share.`;
}
