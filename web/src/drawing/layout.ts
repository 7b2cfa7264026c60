/** Where things are drawn: pure geometry, in CSS pixels. */
import { row, type Grid } from "../data/arrays";

/** Places [from, to) of a sequence. */
export interface IndexRange {
  readonly from: number;
  readonly to: number;
}

/** The value, or the nearer of 0 and `last`. */
export const clamp = (value: number, last: number): number => Math.max(0, Math.min(last, value));

/** Where on the screen the element lies that listens to an event. */
export const boundingBox = (event: Event): DOMRect => (event.currentTarget as Element).getBoundingClientRect();

/** Scrolls a strip so far that a place in it is seen; one that is seen stays where it is. */
export function scrollToPlace(strip: HTMLElement, place: number): void {
  const room = strip.clientWidth;
  if (place < strip.scrollLeft || place > strip.scrollLeft + room) strip.scrollLeft = place - room / 2;
}

/** What is said below a strip wider than its room. */
export const scrollHint = (width: number, room: number): string => (width > room ? "Scroll sideways for the rest." : "");

export const fullRange = (count: number): IndexRange => ({ from: 0, to: count });
export const rangeSize = (range: IndexRange): number => range.to - range.from;

/** A range kept inside [0, count), at least `least` long. */
export function clampRange(range: IndexRange, count: number, least = 1): IndexRange {
  const length = Math.min(count, Math.max(least, Math.round(rangeSize(range))));
  const from = clamp(Math.round(range.from), count - length);
  return { from, to: from + length };
}

/** Zooms by a factor around a place (in fractions of the range), as a wheel or a button does. */
export function zoomRange(range: IndexRange, count: number, factor: number, around = 0.5): IndexRange {
  const length = Math.min(count, Math.max(rangeSize(range) * factor, Math.min(count, 8)));
  const from = range.from + (rangeSize(range) - length) * around;
  return clampRange({ from, to: from + length }, count);
}

/** Left edges of cells beside each other, one more than there are cells. */
export function cellEdges(widths: readonly number[]): number[] {
  const places = [0];
  for (const width of widths) places.push((places.at(-1) ?? 0) + width);
  return places;
}

/** Widths of cells for a row `room` wide: as wide as they want and more where there is room, evenly less where not. */
export function distributeWidths(expected: readonly number[], room: number, most: number): number[] {
  const total = expected.reduce((sum, width) => sum + width, 0);
  if (total === 0) return [];
  if (total > room) return expected.map(() => room / expected.length);
  const spare = (room - total) / expected.length;
  return expected.map((width) => Math.min(Math.max(width, most), width + spare));
}

/** Which cell holds a coordinate, or null; `places` are edges. */
export function cellAt(places: readonly number[], at: number): number | null {
  const last = places.length - 1;
  if (last < 1 || at < (places[0] ?? 0) || at >= (places[last] ?? 0)) return null;
  let [low, high] = [0, last];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if ((places[middle] ?? 0) <= at) low = middle;
    else high = middle;
  }
  return low;
}

/** Labels that have room: every n-th, n from 1, 2, 5, 10, … so that their numbers stay round. */
export function labelStep(cell: number, label: number): number {
  for (let ten = 1; ; ten *= 10) for (const step of [1, 2, 5]) if (cell * step * ten >= label) return step * ten;
}

/** Every so many places are labeled: each where a cell has `least`; else numbers stand, far enough apart for `label`. */
export const labelInterval = (cell: number, least: number, label: number): number => (cell >= least ? 1 : Math.max(5, labelStep(cell, label)));

/** Whether a place is an n-th, as people count. */
export const isNth = (place: number, every: number): boolean => (place + 1) % every === 0;

/** A link from a source position to an output step. */
export interface AttentionLink {
  readonly step: number;
  readonly position: number;
  readonly weight: number;
}

export interface PrunedLinks {
  readonly links: AttentionLink[];
  /** The share of all weight that they show. */
  readonly share: number;
}

/** No more are drawn: they would hide each other. */
export const MAX_LINKS = 600;

/** Of each row the fewest links that hold `mass` of its weight, and at most `most` in all: first each row's heaviest. */
export function pruneLinks(weights: Grid, mass: number, most = MAX_LINKS): PrunedLinks {
  const links: (AttentionLink & { rank: number })[] = [];
  let total = 0;
  for (let step = 0; step < weights.rows; step++) {
    const values = row(weights, step);
    const sum = values.reduce((left, value) => left + value, 0);
    const order = Array.from(values.keys()).sort((a, b) => (values[b] ?? 0) - (values[a] ?? 0));
    total += sum;
    let held = 0;
    for (const [rank, position] of order.entries()) {
      const weight = values[position] ?? 0;
      if (weight <= 0 || held >= mass * sum - 1e-9) break;
      links.push({ step, position, weight, rank });
      held += weight;
    }
  }
  if (links.length > most) links.sort((a, b) => a.rank - b.rank || b.weight - a.weight).length = most;
  const kept = links.reduce((sum, link) => sum + link.weight, 0);
  return { links: links.map(({ step, position, weight }) => ({ step, position, weight })), share: total > 0 ? Math.min(1, kept / total) : 0 };
}

/** A curve from (x0, y0) down to (x1, y1), upright at both ends. */
export function linkCurve(x0: number, y0: number, x1: number, y1: number): string {
  const middle = (y0 + y1) / 2;
  const [a, b, c, d, e] = [x0, y0, middle, x1, y1].map((value) => Math.round(value * 10) / 10);
  return `M${a} ${b}C${a} ${c} ${d} ${c} ${d} ${e}`;
}

/** The place of the greatest value; −1 where there is none. */
export function argmax(values: ArrayLike<number>): number {
  let best = -1;
  for (let place = 0; place < values.length; place++) {
    if (best < 0 || (values[place] ?? 0) > (values[best] ?? 0)) best = place;
  }
  return best;
}

/** The `count` greatest values with their places, greatest first, those of no weight left out. */
export function topValues(values: ArrayLike<number>, count: number): { place: number; value: number }[] {
  return Array.from({ length: values.length }, (_, place) => ({ place, value: values[place] ?? 0 }))
    .filter(({ value }) => value !== 0)
    .sort((a, b) => Math.abs(b.value) - Math.abs(a.value))
    .slice(0, count);
}
