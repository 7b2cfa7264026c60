/** Where the parts of a heat map lie: labels left and above, cells, sums below. */
import { labelInterval, rangeSize, type IndexRange } from "../drawing/layout";
import { textWidth, repeatNumbers } from "../drawing/symbols";

export interface HeatMapLayout {
  /** Of the cells' upper left corner. */
  readonly left: number;
  readonly top: number;
  readonly cell: { readonly width: number; readonly height: number };
  /** What stands over to the right: the last label, where labels are turned. */
  readonly right: number;
  /** Of the cells together. */
  readonly width: number;
  readonly height: number;
  /** Every so many columns and rows carry a label; where that is not every one, the number of its place. */
  readonly every: { readonly columns: number; readonly rows: number };
  /** Sizes of the letters. */
  readonly letter: { readonly columns: number; readonly rows: number };
  /** Whether the labels above stand aslant, because they are wider than their cells. */
  readonly turned: boolean;
}

const LETTER = 14;
/** The smallest letters that can be read, and the room that the number of a place takes. */
const LEAST = 9.5;
const NUMBER = 32;
const MOST = 30;
const TALLEST = 560;
/** Half of how wide a digit of such a number is drawn, at most. */
const DIGIT = 3.7;
/** Of the sums below the cells. */
export const SUMS_HEIGHT = 34;

/** How wide the small number of a symbol that comes several times is, a digit. */
const ORDINAL = 5.1;
const widest = (symbols: readonly string[], numbers: readonly (number | null)[] = []): number =>
  symbols.reduce((most, symbol, at) => Math.max(most, textWidth(symbol) * LETTER + ORDINAL * `${numbers[at] ?? ""}`.length), 0);

const letter = (cell: number): number => Math.max(LEAST, Math.min(LETTER, cell * 1.1));
/** The narrowest cell that has room for a letter. */
const FITTING = 0.85 * LEAST;

export function heatMapLayout(reads: readonly string[], writes: readonly string[], columns: IndexRange, rows: IndexRange, room: number): HeatMapLayout {
  const left = Math.ceil(Math.min(Math.max(26, widest(writes, repeatNumbers(writes)) + 10), room * 0.3, 150));
  const above = widest(reads);
  const free = Math.max(40, room - left - 2);
  const [across, down] = [Math.max(1, rangeSize(columns)), Math.max(1, rangeSize(rows))];
  // Words stand aslant and let cells stay narrow; letters want cells as wide as they are.
  const crowded = free / across < FITTING;
  const turned = !crowded && (above > MOST - 4 || (above > free / across && above > 1.3 * LETTER));
  // Where columns are numbered, half of the last number stands over.
  const right = turned ? Math.ceil(Math.min(60, textWidth(reads[columns.to - 1] ?? "") * LETTER * 0.5 + 6, free / 4)) : crowded ? DIGIT * `${columns.to}`.length : 0;
  const cellWidth = Math.min(MOST, (free - right) / across);
  const cellHeight = Math.min(MOST, Math.max(Math.min(cellWidth, MOST), Math.min(18, TALLEST / down)), TALLEST / down);
  return {
    left,
    right,
    top: Math.ceil(turned ? Math.min(110, above * 0.87 + 12) : 22),
    cell: { width: cellWidth, height: cellHeight },
    width: cellWidth * across,
    height: cellHeight * down,
    every: { columns: labelInterval(cellWidth, FITTING, NUMBER), rows: labelInterval(cellHeight, FITTING, 14) },
    letter: { columns: letter(cellWidth), rows: letter(cellHeight) },
    turned,
  };
}

/** The cell under a place of the picture; null where it lies outside the cells. */
export function cellAtPoint(of: HeatMapLayout, x: number, y: number, columns: IndexRange, rows: IndexRange): [number | null, number | null] {
  const column = Math.floor((x - of.left) / of.cell.width);
  const step = Math.floor((y - of.top) / of.cell.height);
  const inside = (place: number, range: IndexRange): number | null => (place >= 0 && place < rangeSize(range) ? place + range.from : null);
  return [inside(step, rows), inside(column, columns)];
}
