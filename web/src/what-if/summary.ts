// Description of a what-if change and of its effect, in a sentence.

import { taskViewOf } from "../data/taskView";
import { decodeArray } from "../data/arrays";
import type { DecodeRequest, WhatIfResponse, ForcedAttentionRow, Trace } from "../data/contents";
import { formatProbability } from "../drawing/scales";
import { isolate, quote, quoteSymbol, quoteText, visibleSymbol } from "../drawing/symbols";

/** Probability of a symbol at a step before the change, null where the original output has no such step, and after it. */
export interface SymbolChange {
  symbol: string;
  before: CandidateProbability | null;
  after: CandidateProbability;
}

/** Probability; `isBound` if the trace lacks the symbol, whose probability is then below the least stored one. */
export interface CandidateProbability {
  probability: number;
  isBound: boolean;
}

/** Step of the new output, and the same step of the original output, which may be shorter. */
export interface StepChange {
  step: number;
  oldSymbol: string | undefined;
  newSymbol: string | undefined;
  /** Whether both outputs have the same symbols before this step. */
  isShared: boolean;
  /** Probabilities of the symbols of both outputs, the original one first, before and after the change; of one, if the symbols are equal; of none, if nothing is compared. */
  symbols: SymbolChange[];
  /** Change of the probability of the original symbol; null if it is not known. */
  probabilityChange: number | null;
  divergence: number | null;
}

/**
 * Probabilities of the symbols of both outputs at each step of the new output, the end included: before the change along
 * the original output, and after it along the new output.
 */
export function stepChanges({ before, after, rescored, kl_divergence: divergence, compared_output: comparedOutput }: WhatIfResponse): StepChange[] {
  const [oldTrace, newTrace] = [before.traces[0], after.traces[0]];
  if (!oldTrace || !newTrace) return [];
  // The changed source cannot have these tags or this position: nothing is compared.
  const isComparable = oldTrace.target.length === 0 || divergence.shape[0] !== 0;
  const { autoregressive } = taskViewOf(oldTrace);
  const bits = decodeArray(divergence);
  let isShared = true;
  return Array.from({ length: Math.max(newTrace.target.length, isComparable ? 0 : oldTrace.target.length) }, (_, step): StepChange => {
    const [oldSymbol, newSymbol] = [oldTrace.target[step], newTrace.target[step]];
    /** Output whose scores under the change have a symbol; those of forced decoding are equal digit by digit if nothing has changed. */
    const changed = (symbol: string): Trace => (comparedOutput === "after" || (symbol === oldSymbol && isShared) ? rescored : newTrace);
    const comparedSymbols = isComparable ? [...new Set([oldSymbol, newSymbol])].filter((symbol) => symbol !== undefined) : [];
    const symbols = comparedSymbols.map((symbol) => ({ symbol, before: oldSymbol === undefined ? null : symbolProbability(oldTrace, step, symbol), after: symbolProbability(changed(symbol), step, symbol) }));
    const original = oldSymbol === undefined ? undefined : symbols[0];
    const probabilityChange = original && !original.after.isBound ? original.after.probability - original.before!.probability : null;
    const change = { step, oldSymbol, newSymbol, isShared, symbols, probabilityChange, divergence: original ? (bits[step] ?? 0) : null };
    isShared &&= !autoregressive || oldSymbol === newSymbol;
    return change;
  });
}

/** Probability of the symbol that an output has at a step. */
export const outputProbability = (trace: Trace, step: number): number => Math.exp(decodeArray(trace.log_probabilities)[step] ?? -Infinity);

/** Probability of any symbol at a step, from the most probable symbols that the trace stores. */
export function symbolProbability(trace: Trace, step: number, symbol: string): CandidateProbability {
  if (trace.target[step] === symbol) return { probability: outputProbability(trace, step), isBound: false };
  const top = trace.top[step] ?? [];
  const stored = top.find(([candidate]) => candidate === symbol);
  return { probability: Math.exp((stored ?? top.at(-1))?.[1] ?? 0), isBound: stored === undefined };
}

