// What one asks the model, and the ways to change it. A question is a value; every change makes another.

import { clamp } from "../drawing/layout";
import type { Asked, Item, Painted, Trace } from "../data/contents";

export const BLANK: Asked = {
  text: "",
  features: [],
  prefix: [],
  painted: [],
  masked: [],
  beam_size: 1,
  outputs: 1,
  lattice: false,
  evidence: false,
  states: false,
  gates: false,
  rival: -1,
};

/** The question whose answer this item is: searched as widely as it has outputs, or greedy search might give another. */
export function asking(item: Item): Asked {
  return { ...BLANK, text: item.text, features: item.features, beam_size: Math.max(1, item.traces.length) };
}

/** What stands between symbols in the source's text; null where the text cannot be made of its symbols (subwords, unseen). */
export function joiner(text: string, symbols: string[]): string | null {
  return ["", " "].find((between) => symbols.join(between) === text) ?? null;
}

/** The symbols of the text (the features stand before them and are not edited). */
export function editable(trace: Trace): string[] {
  return trace.source.slice(trace.features);
}

/** One change of the source's symbols at a place (counted without features). */
export type Edit =
  | { kind: "replace" | "insert"; at: number; symbol: string }
  | { kind: "delete" | "swap"; at: number };

/** A question about the edited source; what was hidden or painted moves with its symbols. */
export function edited(asked: Asked, symbols: string[], between: string, edit: Edit): Asked {
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
  const features = asked.features.length;
  const places = [...asked.features.map((_, index) => index), ...order.map((old) => (old === null ? null : old + features))];
  return { ...asked, text: next.join(between), ...moved(asked, places) };
}

/** What was given by position, where position p now holds what was at places[p] (null: something new). */
export function moved(asked: Asked, places: (number | null)[]): Pick<Asked, "masked" | "painted"> {
  return {
    masked: places.flatMap((old, now) => (old !== null && asked.masked.includes(old) ? [now] : [])),
    painted: asked.painted.flatMap(({ step, weights }) => {
      const row = places.map((old) => (old === null ? 0 : (weights[old] ?? 0)));
      return row.some((weight) => weight > 0) ? [{ step, weights: row }] : [];
    }),
  };
}

/** A text typed anew: positions no longer mean the same, so what was hidden and painted goes. */
export function retyped(asked: Asked, text: string): Asked {
  return text === asked.text ? asked : { ...asked, text, masked: [], painted: [] };
}

/** Hides a position from attention, or shows it again. */
export function masked(asked: Asked, position: number): Asked {
  const rest = asked.masked.filter((other) => other !== position);
  return { ...asked, masked: rest.length < asked.masked.length ? rest : [...rest, position].sort((a, b) => a - b) };
}

/** Gives the attention of a step; null takes it back. */
export function painted(asked: Asked, step: number, weights: ArrayLike<number> | null): Asked {
  const rest = asked.painted.filter((row) => row.step !== step);
  const rows: Painted[] = weights ? [...rest, { step, weights: Array.from(weights) }] : rest;
  return { ...asked, painted: rows.sort((a, b) => a.step - b.step) };
}

/** Lets the output begin as it did, but with another symbol at this step. */
export function continued(asked: Asked, target: string[], step: number, symbol: string): Asked {
  return { ...asked, prefix: [...target.slice(0, step), symbol] };
}

/** Whether two questions are one (bitwise: then their answers are one too). */
export function same(left: Asked, right: Asked): boolean {
  return JSON.stringify(left) === JSON.stringify(right);
}

/** The longest text of a change that an address still takes along: longer ones are cut on the way by many programs. */
const LONGEST = 2000;
const CHANGED = ["text", "features", "prefix", "masked", "painted"] as const;

/** Numbers of five digits in runs of equal ones, a number and how often: `0*57_1_0*42`. */
function runs(values: readonly number[]): string {
  const found: [number, number][] = [];
  for (const each of values) {
    const [value, last] = [Number(each.toPrecision(5)), found.at(-1)];
    if (last?.[0] === value) last[1]++;
    else found.push([value, 1]);
  }
  return found.map(([value, times]) => (times > 1 ? `${value}*${times}` : `${value}`)).join("_");
}

/** Rows of weights, each after its step; one that steps share after the first of them and their number, as `3*14`. */
function rowsTold(rows: readonly Painted[]): string {
  const found: { first: number; times: number; row: string }[] = [];
  for (const { step, weights } of rows) {
    const [row, last] = [runs(weights), found.at(-1)];
    if (last?.row === row && last.first + last.times === step) last.times++;
    else found.push({ first: step, times: 1, row });
  }
  return found.map(({ first, times, row }) => `${first}${times > 1 ? `*${times}` : ""}_${row}`).join("__");
}

/** More weights than any page asks for: an address may be of anybody. */
const MOST = 1e7;

/** The rows that `rowsTold` wrote; null where they cannot be meant. */
function rowsRead(text: string): Painted[] | null {
  let size = 0;
  const rows: Painted[] = [];
  for (const told of text ? text.split("__") : []) {
    const [steps, ...values] = told.split("_").map((run) => run.split("*").map(parseFloat)).map(([value, times = 1]) => ({ value: value!, times }));
    const all = [steps!, ...values];
    size += steps!.times * values.reduce((sum, { times }) => sum + times, 0);
    if (!(size <= MOST && values.length > 0 && all.every(({ value, times }) => value >= 0 && value < MOST && times >= 1 && times % 1 === 0) && steps!.value % 1 === 0)) return null;
    const weights = values.flatMap(({ value, times }) => Array<number>(times).fill(value));
    for (let step = 0; step < steps!.times; step++) rows.push({ step: steps!.value + step, weights });
  }
  return rows;
}

/** What an address says of a change; "" where there is none, null where it is too long. */
export function addressed(before: Asked, asked: Asked): string | null {
  const told = CHANGED.filter((name) => JSON.stringify(asked[name]) !== JSON.stringify(before[name])).map((name) => [name, name === "painted" ? rowsTold(asked.painted) : asked[name]]);
  if (told.length === 0) return "";
  const text = JSON.stringify(Object.fromEntries(told));
  return encodeURIComponent(text).length > LONGEST ? null : text;
}

/** The change that an address tells; what cannot be meant changes nothing. Older addresses tell all weights one by one. */
export function readdressed(before: Asked, edit: string): Asked {
  const meant = (name: string, value: unknown): boolean =>
    name === "text"
      ? typeof value === "string"
      : Array.isArray(value) && value.every((each) => (name === "painted" ? Array.isArray(each?.weights) && each.step >= 0 : typeof each === (name === "masked" ? "number" : "string")));
  try {
    const told = JSON.parse(edit);
    if (typeof told.painted === "string") told.painted = rowsRead(told.painted);
    return { ...before, ...Object.fromEntries(CHANGED.filter((name) => meant(name, told[name])).map((name) => [name, told[name]])) };
  } catch {
    return before;
  }
}

/** What was asked, step by step, with a place in it: undo and redo. */
export interface History {
  past: Asked[];
  now: number;
}

/** With another question; `over` one that was only on the way to it, as a bar that is dragged. */
export function changed(history: History, asked: Asked, over = false): History {
  if (same(history.past[history.now]!, asked)) return history;
  const past = [...history.past.slice(0, history.now + (over ? 0 : 1)), asked].slice(-200);
  return { past, now: past.length - 1 };
}

export function stepped(history: History, by: number): History {
  return { ...history, now: clamp(history.now + by, history.past.length - 1) };
}
