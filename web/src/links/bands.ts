/** Layout of the two symbol bands of a link picture: source above, output below, centered. */
import { cellEdges, distributeWidths } from "../drawing/layout";
import { textWidth } from "../drawing/symbols";

export interface BandLayout {
  /** Cell edges, one more than cells. */
  readonly edges: number[];
  /** Interval between labels. */
  readonly interval: number;
  readonly fontSize: number;
  readonly middle: (cell: number) => number;
  readonly width: (cell: number) => number;
}

const FONT_SIZE = 15;
/** Width of a position number. */
const NUMBER_WIDTH = 34;
const MAX_CELL = 76;
/** Minimum scale of letters and cells. */
const MIN_SCALE = 0.62;
/** Maximum width of a scrolled picture, relative to the window, before numbers replace letters. */
const MAX_SCROLL = 2;

export function naturalWidths(symbols: readonly string[]): number[] {
  return symbols.map((symbol) => Math.max(13, textWidth(symbol) * FONT_SIZE + 5));
}

const sum = (values: readonly number[]): number => values.reduce((left, value) => left + value, 0);

/** Width of the picture: the window, or the natural width if that is not much more. */
export function pictureWidth(rows: readonly (readonly string[])[], availableWidth: number): number {
  const natural = Math.max(0, ...rows.map((symbols) => sum(naturalWidths(symbols))));
  return natural * MIN_SCALE > availableWidth && natural <= MAX_SCROLL * availableWidth ? natural : availableWidth;
}

export function bandLayout(symbols: readonly string[], width: number): BandLayout {
  const natural = naturalWidths(symbols);
  const ratio = width / Math.max(1, sum(natural));
  const crowded = ratio < MIN_SCALE - 1e-6;
  const widths = ratio < 1 && !crowded ? natural.map((each) => each * ratio) : distributeWidths(natural, width, MAX_CELL);
  const start = (width - sum(widths)) / 2;
  const edges = cellEdges(widths).map((index) => index + start);
  let interval = 1;
  const cell = widths[0] ?? width;
  if (crowded) for (const step of [5, 10, 20, 50, 100, 200, 500]) if (cell * (interval = step) >= NUMBER_WIDTH) break;
  return {
    edges,
    interval,
    fontSize: FONT_SIZE * (crowded ? 1 : Math.min(1, ratio)),
    middle: (at) => ((edges[at] ?? 0) + (edges[at + 1] ?? 0)) / 2,
    width: (at) => (edges[at + 1] ?? 0) - (edges[at] ?? 0),
  };
}

/** Labels that do not overlap, largest values first. */
export function nonOverlapping(labels: readonly { index: number; value: number }[], middle: (index: number) => number, minDistance: number): Set<number> {
  const selected: number[] = [];
  for (const { index } of labels) {
    if (selected.every((other) => Math.abs(middle(other) - middle(index)) >= minDistance)) selected.push(index);
  }
  return new Set(selected);
}