/** Probability as text: “0.09”, “< 0.004” for a bound, or “–” for none. */
export const formatCandidate = (value: CandidateProbability | null): string => (value === null ? "–" : `${value.isBound ? "< " : ""}${formatProbability(value.probability)}`);

/** Whether a step has probabilities to compare. */
export const hasProbability = ({ symbols }: StepChange): boolean => symbols.length > 0;

/** Step with the largest change of probability among those with the same symbols before them, or null. */
export function largestChange(all: StepChange[]): StepChange | null {
  const size = ({ probabilityChange, isShared }: StepChange) => (isShared ? Math.abs(probabilityChange ?? 0) : 0);
  return all.reduce<StepChange | null>((best, change) => (size(change) > (best ? size(best) : 0) ? change : best), null);
}

/** Maximum length of a source that is quoted in full. */
const MAX_QUOTED_LENGTH = 60;
/** Description of a changed source; of a long one, only of the changed part. */
function describeSourceChange(before: string, after: string): string {
  const [oldCharacters, newCharacters] = [[...before], [...after]];
  const minimum = Math.min(oldCharacters.length, newCharacters.length);
  if (minimum <= MAX_QUOTED_LENGTH) return `replacing the source ${quoteText(before)} by ${quoteText(after)}`;
  let [start, end] = [0, 0];
  while (start < minimum && oldCharacters[start] === newCharacters[start]) start++;
  while (end < minimum - start && oldCharacters.at(-1 - end) === newCharacters.at(-1 - end)) end++;
  const [oldPart, newPart] = [oldCharacters, newCharacters].map((characters) => quoteText(characters.slice(start, characters.length - end).join("")));
  return `replacing ${oldPart} by ${newPart} in the source, from character ${start + 1} on`;
}

/** Description of the change, as the subject of a sentence; "" without change. */
export function describeCause(before: DecodeRequest, after: DecodeRequest, trace: Trace | undefined): string {
  const parts: string[] = [];
  const name = (position: number) => `position ${position + 1}${trace?.source[position] ? ` (${quoteSymbol(trace.source[position]!)})` : ""}`;
  if (before.text !== after.text) parts.push(describeSourceChange(before.text, after.text));
  const masked = after.masked_positions.filter((position) => !before.masked_positions.includes(position));
  const unmasked = before.masked_positions.filter((position) => !after.masked_positions.includes(position));
  if (masked.length > 0) parts.push(`masking ${joinWords(masked.map(name))}`);
  if (unmasked.length > 0) parts.push(`unmasking ${joinWords(unmasked.map(name))}`);
  if (before.prefix.join("\0") !== after.prefix.join("\0")) {
    parts.push(after.prefix.length > 0 ? `forcing the prefix ${quote(after.prefix.map(visibleSymbol).join(" "))}` : "removing the forced prefix");
  }
  const oldRows = new Map(before.forced_attention.map((row) => [row.step, JSON.stringify(row.weights)]));
  const rows = after.forced_attention.filter((row) => oldRows.get(row.step) !== JSON.stringify(row.weights));
  if (rows.length > 3) parts.push(`setting the attention of ${rows.length} steps`);
  else parts.push(...rows.map((row) => describeForcedRow(row, name)));
  const reset = before.forced_attention.filter((row) => after.forced_attention.every((other) => other.step !== row.step));
  if (reset.length > 0) parts.push(`resetting the attention of ${reset.length} ${reset.length > 1 ? "steps" : "step"}`);
  return joinWords(parts);
}

function describeForcedRow({ step, weights }: ForcedAttentionRow, name: (position: number) => string): string {
  const total = weights.reduce((sum, weight) => sum + weight, 0) || 1;
  const top = weights.indexOf(Math.max(...weights));
  if (weights[top]! / total > 0.999) return `forcing step ${step + 1} to attend to ${name(top)}`;
  const isUniform = weights.every((weight) => Math.abs(weight / total - 1 / weights.length) < 1e-4);
  return isUniform ? `forcing step ${step + 1} to attend uniformly` : `setting the attention of step ${step + 1}`;
}

