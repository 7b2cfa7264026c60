// A what-if in a sentence: what was done, and what it did to the symbol it touched most.

import { viewOf } from "../data/task";
import { numbers } from "../data/blocks";
import type { Asked, Difference, Painted, Trace } from "../data/contents";
import { paired } from "../data/steps";
import { probability } from "../drawing/scales";
import { cited, quoted, shown } from "../drawing/symbols";

/** One step before and after; null, or no symbol, where there is none or nothing is compared. */
export interface Change {
  step: number | null;
  place: number | null;
  symbol: string | undefined;
  now: string | undefined;
  before: number | null;
  after: number | null;
  /** From before to after, where both are probabilities of one symbol. */
  move: number | null;
  divergence: number | null;
}

/**
 * p of each symbol of the output before, and of the same symbol under the change. Where another beginning was forced, of
 * what each output writes at that step, by its number.
 */
export function changes({ before, after, same, divergence, along }: Difference): Change[] {
  const [trace, other] = [before.traces[0], after.traces[0]];
  if (!trace || !other) return [];
  // The changed source cannot have those tags or that position: no numbers pair.
  const compared = trace.target.length === 0 || divergence.shape[0] !== 0;
  const own = along === "after";
  const [was, then, bits] = [numbers(trace.log_probabilities), numbers(same.log_probabilities), numbers(divergence)];
  const pairs = own ? beside(trace.target.length, other.target.length) : paired(trace.target, other.target);
  return pairs.map(([step, place]) => {
    const at = own ? place : step;
    const symbol = step === null ? undefined : trace.target[step];
    const now = place === null ? undefined : other.target[place];
    const old = compared && step !== null ? Math.exp(was[step] ?? 0) : null;
    const next = compared && at !== null ? Math.exp(then[at] ?? -Infinity) : null;
    const paired = old !== null && next !== null;
    return { step, place, symbol, now, before: old, after: next, move: paired && (!own || symbol === now) ? next - old : null, divergence: paired ? (bits[step!] ?? 0) : null };
  });
}

/** Steps of two outputs side by side by their numbers. */
function beside(before: number, after: number): [number | null, number | null][] {
  return Array.from({ length: Math.max(before, after) }, (_, at) => [at < before ? at : null, at < after ? at : null]);
}

/** Whether a step has numbers to compare. */
export const comparable = ({ before, after }: Change): boolean => (before ?? after) !== null;

/** The number of a step; one written after alone has one where steps pair by their numbers. */
export const numbered = ({ step, place, after }: Change): number | "" => (step !== null ? step + 1 : after !== null ? place! + 1 : "");

/** The step whose probability moved most; null where none moved at all. */
export function greatest(all: Change[]): Change | null {
  const size = ({ move }: Change) => Math.abs(move ?? 0);
  return all.reduce<Change | null>((best, change) => (size(change) > (best ? size(best) : 0) ? change : best), null);
}

/** Sources longer than this are not quoted whole. */
const SHORT = 60;
/** Another source: of a long one what is no longer as it was. */
function read(before: string, after: string): string {
  const [was, now] = [[...before], [...after]];
  const least = Math.min(was.length, now.length);
  if (least <= SHORT) return `reading ${quoted(after)} instead of ${quoted(before)}`;
  let [start, end] = [0, 0];
  while (start < least && was[start] === now[start]) start++;
  while (end < least - start && was.at(-1 - end) === now.at(-1 - end)) end++;
  const [there, here] = [was, now].map((all) => quoted(all.slice(start, all.length - end).join("")));
  return `reading ${here} instead of ${there} from letter ${start + 1} on`;
}

/** What was asked differently, as the subject of a sentence; "" where nothing was. */
export function cause(before: Asked, after: Asked, trace: Trace | undefined): string {
  const parts: string[] = [];
  const name = (position: number) => `position ${position + 1}${trace?.source[position] ? ` (${cited(trace.source[position]!)})` : ""}`;
  if (before.text !== after.text) parts.push(read(before.text, after.text));
  const hidden = after.masked.filter((position) => !before.masked.includes(position));
  const bared = before.masked.filter((position) => !after.masked.includes(position));
  if (hidden.length > 0) parts.push(`hiding ${list(hidden.map(name))}`);
  if (bared.length > 0) parts.push(`no longer hiding ${list(bared.map(name))}`);
  if (before.prefix.join("\0") !== after.prefix.join("\0")) {
    parts.push(after.prefix.length > 0 ? `forcing the output to begin with “${after.prefix.map(shown).join(" ")}”` : "forcing no beginning");
  }
  const told = new Map(before.painted.map((row) => [row.step, JSON.stringify(row.weights)]));
  const rows = after.painted.filter((row) => told.get(row.step) !== JSON.stringify(row.weights));
  if (rows.length > 3) parts.push(`giving the attention of ${rows.length} steps`);
  else parts.push(...rows.map((row) => aimed(row, name)));
  const freed = before.painted.filter((row) => after.painted.every((other) => other.step !== row.step));
  if (freed.length > 0) parts.push(`freeing the attention of ${freed.length} ${freed.length > 1 ? "steps" : "step"}`);
  return list(parts);
}

