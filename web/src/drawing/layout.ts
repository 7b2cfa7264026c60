/** Geometry in CSS pixels. */
import { row, type Grid } from "../data/arrays";

/** Index range [from, to). */
export interface IndexRange {
  readonly from: number;
  readonly to: number;
}

/** Value clamped to [0, last]. */
export const clamp = (value: number, last: number): number => Math.max(0, Math.min(last, value));

/** Bounding box of the element that listens to an event. */
export const boundingBox = (event: Event): DOMRect => (event.currentTarget as Element).getBoundingClientRect();

/** Scrolls a strip until a cell is visible. */
export function scrollToPlace(strip: HTMLElement, index: number): void {
  const availableWidth = strip.clientWidth;
  if (index < strip.scrollLeft || index > strip.scrollLeft + availableWidth) strip.scrollLeft = index - availableWidth / 2;
}

/** Steps by which an arrow key moves in a list of a direction; undefined for other keys. */
export function arrowStep(key: string, direction: "ltr" | "rtl"): number | undefined {
  const forward = direction === "rtl" ? -1 : 1;
  return { ArrowRight: forward, ArrowLeft: -forward }[key];
}

/** Hint below a strip that is wider than its container. */
export const scrollHint = (width: number, availableWidth: number): string => (width > availableWidth ? "Scroll sideways for the rest." : "");

export const fullRange = (count: number): IndexRange => ({ from: 0, to: count });
export const rangeSize = (range: IndexRange): number => range.to - range.from;

/** Range shifted into [0, count), at least `minimum` long. */
export function clampRange(range: IndexRange, count: number, minimum = 1): IndexRange {
  const length = Math.min(count, Math.max(minimum, Math.round(rangeSize(range))));
  const from = clamp(Math.round(range.from), count - length);
  return { from, to: from + length };
}

/** Range zoomed by a factor around a relative position. */
export function zoomRange(range: IndexRange, count: number, factor: number, around = 0.5): IndexRange {
  const length = Math.min(count, Math.max(rangeSize(range) * factor, Math.min(count, 8)));
  const from = range.from + (rangeSize(range) - length) * around;
  return clampRange({ from, to: from + length }, count);
}

/** Edges of adjacent cells, one more than cells. */
export function cellEdges(widths: readonly number[]): number[] {
  const edges = [0];
  for (const width of widths) edges.push((edges.at(-1) ?? 0) + width);
  return edges;
}

/** Distributes a width over cells: natural widths plus equal shares of the rest, or equal widths if there is no room. */
export function distributeWidths(naturalWidths: readonly number[], availableWidth: number, maximum: number): number[] {
  const total = naturalWidths.reduce((sum, width) => sum + width, 0);
  if (total === 0) return [];
  if (total > availableWidth) return naturalWidths.map(() => availableWidth / naturalWidths.length);
  const spare = (availableWidth - total) / naturalWidths.length;
  return naturalWidths.map((width) => Math.min(Math.max(width, maximum), width + spare));
}

/** Index of the cell at a coordinate, or null. */
export function cellAt(edges: readonly number[], at: number): number | null {
  const last = edges.length - 1;
  if (last < 1 || at < (edges[0] ?? 0) || at >= (edges[last] ?? 0)) return null;
  let [low, high] = [0, last];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if ((edges[middle] ?? 0) <= at) low = middle;
    else high = middle;
  }
  return low;
}

/** Smallest interval of 1, 2, 5, 10, … at which labels fit. */
export function labelStep(cell: number, label: number): number {
  for (let ten = 1; ; ten *= 10) for (const step of [1, 2, 5]) if (cell * step * ten >= label) return step * ten;
}

/** Interval between labels: 1 if cells are at least `minimum` wide, else that of position numbers. */
export const labelInterval = (cell: number, minimum: number, label: number): number => (cell >= minimum ? 1 : Math.max(5, labelStep(cell, label)));

/** Whether a cell has a label, counting from 1. */
export const isNth = (index: number, interval: number): boolean => (index + 1) % interval === 0;

/** Link from a source position to an output step. */
export interface AttentionLink {
  readonly step: number;
  readonly position: number;
  readonly weight: number;
}

export interface PrunedLinks {
  readonly links: AttentionLink[];
  /** Share of the total weight that the links hold. */
  readonly share: number;
}

/** Maximum number of links; more would overlap. */
export const MAX_LINKS = 600;

/** Fewest links per row that hold `mass` of its weight, at most `maximum` in total, heaviest of each row first. */
export function pruneLinks(weights: Grid, mass: number, maximum = MAX_LINKS): PrunedLinks {
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
  if (links.length > maximum) links.sort((a, b) => a.rank - b.rank || b.weight - a.weight).length = maximum;
  const shownWeight = links.reduce((sum, link) => sum + link.weight, 0);
  return { links: links.map(({ step, position, weight }) => ({ step, position, weight })), share: total > 0 ? Math.min(1, shownWeight / total) : 0 };
}

/** Curve from (x0, y0) down to (x1, y1), vertical at both ends. */
export function linkCurve(x0: number, y0: number, x1: number, y1: number): string {
  const middle = (y0 + y1) / 2;
  const [a, b, c, d, e] = [x0, y0, middle, x1, y1].map((value) => Math.round(value * 10) / 10);
  return `M${a} ${b}C${a} ${c} ${d} ${c} ${d} ${e}`;
}

/** Index of the maximum; −1 if there are no values. */
export function argmax(values: ArrayLike<number>): number {
  let best = -1;
  for (let index = 0; index < values.length; index++) {
    if (best < 0 || (values[index] ?? 0) > (values[best] ?? 0)) best = index;
  }
  return best;
}

/** The `count` values of largest magnitude with their indices, without zeros. */
export function topValues(values: ArrayLike<number>, count: number): { index: number; value: number }[] {
  return Array.from({ length: values.length }, (_, index) => ({ index, value: values[index] ?? 0 }))
    .filter(({ value }) => value !== 0)
    .sort((a, b) => Math.abs(b.value) - Math.abs(a.value))
    .slice(0, count);
}
