// Rows of the example list: scores, filters, sort orders, and descriptions of errors.

import { decodeArray } from "../data/arrays";
import type { ConfusionCount, EditOperation, PageExample, TaskView, Trace } from "../data/contents";
import { symbolSeparator, expectedSymbol, END } from "../data/steps";
import { sourcePosition, taskViewOf } from "../data/taskView";
import { topValues } from "../drawing/layout";
import { formatPercent, formatProbability } from "../drawing/scales";
import { isolate, quote, quoteSymbol, visibleSymbol, visibleText } from "../drawing/symbols";

export type SortOrder = "file" | "wrong" | "confidence" | "loss" | "entropy" | "errors" | "coverage" | "length";

/** Sort orders without meaning for outputs that are not autoregressive. */
export const inapplicableOrders = ({ autoregressive, per_position }: TaskView): SortOrder[] => (autoregressive ? [] : per_position ? ["coverage"] : ["coverage", "errors"]);

export const SORT_ORDERS: [SortOrder, string][] = [
  ["file", "file order"],
  ["wrong", "wrong first, least confident first"],
  ["confidence", "confidence, lowest first"],
  ["loss", "loss per symbol"],
  ["entropy", "mean entropy"],
  ["errors", "edit distance"],
  ["coverage", "coverage deviation"],
  ["length", "source length"],
];

/** Row of the example list. */
export interface ExampleRow {
  index: number;
  example: PageExample;
  /** Fitted confidence of the output; Infinity without one, so that such rows are last. */
  confidence: number;
  /** Order of the wrong outputs before the correct ones, each by confidence, or without one by the probability of the output. */
  wrong: number;
  loss: number;
  entropy: number;
  errors: number;
  coverage: number;
  length: number;
  /** Entropy of each step in bits, for the sparkline. */
  bits: Float32Array;
}

export interface ExampleFilter {
  /** Regular expression on source, outputs and references. */
  pattern: string;
  correctness: "all" | "correct" | "wrong";
  minimum: number;
  maximum: number;
  /** Examples selected in another view, with a description. */
  only: { indices: number[]; reason: string } | null;
}

export const NO_FILTER: ExampleFilter = { pattern: "", correctness: "all", minimum: 0, maximum: Infinity, only: null };

/** Negative coverage deviation penalty: mean of ln(1 + |1 − Σ|⁶) over the column sums Σ (Rikters et al. 2017). */
export function coverageDeviation(weights: Float32Array, sources: number): number {
  if (sources === 0) return 0;
  const sums = new Float64Array(sources);
  for (let index = 0; index < weights.length; index++) sums[index % sources]! += weights[index]!;
  return sums.reduce((total, sum) => total + Math.log1p((1 - sum) ** 6), 0) / sources;
}

export function mean(values: Float32Array): number {
  return values.length === 0 ? 0 : values.reduce((total, value) => total + value, 0) / values.length;
}

/** Mean negative log-probability of the symbols. */
export function meanLoss(trace: Trace): number {
  return trace.target.length === 0 ? 0 : -trace.score / trace.target.length;
}

export function exampleRow(example: PageExample, index: number): ExampleRow {
  const trace = example.traces[0];
  const bits = trace ? decodeArray(trace.entropy) : new Float32Array();
  return {
    index,
    example,
    bits,
    confidence: trace?.confidence ?? Infinity,
    wrong: (example.exact === false ? 0 : 2) + (trace ? (trace.confidence ?? Math.exp(trace.score)) : 0),
    loss: trace ? meanLoss(trace) : 0,
    entropy: mean(bits),
    errors: example.errors ?? 0,
    coverage: trace ? coverageDeviation(decodeArray(trace.attention), trace.source.length) : 0,
    length: trace?.source.length ?? 0,
  };
}

/** Compiles a regular expression, or returns its error. */
export function parsePattern(pattern: string): RegExp | string {
  try {
    return new RegExp(pattern, "u");
  } catch (error) {
    return String((error as Error).message).replace(/^Invalid regular expression: /, "");
  }
}

