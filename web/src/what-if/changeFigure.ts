/** Figure and table of the outputs before and after a change. */
import { taskViewOf } from "../data/taskView";
import type { Trace } from "../data/contents";
import { formatProbability } from "../drawing/scales";
import { renderFigure, type FigureCell } from "../drawing/figure";
import { visibleSymbol } from "../drawing/symbols";
import { hasProbability, stepNumber, type StepChange } from "./summary";

/** Changed symbols; not errors. */
const MARKED: FigureCell = { fill: "var(--accent)", fillOpacity: 0.16, color: "var(--accent)" };

/** Table of the steps, with forced symbols and attention overrides. */
export function changeTable(newTrace: Trace, all: readonly StepChange[], hasOwnPrefix: boolean): (string | number)[][] {
  const overriddenKinds = ({ newStep }: StepChange): string => (newStep === null ? "" : [newTrace.forced.includes(newStep) ? "symbol" : [], newTrace.forced_attention.includes(newStep) ? "attention" : []].flat().join(" and "));
  return [
    ["step", "before", "after", "p before", `p after, along ${hasOwnPrefix ? "its own output" : "the output before"}`, "KL in bits", "forced after"],
    ...all.map((each) => [stepNumber(each), each.oldSymbol ?? "", each.newSymbol ?? "", each.oldProbability ?? "", each.newProbability ?? "", each.divergence ?? "", overriddenKinds(each)]),
  ];
}

/** Figure of the steps; without probabilities if none can be compared. */
export function changeFigure(title: string, oldTrace: Trace, newTrace: Trace, all: readonly StepChange[]): string {
  const symbolCell = (trace: Trace, step: number | null, pairedSymbol: string | undefined): FigureCell =>
    step === null ? { text: "–", ...MARKED } : { text: visibleSymbol(trace.target[step]!), ...(trace.target[step] !== pairedSymbol && MARKED), frameColor: trace.forced.includes(step) ? "var(--gold)" : undefined };
  const probabilityBar = (value: number | null): FigureCell => (value === null ? {} : { text: formatProbability(value), bar: value });
  return renderFigure([{
    title,
    xTitle: taskViewOf(oldTrace).per_position ? "source" : "output",
    headers: all.map((each) => `${stepNumber(each)}`),
    rows: [
      ["before", all.map((each) => symbolCell(oldTrace, each.step, each.newSymbol))],
      ["after", all.map((each) => symbolCell(newTrace, each.newStep, each.oldSymbol))],
      ...(all.some(hasProbability)
        ? [
            ["p before", all.map(({ oldProbability }) => probabilityBar(oldProbability))] as const,
            ["p after", all.map(({ newProbability }) => probabilityBar(newProbability))] as const,
            ["KL divergence, bits", all.map(({ divergence }) => (divergence === null ? {} : { text: divergence.toFixed(2) }))] as const,
          ]
        : []),
    ],
    size: [44, 26],
  }]);
}
