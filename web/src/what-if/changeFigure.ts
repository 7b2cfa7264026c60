/** Figure and table of the outputs before and after a change. */
import { taskViewOf } from "../data/taskView";
import type { Trace } from "../data/contents";
import { formatProbability } from "../drawing/scales";
import { renderFigure, type FigureCell } from "../drawing/figure";
import { visibleSymbol } from "../drawing/symbols";
import { isComparable, stepNumber, type StepChange } from "./summary";

/** Changed symbols; not errors. */
const MARKED: FigureCell = { fill: "var(--accent)", shade: 0.16, ink: "var(--accent)" };

/** Table of the steps, with forced symbols and attention overrides. */
export function changeTable(now: Trace, all: readonly StepChange[], own: boolean): (string | number)[][] {
  const overriddenKinds = ({ newStep }: StepChange): string => (newStep === null ? "" : [now.forced.includes(newStep) ? "symbol" : [], now.forced_attention.includes(newStep) ? "attention" : []].flat().join(" and "));
  return [
    ["step", "before", "after", "p before", `p after, along ${own ? "its own output" : "the output before"}`, "KL in bits", "forced after"],
    ...all.map((each) => [stepNumber(each), each.symbol ?? "", each.now ?? "", each.before ?? "", each.after ?? "", each.divergence ?? "", overriddenKinds(each)]),
  ];
}

/** Figure of the steps; without probabilities if none can be compared. */
export function changeFigure(title: string, was: Trace, now: Trace, all: readonly StepChange[]): string {
  const symbol = (of: Trace, newStep: number | null, other: string | undefined): FigureCell =>
    newStep === null ? { text: "–", ...MARKED } : { text: visibleSymbol(of.target[newStep]!), ...(of.target[newStep] !== other && MARKED), edge: of.forced.includes(newStep) ? "var(--gold)" : undefined };
  const share = (value: number | null): FigureCell => (value === null ? {} : { text: formatProbability(value), bar: value });
  return renderFigure([{
    title,
    across: taskViewOf(was).per_position ? "source" : "output",
    heads: all.map((each) => `${stepNumber(each)}`),
    rows: [
      ["before", all.map((each) => symbol(was, each.step, each.now))],
      ["after", all.map((each) => symbol(now, each.newStep, each.symbol))],
      ...(all.some(isComparable)
        ? [
            ["p before", all.map(({ before }) => share(before))] as const,
            ["p after", all.map(({ after }) => share(after))] as const,
            ["KL divergence, bits", all.map(({ divergence }) => (divergence === null ? {} : { text: divergence.toFixed(2) }))] as const,
          ]
        : []),
    ],
    size: [44, 26],
  }]);
}