/** Filters and sorts rows; an invalid expression is ignored. */
export function filterRows(rows: ExampleRow[], filter: ExampleFilter, order: SortOrder, descending: boolean): ExampleRow[] {
  const pattern = parsePattern(filter.pattern);
  const only = filter.only && new Set(filter.only.indices);
  const selected = rows.filter(
    (candidate) =>
      (!only || only.has(candidate.index)) &&
      (filter.correctness === "all" || candidate.example.exact === (filter.correctness === "correct")) &&
      candidate.length >= filter.minimum &&
      candidate.length <= filter.maximum &&
      (typeof pattern === "string" || searchableTexts(candidate.example).some((text) => pattern.test(text))),
  );
  const sign = descending ? -1 : 1;
  if (order === "file") return descending ? selected.reverse() : selected;
  return selected.sort((left, right) => sign * compareNumbers(left[order], right[order]) || left.index - right.index);
}

/** Order of two numbers, of which both may be infinite. */
const compareNumbers = (left: number, right: number): number => (left === right ? 0 : left - right);

/** Runs that are correct on an example, and runs that are wrong: “✓ a, b · ✗ c”; “✓ all runs” or “✗ all runs” if they agree; "" without a reference. */
export function describeRuns(outcomes: readonly (readonly [name: string, exact: boolean | null | undefined])[]): string {
  const groups = [true, false].map((correct) => outcomes.filter(([, exact]) => exact === correct).map(([name]) => isolate(visibleText(name))));
  const every = outcomes.length > 2 ? "all runs" : "both runs";
  return groups.flatMap((names, wrong) => (names.length > 0 ? `${wrong ? "✗" : "✓"} ${names.length === outcomes.length ? every : names.join(", ")}` : [])).join(" · ");
}

/** Place of an example in its file: the line and, if the file has such a column, the id; "" for neither. */
export function describePlace({ line, row_id: id }: PageExample): string {
  return [line === null ? [] : `line ${line}`, id === "" ? [] : `id ${isolate(visibleText(id))}`].flat().join(", ");
}

function searchableTexts(example: PageExample): string[] {
  return [...(example.row_id ? [example.row_id] : []), example.text, ...(example.traces[0] ? [example.traces[0].output] : []), ...example.references];
}

/** Wrong steps, and missing symbols with the step that they precede. */
export function wrongSteps(edits: EditOperation[]): { steps: number[]; missed: [number, string][] } {
  const steps: number[] = [];
  const missed: [number, string][] = [];
  let next = 0;
  for (const edit of edits) {
    if (edit.step !== null) next = edit.step + 1;
    if (edit.kind === "deletion") missed.push([next, edit.expected ?? ""]);
    else if (edit.kind !== "same" && edit.step !== null) steps.push(edit.step);
  }
  return { steps, missed };
}

/** Segments of an output that are correct or wrong, “–” for missing symbols; few elements, for fast scrolling. */
export function outputSegments({ edits, traces: [trace] }: PageExample, maximum = Infinity): { text: string; wrong: boolean }[] {
  if (!trace) return [];
  const named = taskViewOf(trace).texts ? visibleText : visibleSymbol;
  const { steps, missed } = wrongSteps(edits);
  const wrong = new Set(steps);
  const runs: { text: string; wrong: boolean }[] = [];
  const gap = symbolSeparator(trace);
  const add = (text: string, wrong: boolean): void => {
    const last = runs.at(-1);
    if (last) last.text += gap;
    if (last?.wrong === wrong) last.text += text;
    else runs.push({ text, wrong });
  };
  [...trace.target, END].slice(0, maximum).forEach((symbol, step) => {
    if (trace.output) for (const [at] of missed) if (at === step) add("–", true);
    if (symbol !== END) add(named(symbol), wrong.has(step));
  });
  return runs;
}

