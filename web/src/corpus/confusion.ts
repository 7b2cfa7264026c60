/** Confusion table of the most frequent errors. */
import { gridFromRows } from "../data/arrays";
import type { ConfusionCount } from "../data/contents";
import { confusionKey } from "../selection/exampleRows";
import { renderFigure } from "../drawing/figure";
import type { PanelFiles } from "../files/export";
import { tikzHeatMap } from "../files/tikz";

const MAX_SYMBOLS = 14;

export interface ConfusionTable {
  /** Expected and predicted symbols with the most errors; null (no symbol) is last. */
  readonly rows: (string | null)[];
  readonly columns: (string | null)[];
  readonly at: (row: string | null, column: string | null) => ConfusionCount | undefined;
  /** Maximum count. */
  readonly maximum: number;
  /** Note on omitted symbols, or "". */
  readonly note: string;
}

/** Error counts per symbol, most frequent first. */
function symbolsByCount(confusions: readonly ConfusionCount[], pick: (each: ConfusionCount) => string | null): (string | null)[] {
  const times = new Map<string | null, number>();
  for (const each of confusions) times.set(pick(each), (times.get(pick(each)) ?? 0) + each.count);
  return [...times].sort((a, b) => b[1] - a[1]).map(([symbol]) => symbol);
}
function sortSymbols(symbols: readonly (string | null)[]): (string | null)[] {
  return [...symbols.filter((symbol) => symbol !== null).sort(), ...symbols.filter((symbol) => symbol === null)];
}

/** Builds the table; if `square`, rows and columns are the same symbols. */
export function confusionTable(confusions: readonly ConfusionCount[], square = false): ConfusionTable {
  const cells = new Map(confusions.map((each) => [confusionKey(each.expected, each.predicted), each]));
  const at = (row: string | null, column: string | null) => cells.get(confusionKey(row, column));
  const sides = [symbolsByCount(confusions, (each) => each.expected), symbolsByCount(confusions, (each) => each.predicted)] as const;
  const [expected, predicted] = [sides[0].slice(0, MAX_SYMBOLS), sides[1].slice(0, MAX_SYMBOLS)];
  // A symbol may have many errors with rare symbols, which are not in the table.
  const frequent = [expected.filter((row) => predicted.some((column) => at(row, column))), predicted.filter((column) => expected.some((row) => at(row, column)))] as const;
  const union = [...new Set(frequent.flat())];
  const [rows, columns] = square ? [sortSymbols(union), sortSymbols(union)] : [sortSymbols(frequent[0]), sortSymbols(frequent[1])];
  return {
    rows,
    columns,
    at,
    note: sides.some((all) => all.length > MAX_SYMBOLS) ? `of the ${rows.length} expected and ${columns.length} predicted symbols with the most errors; the list is complete` : "",
    maximum: confusions.reduce((maximum, each) => Math.max(maximum, each.count), 1),
  };
}

/** Shade of an error count, from 0 to 1. */
export const errorShade = (times: number, maximum: number): number => 0.12 + (0.58 * times) / maximum;

/** Files of all errors; the figure shows the frequent ones. `predicted` is the heading of the columns. */
export function confusionFiles(confusions: readonly ConfusionCount[], predicted: string, name: (symbol: string | null) => string): PanelFiles {
  const { rows, columns, at, maximum, note } = confusionTable(confusions);
  const cells = rows.map((row) => columns.map((column) => at(row, column)?.count ?? 0));
  const [headers, expected] = [columns.map(name), rows.map(name)];
  return {
    name: "confusions",
    picture: renderFigure([{
      title: note ? `Confusions ${note}` : "Confusions", xTitle: predicted, yTitle: "expected", headers, size: [32, 26],
      rows: cells.map((line, row) => [expected[row]!, line.map((times) => (times ? { text: `${times}`, fill: "var(--wrong)", fillOpacity: errorShade(times, maximum) } : { text: "", fill: "var(--raised)" }))]),
    }]),
    data: confusions,
    table: [["expected", "predicted", "count", "of"], ...confusions.map((each) => [each.expected ?? "", each.predicted ?? "", each.count, each.expected === null ? "" : each.num_expected])],
    tex: tikzHeatMap(gridFromRows(cells.map((line) => line.map((times) => times / maximum))), expected, headers, { labels: cells, axisTitles: [predicted, "expected"], colorKey: "" }),
  };
}