function aimed({ step, weights }: Painted, name: (position: number) => string): string {
  const total = weights.reduce((sum, weight) => sum + weight, 0) || 1;
  const top = weights.indexOf(Math.max(...weights));
  if (weights[top]! / total > 0.999) return `forcing step ${step + 1} to attend to ${name(top)}`;
  const even = weights.every((weight) => Math.abs(weight / total - 1 / weights.length) < 1e-4);
  return even ? `forcing step ${step + 1} to attend uniformly` : `giving the attention of step ${step + 1}`;
}

function list(parts: string[]): string {
  return parts.length < 2 ? (parts[0] ?? "") : `${parts.slice(0, -1).join(", ")} and ${parts.at(-1)}`;
}

/** The whole sentence. */
export function sentence(before: Asked, after: Asked, difference: Difference): string {
  const trace = difference.before.traces[0];
  // A row beyond the end of both outputs did nothing.
  const reached = [difference.after.traces[0], difference.same].flatMap((each) => each?.painted ?? []);
  const subject = cause(before, { ...after, painted: after.painted.filter(({ step }) => reached.includes(step)) }, trace);
  if (subject === "") return "Nothing was changed, so nothing changes.";
  const all = changes(difference);
  const most = greatest(all);
  const other = difference.along === "after" ? all.find(({ symbol, now }) => symbol !== now) : undefined;
  const [old, now] = [trace, difference.after.traces[0]].map((each) => quoted(each?.output ?? ""));
  const effect = other ? rewritten(other, all) : most && trace && Math.abs(most.move ?? 0) >= 0.0005 ? moved(most, trace) : "";
  const { output: noun, autoregressive } = viewOf(trace);
  const written = old === now ? `the ${noun} stays ${old}` : `the ${noun} becomes ${now} instead of ${old}${other || !autoregressive ? "" : departed(all, difference, effect && most)}`;
  const start = subject[0]!.toUpperCase() + subject.slice(1);
  if (effect === "" && old === now) return `${start} changes next to nothing: ${written}.`;
  return effect === "" ? `${start}: ${written}.` : `${start} ${effect}; ${written}.`;
}

/** Where the new output leaves the old one, if no other words name that step: what moved most may be but a consequence. */
function departed(all: Change[], { before, after }: Difference, told: Change | null | ""): string {
  const other = after.traces[0]?.target;
  const at = before.traces[0]!.target.findIndex((symbol, step) => symbol !== other?.[step]);
  const change = all.find(({ step }) => step === at);
  if (!change || change === told || change.move === null) return "";
  return ` from step ${at + 1} on, where p(${shown(change.symbol!)}) goes from ${probability(change.before!)} to ${probability(change.after!)}`;
}

function moved({ step, symbol, before, after, move }: Change, trace: Trace): string {
  const { autoregressive, per_position } = viewOf(trace);
  const verb = move! < 0 ? "lowers" : "raises";
  return `${verb} p(${shown(symbol!)})${autoregressive ? ` at step ${step! + 1}` : per_position ? ` at position ${step! + 1}` : ""} from ${probability(before!)} to ${probability(after!)}`;
}

/** What two outputs write at the first step at which they differ, and the step whose distribution moves most. */
function rewritten({ step, place, symbol, now, before, after }: Change, all: Change[]): string {
  const first = now === undefined ? `ends before step ${step! + 1}` : `writes ${cited(now)} (p = ${probability(after!)})${symbol === undefined ? "" : ` instead of ${cited(symbol)} (p = ${probability(before!)})`} at step ${place! + 1}`;
  const far = all.reduce((best, each) => ((each.divergence ?? 0) > (best.divergence ?? 0) ? each : best));
  return (far.divergence ?? 0) >= 0.005 ? `${first} and moves the distribution of step ${far.step! + 1} most (by ${far.divergence!.toFixed(2)} bits)` : first;
}