/** Describes the errors of an output. */
export function describeResult(example: PageExample, target: string[]): string {
  if (example.exact === null) return "No reference.";
  if (example.exact) return "Correct: the output equals a reference.";
  const trace = example.traces[0];
  if (trace && !taskViewOf(trace).autoregressive) return describeLabelErrors(example, trace);
  const wrong = [...example.edits.entries()].filter(([, edit]) => edit.kind !== "same");
  const words = wrong.slice(0, 3).map(([index, edit]) => {
    const expected = expectedSymbol(example.edits, index);
    const named = expected === END ? "the end" : quoteSymbol(expected);
    if (edit.step === null) {
      const next = example.edits.slice(index).find((each) => each.step !== null)?.step;
      return `${named} is missing ${next == null ? "at the end" : `before step ${next + 1}`}`;
    }
    const outputSymbol = quoteSymbol(target[edit.step] ?? "");
    return `step ${edit.step + 1}: ${edit.kind === "insertion" ? `extra ${outputSymbol} before ${named}` : `${outputSymbol} instead of ${named}`}`;
  });
  if (words.length === 0) return "Wrong.";
  return `Wrong: ${words.join("; ")}${wrong.length > 3 ? `; and ${wrong.length - 3} more` : ""}.`;
}

/** Describes the errors of tags, a class or a position. */
function describeLabelErrors(example: PageExample, trace: Trace): string {
  const wrong = example.edits.filter((edit) => edit.kind !== "same");
  const expected = (edit: EditOperation): string => quoteSymbol(edit.expected ?? "");
  const positionText = (position: string | null | undefined): string => `position ${position}, ${symbolAt(trace, sourcePosition(trace, position))}`;
  const [first] = wrong;
  if (!first) return "Wrong.";
  const { per_position, points, symbols } = taskViewOf(trace);
  if (points) return `Wrong: ${positionText(trace.target[0])} instead of ${positionText(first.expected)}.`;
  if (!per_position) {
    const [was, should] = trace.target.length === 1 ? [trace.target[0], first.expected] : [trace.output, example.references[0]];
    return `Wrong: ${quote(visibleText(was ?? ""))} instead of ${quote(visibleText(should ?? ""))}.`;
  }
  const words = wrong.slice(0, 3).map((edit) => {
    const step = edit.step ?? 0;
    return `position ${step + 1}, ${symbolAt(trace, step + trace.num_features)}: ${quoteSymbol(trace.target[step] ?? "")} instead of ${expected(edit)}`;
  });
  return `Wrong: ${wrong.length} of ${trace.target.length} ${symbols}: ${words.join("; ")}${wrong.length > 3 ? `; and ${wrong.length - 3} more` : ""}.`;
}

/** Key of a confusion in the address. */
export const confusionKey = (expected: string | null, predicted: string | null): string => [expected, predicted].map((symbol) => (symbol === null ? "" : `=${symbol}`)).join("\t");

/** Describes a confusion with its count. */
export function describeConfusion({ predicted, expected, count: times }: ConfusionCount, view: TaskView): string {
  const name = (symbol: string | null): string => (symbol === null ? "nothing" : quote((view.texts ? visibleText : visibleSymbol)(symbol)));
  return `${name(predicted)} instead of ${name(expected)}: ${times}`;
}

/** Describes a confusion with its count, the count of the expected symbol, and the number of shown errors. */
export const describeConfusionShare = (each: ConfusionCount, examples: readonly PageExample[], view: TaskView): string =>
  describeConfusion(each, view) + (each.expected === null ? "" : ` of ${each.num_expected}`) + describeShownErrors(each, examples);

const isConfusion = (each: ConfusionCount, { expected, step }: EditOperation, trace: Trace | undefined): boolean =>
  each.expected === expected && each.predicted === (step === null ? null : trace?.target[step]);

/** Number of errors of a confusion in the shown examples, and of these examples; "" if all are shown, one per example. */
export function describeShownErrors(each: ConfusionCount, examples: readonly PageExample[]): string {
  const times = each.example_indices.reduce((sum, index) => {
    const example = examples[index];
    return sum + (example?.edits.filter((edit) => edit.kind !== "same" && isConfusion(each, edit, example.traces[0])).length ?? 0);
  }, 0);
  const numExamples = each.example_indices.length;
  return (times < each.count ? `, ${times || "none"} of them shown` : "") + (numExamples < times ? `, in ${numExamples} example${numExamples > 1 ? "s" : ""}` : "");
}

