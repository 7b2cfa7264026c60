/** Both answers of a what-if, one above the other, as a figure: changed symbols are marked. */
import type { Trace } from "../data/contents";
import { probability } from "../drawing/scales";
import { figure, type Cell } from "../drawing/sheet";
import { shown } from "../drawing/symbols";
import { MARKED } from "../files/figures";
import { paired, type Change } from "./sentence";

/** `all` is empty where no probabilities can be compared. */
export function changeFigure(title: string, was: Trace, now: Trace, all: readonly Change[]): string {
  const pairs = paired(was.target, now.target);
  const symbol = (of: Trace, place: number | null, other: string | undefined): Cell =>
    place === null ? { text: "–", ...MARKED } : { text: shown(of.target[place]!), ...(of.target[place] !== other && MARKED), edge: of.forced.includes(place) ? "var(--gold)" : undefined };
  const told = (pick: (change: Change) => Cell): Cell[] => pairs.map(([step]) => (step === null || !all[step] ? {} : pick(all[step])));
  return figure([{
    title,
    across: was.task === "tag" ? "reads (source)" : "writes (output)",
    heads: pairs.map(([step]) => (step === null ? "" : `${step + 1}`)),
    rows: [
      ["before", pairs.map(([step, place]) => symbol(was, step, place === null ? undefined : now.target[place]))],
      ["after", pairs.map(([step, place]) => symbol(now, place, step === null ? undefined : was.target[step]))],
      ...(all.length > 0
        ? [
            ["p before", told(({ before }) => ({ text: probability(before), bar: before }))] as const,
            ["p after", told(({ after }) => ({ text: probability(after), bar: after }))] as const,
            ["KL, bits", told(({ divergence }) => ({ text: divergence.toFixed(2) }))] as const,
          ]
        : []),
    ],
    size: [44, 26],
  }]);
}
