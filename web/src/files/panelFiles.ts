/** Files of a panel: tables, values and figures. */
import { row, type Grid } from "../data/arrays";
import type { EditOperation, Trace } from "../data/contents";
import type { PanelFiles } from "./export";
import { outputSteps, type OutputStep } from "../data/steps";
import { withoutIsolates } from "../drawing/symbols";
import { tagFigure } from "./figures";
import { tikzHeatMap } from "./tikz";

/** Files of attention weights. The JSON file contains `fullTrace`, if it is given. */
export function weightFiles(name: string, trace: Trace, weights: Grid, picture: PanelFiles["picture"], fullTrace?: Trace): PanelFiles {
  const rows = Array.from({ length: weights.rows }, (_, step) => Array.from(row(weights, step)));
  const plainName = withoutIsolates(name);
  return {
    name,
    picture,
    data: { ...fullTrace, title: plainName, source: trace.source, target: trace.target, weights: rows },
    table: [[plainName, ...trace.source], ...rows.map((values, step) => [trace.target[step] ?? "", ...values.map((value) => Number(value.toFixed(6)))])],
    tex: `% ${plainName}\n${tikzHeatMap(weights, trace.target, trace.source, { unknown: trace.unknown })}`,
  };
}

/** Files of output steps with their candidates. */
export function stepFiles(name: string, all: readonly OutputStep[], picture: string): PanelFiles {
  const header = ["step", "symbol", "probability", "entropy in bits", "expected", "forced", "attention forced", "most probable"];
  return {
    name,
    picture,
    data: all,
    table: [
      header,
      ...all.map((step) => [
        step.index + 1, step.symbol, step.probability, step.entropy, step.expected ?? "", `${step.forced}`, `${step.attentionForced}`,
        step.candidates.map(({ symbol, probability }) => `${symbol} ${probability.toFixed(4)}`).join("; "),
      ]),
    ],
  };
}

/** Files of a tagged source; tags that differ from `otherTags` are framed. */
export function tagFiles(name: string, trace: Trace, edits: readonly EditOperation[], otherTags: readonly string[] | null = null): PanelFiles {
  const all = outputSteps(trace, edits);
  return { ...stepFiles(`${name} ${trace.output}`, all, tagFigure(name, all, trace.source.slice(trace.num_features), otherTags)), title: name };
}