/** Confusions of an output that occur more than once in the file, at most three. */
export function repeatedConfusions(example: PageExample, trace: Trace, all: readonly ConfusionCount[]): ConfusionCount[] {
  const confusions = example.edits.flatMap((edit) =>
    edit.kind === "same" ? [] : all.filter((each) => isConfusion(each, edit, trace) && each.count > 1 && each.example_indices.length > 0),
  );
  return [...new Set(confusions)].slice(0, 3);
}

function symbolAt(trace: Trace, index: number | null): string {
  return index === null ? "beyond the source" : quoteSymbol(trace.source[index] ?? "");
}

/** Describes the first error: probability, rank of the expected symbol, and attention. */
export function explainError(example: PageExample, trace: Trace): string[] {
  const edit = example.edits.find((each) => each.kind !== "same");
  if (!edit) return [];
  const view = taskViewOf(trace);
  const index = example.edits.indexOf(edit);
  // A deletion is attributed to the next step.
  const step = edit.step ?? example.edits.slice(index).find((each) => each.step !== null)?.step ?? trace.target.length - 1;
  const symbol = trace.target[step];
  const weights = decodeArray(trace.attention).subarray(step * trace.source.length, (step + 1) * trace.source.length);
  if (symbol === undefined || (weights.length === 0 && !view.per_position)) return [];
  const p = (ln: number) => formatProbability(Math.exp(ln));
  const subject = view.autoregressive ? `Step ${step + 1}:` : view.per_position ? `Position ${step + 1}:` : "Prediction:";
  const named = view.texts ? visibleText : visibleSymbol;
  const sentences = [`${subject} ${quote(named(symbol))} with p = ${p(decodeArray(trace.log_probabilities)[step] ?? 0)}.`];
  // At an insertion, the next symbol or the end was expected.
  const expected = expectedSymbol(example.edits, index);
  const rank = (trace.top[step] ?? []).findIndex(([candidate]) => candidate === expected);
  if (expected !== END || view.autoregressive) {
    const expectedText = `The expected symbol ${quote(named(expected))}`;
    sentences.push(rank < 0 ? `${expectedText} is not among the ${trace.top[step]?.length ?? 0} most probable.` : `${expectedText} has p = ${p(trace.top[step]![rank]![1])}, rank ${rank + 1}.`);
  }
  const peak = weights.indexOf(Math.max(...weights));
  // The weights of a position task are its prediction; tags have none.
  if (view.points) return sentences;
  if (weights[peak]! > 0) sentences.push(describeAttention(trace, weights, peak));
  const [from, to] = example.gold_alignment?.[step] ?? [0, 0];
  if (edit.step !== null && to > from && weights[peak]! > 0) {
    const inside = peak >= from && peak < to;
    const there = formatPercent(weights.subarray(from, to).reduce((sum, weight) => sum + weight, 0));
    sentences.push(`The gold alignment of the expected symbol is ${to - from > 1 ? `positions ${from + 1}–${to}` : `position ${to}`}, which has ${there} of the attention weight: attention is at the ${inside ? "correct" : "wrong"} positions.`);
  }
  return sentences;
}

/** Describes where a step attended; weights near the uniform weight are called diffuse. */
function describeAttention(trace: Trace, weights: Float32Array, at: number): string {
  const weight = weights[at]!;
  const times = weight * trace.source.length;
  const positionText = `position ${at + 1}, ${quoteSymbol(trace.source[at]!)}`;
  if (weight >= 0.2 || trace.source.length === 1) return `Maximum attention: ${positionText} (${formatPercent(weight)}).`;
  // Several distinct maxima are not diffuse.
  const several = topValues(weights, 6).filter(({ value }) => value > weight / 2);
  if (times >= 10 && several.reduce((sum, { value }) => sum + value, 0) > 0.5)
    return `Attention at several positions: ${several.map(({ index, value }) => `position ${index + 1}, ${quoteSymbol(trace.source[index]!)} (${formatPercent(value)})`).join("; ")}.`;
  const much = times < 2 ? "hardly more than" : `${times.toFixed(times < 10 ? 1 : 0)} times`;
  return `Diffuse attention: maximum ${formatPercent(weight)} at ${positionText}, ${much} the uniform weight.`;
}
