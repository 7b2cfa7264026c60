// What-if requests and their changes. Requests are immutable.

import { clamp } from "../drawing/layout";
import type { DecodeRequest, PageExample, ForcedAttentionRow, Trace } from "../data/contents";

export const EMPTY_REQUEST: DecodeRequest = {
  text: "",
  features: [],
  prefix: [],
  forced_attention: [],
  masked_positions: [],
  beam_size: 1,
  num_outputs: 1,
  search_tree: false,
  attribution: false,
  states: false,
  gates: false,
  run: 0,
};

/** Request whose response is this example, with its beam size. */
export function requestFor(example: PageExample): DecodeRequest {
  return { ...EMPTY_REQUEST, text: example.text, features: example.features, beam_size: Math.max(1, example.traces.length) };
}

/** Separator of the source symbols; null if the symbols do not determine the text (subwords, unknown symbols). */
export function findSeparator(text: string, symbols: string[]): string | null {
  return ["", " "].find((separator) => symbols.join(separator) === text) ?? null;
}

/** Source symbols without features. */
export function sourceSymbols(trace: Trace): string[] {
  return trace.source.slice(trace.num_features);
}

/** Edit of the source symbols, at an index without features. */
export type SourceEdit =
  | { kind: "replace" | "insert"; at: number; symbol: string }
  | { kind: "delete" | "swap"; at: number };

/** Edits the source; masks and forced attention move with their symbols. */
export function editSource(request: DecodeRequest, symbols: string[], separator: string, edit: SourceEdit): DecodeRequest {
  const order = symbols.map((_, index) => index as number | null);
  const next = [...symbols];
  if (edit.kind === "replace") next[edit.at] = edit.symbol;
  if (edit.kind === "insert") {
    next.splice(edit.at, 0, edit.symbol);
    order.splice(edit.at, 0, null);
  }
  if (edit.kind === "delete") {
    next.splice(edit.at, 1);
    order.splice(edit.at, 1);
  }
  if (edit.kind === "swap" && edit.at + 1 < next.length) {
    [next[edit.at], next[edit.at + 1]] = [next[edit.at + 1]!, next[edit.at]!];
  }
  const features = request.features.length;
  const oldPositions = [...request.features.map((_, index) => index), ...order.map((old) => (old === null ? null : old + features))];
  return { ...request, text: next.join(separator), ...moveAttention(request, oldPositions) };
}

/** Masks and forced attention of an edited source; `oldPositions` has the previous position of each symbol (null: a new symbol). */
export function moveAttention(request: DecodeRequest, oldPositions: (number | null)[]): Pick<DecodeRequest, "masked_positions" | "forced_attention"> {
  return {
    masked_positions: oldPositions.flatMap((old, now) => (old !== null && request.masked_positions.includes(old) ? [now] : [])),
    forced_attention: request.forced_attention.flatMap(({ step, weights }) => {
      const row = oldPositions.map((old) => (old === null ? 0 : (weights[old] ?? 0)));
      return row.some((weight) => weight > 0) ? [{ step, weights: row }] : [];
    }),
  };
}

/** Replaces the text; masks and forced attention are removed. */
export function replaceText(request: DecodeRequest, text: string): DecodeRequest {
  return text === request.text ? request : { ...request, text, masked_positions: [], forced_attention: [] };
}

/** Masks or unmasks a position. */
export function toggleMask(request: DecodeRequest, position: number): DecodeRequest {
  const others = request.masked_positions.filter((other) => other !== position);
  return { ...request, masked_positions: others.length < request.masked_positions.length ? others : [...others, position].sort((a, b) => a - b) };
}

/** Sets or removes (null) the forced attention of a step. */
export function setAttention(request: DecodeRequest, step: number, weights: ArrayLike<number> | null): DecodeRequest {
  const others = request.forced_attention.filter((row) => row.step !== step);
  const rows: ForcedAttentionRow[] = weights ? [...others, { step, weights: Array.from(weights) }] : others;
  return { ...request, forced_attention: rows.sort((a, b) => a.step - b.step) };
}

/** Forces another symbol at a step, after the same prefix. */
export function forceSymbol(request: DecodeRequest, target: string[], step: number, symbol: string): DecodeRequest {
  return { ...request, prefix: [...target.slice(0, step), symbol] };
}

/** Whether two requests are equal. */
export function sameRequest(left: DecodeRequest, right: DecodeRequest): boolean {
  return JSON.stringify(left) === JSON.stringify(right);
}

