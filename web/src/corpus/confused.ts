/** Which symbols were written for which, as a table of the frequent ones. Pure. */
import { gridOf } from "../data/blocks";
import type { Confusion } from "../data/contents";
import { keyOf } from "../selection/browse";
import { figure } from "../drawing/sheet";
import type { Files } from "../files/export";
import { heatMap } from "../files/tikz";

const MOST = 14;

export interface Confused {
  /** What was expected and what was written, of those in most errors; null, which is nothing, comes last. */
  readonly rows: (string | null)[];
  readonly columns: (string | null)[];
  readonly at: (row: string | null, column: string | null) => Confusion | undefined;
  /** The greatest number. */
  readonly most: number;
  /** What is left out, or "". */
  readonly note: string;
}

/** How often each was expected, or written, wrongly; the commonest first. */
function counted(of: readonly Confusion[], pick: (each: Confusion) => string | null): (string | null)[] {
  const times = new Map<string | null, number>();
  for (const each of of) times.set(pick(each), (times.get(pick(each)) ?? 0) + each.times);
  return [...times].sort((a, b) => b[1] - a[1]).map(([symbol]) => symbol);
}
function ordered(kept: readonly (string | null)[]): (string | null)[] {
  return [...kept.filter((symbol) => symbol !== null).sort(), ...kept.filter((symbol) => symbol === null)];
}

/** `square`: the rows are the columns, so that what is correct stands on the diagonal. */
export function confused(of: readonly Confusion[], square = false): Confused {
  const cells = new Map(of.map((each) => [keyOf(each.wanted, each.written), each]));
  const at = (row: string | null, column: string | null) => cells.get(keyOf(row, column));
  const sides = [counted(of, (each) => each.wanted), counted(of, (each) => each.written)] as const;
  const [wanted, written] = [sides[0].slice(0, MOST), sides[1].slice(0, MOST)];
  // A symbol may be common for its errors with many rare ones, which are not in the table.
  const some = [wanted.filter((row) => written.some((column) => at(row, column))), written.filter((column) => wanted.some((row) => at(row, column)))] as const;
  const both = [...new Set(some.flat())];
  const [rows, columns] = square ? [ordered(both), ordered(both)] : [ordered(some[0]), ordered(some[1])];
  return {
    rows,
    columns,
    at,
    note: sides.some((all) => all.length > MOST) ? `of the ${rows.length} expected and ${columns.length} predicted symbols with the most errors; the list has all` : "",
    most: of.reduce((most, each) => Math.max(most, each.times), 1),
  };
}

/** How red a number of errors is, of 1. */
export const redness = (times: number, most: number): number => 0.12 + (0.58 * times) / most;

/** All errors as files; the figure has the frequent ones. `written` is what the columns are. */
export function confusedFiles(of: readonly Confusion[], written: string, name: (symbol: string | null) => string): Files {
  const { rows, columns, at, most, note } = confused(of);
  const cells = rows.map((row) => columns.map((column) => at(row, column)?.times ?? 0));
  const [heads, wanted] = [columns.map(name), rows.map(name)];
  return {
    name: "confusions",
    picture: figure([{
      title: note ? `Confusions ${note}` : "Confusions", across: written, down: "expected", heads, size: [32, 26],
      rows: cells.map((line, row) => [wanted[row]!, line.map((times) => (times ? { text: `${times}`, fill: "var(--wrong)", shade: redness(times, most) } : { text: "", fill: "var(--raised)" }))]),
    }]),
    data: of,
    table: [["expected", "predicted", "count", "of"], ...of.map((each) => [each.wanted ?? "", each.written ?? "", each.times, each.wanted === null ? "" : each.of])],
    tex: heatMap(gridOf(cells.map((line) => line.map((times) => times / most))), wanted, heads, { told: cells, sides: [written, "expected"], key: "" }),
  };
}
