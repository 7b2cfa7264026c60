/** Both answers of a what-if, one above the other, as a figure: changed symbols are marked. */
import { viewOf } from "../data/task";
import type { Trace } from "../data/contents";
import { probability } from "../drawing/scales";
import { figure, type Cell } from "../drawing/sheet";
import { shown } from "../drawing/symbols";
import { comparable, numbered, type Change } from "./sentence";

/** What changed: new, and not wrong for that. */
const MARKED: Cell = { fill: "var(--accent)", shade: 0.16, ink: "var(--accent)" };

/** The same as a table, which also says what was given: a step's symbol, its attention, or both. */
export function changeTable(now: Trace, all: readonly Change[], own: boolean): (string | number)[][] {
  const given = ({ place }: Change): string => (place === null ? "" : [now.forced.includes(place) ? "symbol" : [], now.painted.includes(place) ? "attention" : []].flat().join(" and "));
  return [
    ["step", "before", "after", "p before", `p after, along ${own ? "its own output" : "the output before"}`, "KL in bits", "given after"],
    ...all.map((each) => [numbered(each), each.symbol ?? "", each.now ?? "", each.before ?? "", each.after ?? "", each.divergence ?? "", given(each)]),
  ];
}

/** Without probabilities where none can be compared. */
export function changeFigure(title: string, was: Trace, now: Trace, all: readonly Change[]): string {
  const symbol = (of: Trace, place: number | null, other: string | undefined): Cell =>
    place === null ? { text: "–", ...MARKED } : { text: shown(of.target[place]!), ...(of.target[place] !== other && MARKED), edge: of.forced.includes(place) ? "var(--gold)" : undefined };
  const share = (value: number | null): Cell => (value === null ? {} : { text: probability(value), bar: value });
  return figure([{
    title,
    across: viewOf(was).per_position ? "source" : "output",
    heads: all.map((each) => `${numbered(each)}`),
    rows: [
      ["before", all.map((each) => symbol(was, each.step, each.now))],
      ["after", all.map((each) => symbol(now, each.place, each.symbol))],
      ...(all.some(comparable)
        ? [
            ["p before", all.map(({ before }) => share(before))] as const,
            ["p after", all.map(({ after }) => share(after))] as const,
            ["KL, bits", all.map(({ divergence }) => (divergence === null ? {} : { text: divergence.toFixed(2) }))] as const,
          ]
        : []),
    ],
    size: [44, 26],
  }]);
}