/** Maximum length of a change in the address: many programs truncate longer addresses. */
const MAX_ENCODED_LENGTH = 2000;
const CHANGE_FIELDS = ["text", "features", "prefix", "masked_positions", "forced_attention"] as const;

/** Run-length encoding of numbers with five digits: `0*57_1_0*42`. */
function encodeRuns(values: readonly number[]): string {
  const runs: [number, number][] = [];
  for (const each of values) {
    const [value, last] = [Number(each.toPrecision(5)), runs.at(-1)];
    if (last?.[0] === value) last[1]++;
    else runs.push([value, 1]);
  }
  return runs.map(([value, times]) => (times > 1 ? `${value}*${times}` : `${value}`)).join("_");
}

/** Encodes forced attention; equal rows of consecutive steps are merged, as `3*14`. */
function encodeForcedAttention(rows: readonly ForcedAttentionRow[]): string {
  const groups: { first: number; times: number; row: string }[] = [];
  for (const { step, weights } of rows) {
    const [row, last] = [encodeRuns(weights), groups.at(-1)];
    if (last?.row === row && last.first + last.times === step) last.times++;
    else groups.push({ first: step, times: 1, row });
  }
  return groups.map(({ first, times, row }) => `${first}${times > 1 ? `*${times}` : ""}_${row}`).join("__");
}

/** Maximum number of weights in an address, which is untrusted. */
const MAX_WEIGHTS = 1e7;

/** Decodes forced attention; null if it is invalid. */
function decodeForcedAttention(text: string): ForcedAttentionRow[] | null {
  let size = 0;
  const rows: ForcedAttentionRow[] = [];
  for (const part of text ? text.split("__") : []) {
    const [steps, ...values] = part.split("_").map((run) => run.split("*").map(parseFloat)).map(([value, times = 1]) => ({ value: value!, times }));
    const all = [steps!, ...values];
    size += steps!.times * values.reduce((sum, { times }) => sum + times, 0);
    if (!(size <= MAX_WEIGHTS && values.length > 0 && all.every(({ value, times }) => value >= 0 && value < MAX_WEIGHTS && times >= 1 && times % 1 === 0) && steps!.value % 1 === 0)) return null;
    const weights = values.flatMap(({ value, times }) => Array<number>(times).fill(value));
    for (let step = 0; step < steps!.times; step++) rows.push({ step: steps!.value + step, weights });
  }
  return rows;
}

/** Encodes a change for the address; "" without change, null if it is too long. */
export function encodeChange(before: DecodeRequest, request: DecodeRequest): string | null {
  const changes = CHANGE_FIELDS.filter((name) => JSON.stringify(request[name]) !== JSON.stringify(before[name])).map((name) => [name, name === "forced_attention" ? encodeForcedAttention(request.forced_attention) : request[name]]);
  if (changes.length === 0) return "";
  const text = JSON.stringify(Object.fromEntries(changes));
  return encodeURIComponent(text).length > MAX_ENCODED_LENGTH ? null : text;
}

/** Decodes a change from the address; invalid parts are ignored. */
export function decodeChange(before: DecodeRequest, edit: string): DecodeRequest {
  const isValidPart = (name: string, value: unknown): boolean =>
    name === "text"
      ? typeof value === "string"
      : Array.isArray(value) && value.every((each) => (name === "forced_attention" ? Array.isArray(each?.weights) && each.step >= 0 : typeof each === (name === "masked_positions" ? "number" : "string")));
  try {
    const changes = JSON.parse(edit);
    if (typeof changes.forced_attention === "string") changes.forced_attention = decodeForcedAttention(changes.forced_attention);
    return { ...before, ...Object.fromEntries(CHANGE_FIELDS.filter((name) => isValidPart(name, changes[name])).map((name) => [name, changes[name]])) };
  } catch {
    return before;
  }
}

/** Requests of the tab with the current one, for undo and redo. */
export interface RequestHistory {
  /** All requests in order; those after the current one can be redone. */
  requests: DecodeRequest[];
  /** Index of the current request. */
  index: number;
}

/** Appends a request; `replace` replaces the current one, as while dragging. */
export function pushRequest(history: RequestHistory, request: DecodeRequest, replace = false): RequestHistory {
  if (sameRequest(history.requests[history.index]!, request)) return history;
  const requests = [...history.requests.slice(0, history.index + (replace ? 0 : 1)), request].slice(-200);
  return { requests, index: requests.length - 1 };
}

export function moveInHistory(history: RequestHistory, by: number): RequestHistory {
  return { ...history, index: clamp(history.index + by, history.requests.length - 1) };
}