function joinWords(parts: string[]): string {
  return parts.length < 2 ? (parts[0] ?? "") : `${parts.slice(0, -1).join(", ")} and ${parts.at(-1)}`;
}

/** Complete sentence. */
export function describeWhatIf(before: DecodeRequest, after: DecodeRequest, difference: WhatIfResponse): string {
  const trace = difference.before.traces[0];
  // Forced attention beyond both outputs has no effect.
  const reached = [difference.after.traces[0], difference.rescored].flatMap((each) => each?.forced_attention ?? []);
  const subject = describeCause(before, { ...after, forced_attention: after.forced_attention.filter(({ step }) => reached.includes(step)) }, trace);
  if (subject === "") return "No change.";
  const all = stepChanges(difference);
  const maximum = largestChange(all);
  const other = difference.compared_output === "after" ? all.find(({ oldSymbol, newSymbol }) => oldSymbol !== newSymbol) : undefined;
  const [oldOutput, newOutput] = [trace, difference.after.traces[0]].map((each) => quoteText(each?.output ?? ""));
  const effect = other ? describeDivergence(other, all) : maximum && trace && Math.abs(maximum.probabilityChange ?? 0) >= 0.0005 ? describeLargestChange(maximum, trace) : "";
  const { output: outputNoun, autoregressive } = taskViewOf(trace);
  const outputClause = oldOutput === newOutput ? `the ${outputNoun} stays ${oldOutput}` : `the ${outputNoun} becomes ${newOutput} instead of ${oldOutput}${other || !autoregressive ? "" : describeFirstDifference(all, effect && maximum)}`;
  const start = subject[0]!.toUpperCase() + subject.slice(1);
  if (effect === "" && oldOutput === newOutput) return `${start} has almost no effect: ${outputClause}.`;
  return effect === "" ? `${start}: ${outputClause}.` : `${start} ${effect}; ${outputClause}.`;
}

/** Describes the first step at which the outputs differ; "" if the sentence already describes it (`describedChange`). */
function describeFirstDifference(all: StepChange[], describedChange: StepChange | null | ""): string {
  const change = all.find(({ oldSymbol, newSymbol }) => oldSymbol !== newSymbol);
  if (!change || change === describedChange || change.probabilityChange === null) return "";
  return ` from step ${change.step + 1} on, where p(${isolate(visibleSymbol(change.oldSymbol!))}) changes ${fromTo(change)}`;
}

/** Probabilities of the original symbol before and after the change. */
const fromTo = ({ symbols: [original] }: StepChange): string => `from ${formatProbability(original!.before!.probability)} to ${formatProbability(original!.after.probability)}`;

function describeLargestChange(change: StepChange, trace: Trace): string {
  const { autoregressive, per_position } = taskViewOf(trace);
  const verb = change.probabilityChange! < 0 ? "lowers" : "raises";
  return `${verb} p(${isolate(visibleSymbol(change.oldSymbol!))})${autoregressive ? ` at step ${change.step + 1}` : per_position ? ` at position ${change.step + 1}` : ""} ${fromTo(change)}`;
}

/** First step at which the outputs differ, and the step with the largest divergence. */
function describeDivergence({ step, oldSymbol, newSymbol, symbols }: StepChange, all: StepChange[]): string {
  const first = `outputs ${quoteSymbol(newSymbol!)} (p = ${formatCandidate(symbols.at(-1)!.after)})${oldSymbol === undefined ? "" : ` instead of ${quoteSymbol(oldSymbol)} (p = ${formatCandidate(symbols[0]!.before)})`} at step ${step + 1}`;
  const largest = all.reduce((best, each) => ((each.divergence ?? 0) > (best.divergence ?? 0) ? each : best));
  return (largest.divergence ?? 0) >= 0.005 ? `${first}, with the largest KL divergence at step ${largest.step + 1} (${largest.divergence!.toFixed(2)} bits)` : first;
}
