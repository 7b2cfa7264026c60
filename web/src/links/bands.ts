/** Layout of the two symbol bands of a link picture: source above, output below, centered. */
import { cellEdges, distributeWidths } from "../drawing/layout";
import { textWidth } from "../drawing/symbols";

export interface BandLayout {
  /** Cell edges, one more than cells. */
  readonly places: number[];
  /** Interval between labels. */
  readonly every: number;
  /** Font size. */
  readonly letter: number;
  readonly middle: (cell: number) => number;
  readonly width: (cell: number) => number;
}

const LETTER = 15;
/** Width of a position number. */
const NUMBER = 34;
const MOST = 76;
/** Minimum scale of letters and cells. */
const SHRINK = 0.62;
/** Maximum width of a scrolled picture, relative to the window, before numbers replace letters. */
const SCROLL = 2;

export function naturalWidths(symbols: readonly string[]): number[] {
  return symbols.map((symbol) => Math.max(13, textWidth(symbol) * LETTER + 5));
}

const sum = (values: readonly number[]): number => values.reduce((left, value) => left + value, 0);

/** Width of the picture: the window, or the natural width if that is not much more. */
export function pictureWidth(rows: readonly (readonly string[])[], room: number): number {
  const natural = Math.max(0, ...rows.map((symbols) => sum(naturalWidths(symbols))));
  return natural * SHRINK > room && natural <= SCROLL * room ? natural : room;
}

export function bandLayout(symbols: readonly string[], width: number): BandLayout {
  const natural = naturalWidths(symbols);
  const ratio = width / Math.max(1, sum(natural));
  const crowded = ratio < SHRINK - 1e-6;
  const widths = ratio < 1 && !crowded ? natural.map((each) => each * ratio) : distributeWidths(natural, width, MOST);
  const start = (width - sum(widths)) / 2;
  const places = cellEdges(widths).map((place) => place + start);
  let every = 1;
  const cell = widths[0] ?? width;
  if (crowded) for (const step of [5, 10, 20, 50, 100, 200, 500]) if (cell * (every = step) >= NUMBER) break;
  return {
    places,
    every,
    letter: LETTER * (crowded ? 1 : Math.min(1, ratio)),
    middle: (at) => ((places[at] ?? 0) + (places[at + 1] ?? 0)) / 2,
    width: (at) => (places[at + 1] ?? 0) - (places[at] ?? 0),
  };
}

/** Labels that do not overlap, largest values first. */
export function nonOverlapping(places: readonly { place: number; value: number }[], middle: (place: number) => number, room: number): Set<number> {
  const chosen: number[] = [];
  for (const { place } of places) {
    if (chosen.every((other) => Math.abs(middle(other) - middle(place)) >= room)) chosen.push(place);
  }
  return new Set(chosen);
}
