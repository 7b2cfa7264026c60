// A what-if in a sentence: what was done, and what it did to the symbol it touched most.

import { numbers } from "../data/blocks";
import type { Asked, Difference, Painted, Trace } from "../data/contents";
import { probability } from "../drawing/scales";
import { shown, shownText } from "../drawing/symbols";

/** One step before and after. */
export interface Change {
  step: number;
  symbol: string;
  before: number;
  after: number;
  divergence: number;
}

/** p of each symbol of the output before, and of the same symbol under the change. */
export function changes({ before, same, divergence }: Difference): Change[] {
  const trace = before.traces[0];
  // The changed source cannot have those tags or that position: nothing pairs.
  if (!trace || (trace.target.length > 0 && divergence.shape[0] === 0)) return [];
  const [was, now, bits] = [numbers(trace.log_probabilities), numbers(same.log_probabilities), numbers(divergence)];
  return trace.target.map((symbol, step) => ({
    step,
    symbol,
    before: Math.exp(was[step] ?? 0),
    after: Math.exp(now[step] ?? -Infinity),
    divergence: bits[step] ?? 0,
  }));
}

/** Steps of two outputs side by side, by the fewest edits, as early as can be; null stands beside a step that the other has not. */
export function paired(before: readonly string[], after: readonly string[]): [number | null, number | null][] {
  const [rows, wide] = [before.length, after.length + 1];
  // Edits from step i of the one and step j of the other to their ends.
  const costs = new Uint32Array((rows + 1) * wide);
  const cost = (i: number, j: number): number => costs[i * wide + j] ?? 0;
  const swap = (i: number, j: number): number => cost(i + 1, j + 1) + (before[i] === after[j] ? 0 : 1);
  for (let i = rows; i >= 0; i--) {
    for (let j = after.length; j >= 0; j--) {
      const left = rows - i + after.length - j;
      costs[i * wide + j] = i < rows && j < after.length ? Math.min(swap(i, j), cost(i + 1, j) + 1, cost(i, j + 1) + 1) : left;
    }
  }
  const pairs: [number | null, number | null][] = [];
  for (let [i, j] = [0, 0]; i < rows || j < after.length; ) {
    if (i < rows && j < after.length && cost(i, j) === swap(i, j)) pairs.push([i++, j++]);
    else if (i < rows && cost(i, j) === cost(i + 1, j) + 1) pairs.push([i++, null]);
    else pairs.push([null, j++]);
  }
  return pairs;
}

/** The step whose probability moved most; null where none moved at all. */
export function greatest(all: Change[]): Change | null {
  const size = (change: Change) => Math.abs(change.after - change.before);
  return all.reduce<Change | null>((best, change) => (size(change) > (best ? size(best) : 0) ? change : best), null);
}

/** What was asked differently, as the subject of a sentence; "" where nothing was. */
export function cause(before: Asked, after: Asked, trace: Trace | undefined): string {
  const parts: string[] = [];
  const name = (position: number) => `position ${position + 1}${trace?.source[position] ? ` (“${shown(trace.source[position]!)}”)` : ""}`;
  if (before.text !== after.text) parts.push(`reading “${shownText(after.text)}” instead of “${shownText(before.text)}”`);
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
  if (weights[top]! / total > 0.999) return `forcing step ${step + 1} to look at ${name(top)}`;
  const even = weights.every((weight) => Math.abs(weight / total - 1 / weights.length) < 1e-4);
  return even ? `forcing step ${step + 1} to look everywhere alike` : `giving the attention of step ${step + 1}`;
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
  const most = greatest(changes(difference));
  const [old, now] = [trace, difference.after.traces[0]].map((each) => shownText(each?.output ?? ""));
  const effect = most && trace && Math.abs(most.after - most.before) >= 0.0005 ? moved(most, trace) : "";
  const noun = trace?.task === "transduce" ? "output" : trace?.task === "tag" ? "tagging" : "answer";
  const written = old === now ? `the ${noun} stays “${old}”` : `the ${noun} becomes “${now}” instead of “${old}”`;
  const start = subject[0]!.toUpperCase() + subject.slice(1);
  if (effect === "" && old === now) return `${start} changes next to nothing: ${written}.`;
  return effect === "" ? `${start}: ${written}.` : `${start} ${effect}; ${written}.`;
}

function moved({ step, symbol, before, after }: Change, { task }: Trace): string {
  const verb = after < before ? "lowers" : "raises";
  return `${verb} p(${shown(symbol)})${task === "transduce" ? ` at step ${step + 1}` : task === "tag" ? ` at position ${step + 1}` : ""} from ${probability(before)} to ${probability(after)}`;
}
