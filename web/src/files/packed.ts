/** What a panel's files hold: plain tables and values, made when they are asked for. */
import { row, type Grid } from "../data/blocks";
import type { Edit, Trace } from "../data/contents";
import type { Files } from "./export";
import { steps, type Step } from "../data/steps";
import { tagFigure } from "./figures";
import { heatMap } from "./tikz";

/** Weights with their symbols, as every form; each says what it is. Where they are of a `whole` trace, the JSON is that of the trace, with them beside it. */
export function weightFiles(name: string, trace: Trace, weights: Grid, picture: Files["picture"], whole?: Trace): Files {
  const rows = Array.from({ length: weights.rows }, (_, step) => Array.from(row(weights, step)));
  return {
    name,
    picture,
    data: { ...whole, title: name, source: trace.source, target: trace.target, weights: rows },
    table: [[name, ...trace.source], ...rows.map((values, step) => [trace.target[step] ?? "", ...values.map((value) => Number(value.toFixed(6)))])],
    tex: `% ${name}\n${heatMap(weights, trace.target, trace.source, { unknown: trace.unknown })}`,
  };
}

/** The steps with what each candidates, and a figure of them. */
export function stepFiles(name: string, all: readonly Step[], picture: string): Files {
  const head = ["step", "symbol", "probability", "entropy in bits", "expected", "forced", "painted", "most probable"];
  return {
    name,
    picture,
    data: all,
    table: [
      head,
      ...all.map((step) => [
        step.place + 1, step.symbol, step.probability, step.entropy, step.wanted ?? "", `${step.forced}`, `${step.painted}`,
        step.choices.map(({ symbol, probability }) => `${symbol} ${probability.toFixed(4)}`).join("; "),
      ]),
    ],
  };
}

/** The tags of one source; those unlike `beside` are framed. */
export function tagFiles(name: string, trace: Trace, edits: readonly Edit[], beside: readonly string[] | null = null): Files {
  const all = steps(trace, edits);
  return { ...stepFiles(`${name} ${trace.output}`, all, tagFigure(name, all, trace.source.slice(trace.features), beside)), title: name };
}
