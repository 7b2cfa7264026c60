/** Confusion table of the most frequent errors. */
import { gridFromRows } from "../data/arrays";
import type { ConfusionCount } from "../data/contents";
import { confusionKey } from "../selection/exampleRows";
import { renderFigure } from "../drawing/figure";
import type { PanelFiles } from "../files/export";
import { tikzHeatMap } from "../files/tikz";

const MOST = 14;

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
function counted(of: readonly ConfusionCount[], pick: (each: ConfusionCount) => string | null): (string | null)[] {
  const times = new Map<string | null, number>();
  for (const each of of) times.set(pick(each), (times.get(pick(each)) ?? 0) + each.count);
  return [...times].sort((a, b) => b[1] - a[1]).map(([symbol]) => symbol);
}
function ordered(kept: readonly (string | null)[]): (string | null)[] {
  return [...kept.filter((symbol) => symbol !== null).sort(), ...kept.filter((symbol) => symbol === null)];
}

/** Builds the table; if `square`, rows and columns are the same symbols. */
export function confusionTable(of: readonly ConfusionCount[], square = false): ConfusionTable {
  const cells = new Map(of.map((each) => [confusionKey(each.expected, each.predicted), each]));
  const at = (row: string | null, column: string | null) => cells.get(confusionKey(row, column));
  const sides = [counted(of, (each) => each.expected), counted(of, (each) => each.predicted)] as const;
  const [expected, written] = [sides[0].slice(0, MOST), sides[1].slice(0, MOST)];
  // A symbol may have many errors with rare symbols, which are not in the table.
  const some = [expected.filter((row) => written.some((column) => at(row, column))), written.filter((column) => expected.some((row) => at(row, column)))] as const;
  const both = [...new Set(some.flat())];
  const [rows, columns] = square ? [ordered(both), ordered(both)] : [ordered(some[0]), ordered(some[1])];
  return {
    rows,
    columns,
    at,
    note: sides.some((all) => all.length > MOST) ? `of the ${rows.length} expected and ${columns.length} predicted symbols with the most errors; the list is complete` : "",
    maximum: of.reduce((maximum, each) => Math.max(maximum, each.count), 1),
  };
}

/** Shade of an error count, from 0 to 1. */
export const errorShade = (times: number, maximum: number): number => 0.12 + (0.58 * times) / maximum;

/** Files of all errors; the figure shows the frequent ones. `written` is the heading of the columns. */
export function confusionFiles(of: readonly ConfusionCount[], written: string, name: (symbol: string | null) => string): PanelFiles {
  const { rows, columns, at, maximum, note } = confusionTable(of);
  const cells = rows.map((row) => columns.map((column) => at(row, column)?.count ?? 0));
  const [heads, expected] = [columns.map(name), rows.map(name)];
  return {
    name: "confusions",
    picture: renderFigure([{
      title: note ? `Confusions ${note}` : "Confusions", across: written, down: "expected", heads, size: [32, 26],
      rows: cells.map((line, row) => [expected[row]!, line.map((times) => (times ? { text: `${times}`, fill: "var(--wrong)", shade: errorShade(times, maximum) } : { text: "", fill: "var(--raised)" }))]),
    }]),
    data: of,
    table: [["expected", "predicted", "count", "of"], ...of.map((each) => [each.expected ?? "", each.predicted ?? "", each.count, each.expected === null ? "" : each.num_expected])],
    tex: tikzHeatMap(gridFromRows(cells.map((line) => line.map((times) => times / maximum))), expected, heads, { told: cells, sides: [written, "expected"], key: "" }),
  };
}
