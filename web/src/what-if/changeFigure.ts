/** Figure and table of the outputs before and after a change. */
import { taskViewOf } from "../data/taskView";
import type { Trace } from "../data/contents";
import { renderFigure, type FigureCell } from "../drawing/figure";
import { visibleSymbol } from "../drawing/symbols";
import { formatCandidate, hasProbability, type CandidateProbability, type StepChange } from "./summary";

/** Changed symbols; not errors. */
const MARKED: FigureCell = { fill: "var(--accent)", fillOpacity: 0.16, color: "var(--accent)" };

/** Probability of the symbol of one output, before or after the change; null without a symbol, and for an equal symbol of the second output. */
function symbolProbability({ symbols, oldSymbol, newSymbol }: StepChange, output: "before" | "after", time: "before" | "after"): CandidateProbability | null {
  if (output === "after" && oldSymbol === newSymbol) return null;
  return symbols.find(({ symbol }) => symbol === (output === "before" ? oldSymbol : newSymbol))?.[time] ?? null;
}
const OUTPUTS = ["before", "after"] as const;
const COLUMNS = OUTPUTS.flatMap((output) => OUTPUTS.map((time) => [output, time] as const));

/** Table of the steps, with forced symbols and forced attention. */
export function changeTable(newTrace: Trace, all: readonly StepChange[]): (string | number)[][] {
  const forcedKinds = ({ step }: StepChange): string => [newTrace.forced.includes(step) ? "symbol" : [], newTrace.forced_attention.includes(step) ? "attention" : []].flat().join(" and ");
  const cellOf = (value: CandidateProbability | null): string | number => (value === null ? "" : value.isBound ? formatCandidate(value) : value.probability);
  const { autoregressive } = taskViewOf(newTrace);
  return [
    ["step", "before", "after", ...COLUMNS.map(([output, time]) => `p(symbol ${output}), ${time} the change${autoregressive && time === "after" ? ", given the output after" : ""}`), "KL in bits", "forced after"],
    ...all.map((each) => [each.step + 1, each.oldSymbol ?? "", each.newSymbol ?? "", ...COLUMNS.map((column) => cellOf(symbolProbability(each, ...column))), each.divergence ?? "", forcedKinds(each)]),
  ];
}

/** Figure of the steps; without probabilities if none can be compared. */
export function changeFigure(title: string, oldTrace: Trace, newTrace: Trace, all: readonly StepChange[]): string {
  const symbolCell = (trace: Trace, step: number, symbol: string | undefined, pairedSymbol: string | undefined): FigureCell =>
    symbol === undefined ? { text: "–", ...MARKED } : { text: visibleSymbol(symbol), ...(symbol !== pairedSymbol && MARKED), frameColor: trace.forced.includes(step) ? "var(--gold)" : undefined };
  const probabilityBar = (value: CandidateProbability | null): FigureCell => (value === null ? {} : { text: formatCandidate(value), bar: value.isBound ? 0 : value.probability });
  return renderFigure([{
    title,
    xTitle: taskViewOf(oldTrace).per_position ? "source" : "output",
    headers: all.map((each) => `${each.step + 1}`),
    rows: [
      ["before", all.map((each) => symbolCell(oldTrace, each.step, each.oldSymbol, each.newSymbol))],
      ["after", all.map((each) => symbolCell(newTrace, each.step, each.newSymbol, each.oldSymbol))],
      ...(all.some(hasProbability)
        ? [
            ...COLUMNS.map(([output, time]) => [`p(${output}), ${time} the change`, all.map((each) => probabilityBar(symbolProbability(each, output, time)))] as const),
            ["KL divergence, bits", all.map(({ divergence }) => (divergence === null ? {} : { text: divergence.toFixed(2) }))] as const,
          ]
        : []),
    ],
    size: [44, 26],
  }]);
}
