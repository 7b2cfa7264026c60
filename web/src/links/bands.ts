/** The two bands of a links picture: source cells above, output cells below, centered on each other. */
import { cellEdges, distributeWidths } from "../drawing/layout";
import { textWidth } from "../drawing/symbols";

export interface BandLayout {
  /** Edges of the cells, one more than there are. */
  readonly places: number[];
  /** Every so many cells carry a label. */
  readonly every: number;
  /** Place of a cell's middle. */
  /** Size of the letters. */
  readonly letter: number;
  readonly middle: (cell: number) => number;
  readonly width: (cell: number) => number;
}

const LETTER = 15;
/** The room that the number of a place takes. */
const NUMBER = 34;
const MOST = 76;
/** Letters and cells shrink together to this share: smaller ones are not read any more. */
const SHRINK = 0.62;
/** How much wider than the window a picture may then get before numbers take the place of letters: a few swipes. */
const SCROLL = 2;

export function naturalWidths(symbols: readonly string[]): number[] {
  return symbols.map((symbol) => Math.max(13, textWidth(symbol) * LETTER + 5));
}

const sum = (values: readonly number[]): number => values.reduce((left, value) => left + value, 0);

/** The width of the picture: the window's, or what the symbols need where that is not much more. */
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

/** Which of some numbers to write so that none covers another: the greatest first. */
export function nonOverlapping(places: readonly { place: number; value: number }[], middle: (place: number) => number, room: number): Set<number> {
  const chosen: number[] = [];
  for (const { place } of places) {
    if (chosen.every((other) => Math.abs(middle(other) - middle(place)) >= room)) chosen.push(place);
  }
  return new Set(chosen);
}
