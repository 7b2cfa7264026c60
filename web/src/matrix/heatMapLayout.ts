/** Layout of a heat map: labels left and above, cells, sums below. */
import { labelInterval, rangeSize, type IndexRange } from "../drawing/layout";
import { textWidth, repeatNumbers } from "../drawing/symbols";

export interface HeatMapLayout {
  /** Upper left corner of the cells. */
  readonly left: number;
  readonly top: number;
  readonly cell: { readonly width: number; readonly height: number };
  /** Width of the last rotated label beyond the cells. */
  readonly right: number;
  /** Size of all cells. */
  readonly width: number;
  readonly height: number;
  /** Interval between labels; above 1, labels are position numbers. */
  readonly interval: { readonly columns: number; readonly rows: number };
  readonly fontSize: { readonly columns: number; readonly rows: number };
  /** Whether the labels above are rotated, because they are wider than their cells. */
  readonly rotated: boolean;
}

const FONT_SIZE = 14;
/** Minimum font size, and width of a position number. */
const MIN_FONT_SIZE = 9.5;
const NUMBER_WIDTH = 32;
const MAX_CELL = 30;
const MAX_HEIGHT = 560;
/** Half the width of a digit. */
const HALF_DIGIT = 3.7;
/** Height of the sums below the cells. */
export const SUMS_HEIGHT = 34;

/** Width of a digit of a repetition number. */
const ORDINAL_WIDTH = 5.1;
const maxLabelWidth = (symbols: readonly string[], numbers: readonly (number | null)[] = []): number =>
  symbols.reduce((maximum, symbol, at) => Math.max(maximum, textWidth(symbol) * FONT_SIZE + ORDINAL_WIDTH * `${numbers[at] ?? ""}`.length), 0);

const fontSizeOf = (cell: number): number => Math.max(MIN_FONT_SIZE, Math.min(FONT_SIZE, cell * 1.1));
/** Minimum size of a cell that is labeled by its symbol. */
const MIN_LABELED_CELL = 0.85 * MIN_FONT_SIZE;

export function heatMapLayout(source: readonly string[], target: readonly string[], columns: IndexRange, rows: IndexRange, availableWidth: number): HeatMapLayout {
  const left = Math.ceil(Math.min(Math.max(26, maxLabelWidth(target, repeatNumbers(target)) + 10), availableWidth * 0.3, 150));
  const above = maxLabelWidth(source);
  const free = Math.max(40, availableWidth - left - 2);
  const [across, down] = [Math.max(1, rangeSize(columns)), Math.max(1, rangeSize(rows))];
  // Rotated words allow narrow cells; letters need cells of their width.
  const crowded = free / across < MIN_LABELED_CELL;
  const rotated = !crowded && (above > MAX_CELL - 4 || (above > free / across && above > 1.3 * FONT_SIZE));
  // Half of the last number extends beyond the cells.
  const right = rotated ? Math.ceil(Math.min(60, textWidth(source[columns.to - 1] ?? "") * FONT_SIZE * 0.5 + 6, free / 4)) : crowded ? HALF_DIGIT * `${columns.to}`.length : 0;
  const cellWidth = Math.min(MAX_CELL, (free - right) / across);
  const cellHeight = Math.min(MAX_CELL, Math.max(Math.min(cellWidth, MAX_CELL), Math.min(18, MAX_HEIGHT / down)), MAX_HEIGHT / down);
  return {
    left,
    right,
    top: Math.ceil(rotated ? Math.min(110, above * 0.87 + 12) : 22),
    cell: { width: cellWidth, height: cellHeight },
    width: cellWidth * across,
    height: cellHeight * down,
    interval: { columns: labelInterval(cellWidth, MIN_LABELED_CELL, NUMBER_WIDTH), rows: labelInterval(cellHeight, MIN_LABELED_CELL, 14) },
    fontSize: { columns: fontSizeOf(cellWidth), rows: fontSizeOf(cellHeight) },
    rotated,
  };
}

/** Cell at a point of the picture; null outside. */
export function cellAtPoint(layout: HeatMapLayout, x: number, y: number, columns: IndexRange, rows: IndexRange): [number | null, number | null] {
  const column = Math.floor((x - layout.left) / layout.cell.width);
  const step = Math.floor((y - layout.top) / layout.cell.height);
  const inside = (index: number, range: IndexRange): number | null => (index >= 0 && index < rangeSize(range) ? index + range.from : null);
  return [inside(step, rows), inside(column, columns)];
}
