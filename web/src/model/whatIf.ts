/** Comparison of the outputs before and after a change, as `compare_what_if` of the server (pellucid/viewer/handlers.py). */
import type { DecodeRequest, PageExample, Trace, WhatIfRequest, WhatIfResponse } from "../data/contents";
import { decodeArray, selectRows, toGrid, encodeGrid } from "../data/arrays";
import { END } from "../data/steps";
import { encodeVector, type ModelPredictor, type StartedSource } from "./predictor";

/** Decodes both requests and compares their first outputs. Throws for an empty source. */
export function compareWhatIf(predictor: ModelPredictor, { before, after }: WhatIfRequest): WhatIfResponse {
  const [start, changedStart] = [predictor.start(before), predictor.start(after)];
  if (!start || !changedStart) throw new Error("Nothing to compare: a source is empty.");
  const [example, changedExample] = [predictor.decode(before), predictor.decode(after)];
  const [trace, changedTrace] = [example.traces[0]!, changedExample.traces[0]!];
  checkForcedAttention(predictor, after, Math.max(trace.target.length, changedTrace.target.length));
  const isPrefixChanged = before.prefix.join("\0") !== after.prefix.join("\0");
  const rescored = predictor.score(changedStart, symbolsOf(isPrefixChanged ? changedTrace : trace));
  return {
    before: withForcedScores(example, predictor.score(start, symbolsOf(trace))),
    after: withForcedScores(changedExample, rescored),
    compared_output: isPrefixChanged ? "after" : "before",
    rescored,
    kl_divergence: encodeVector(divergences(predictor, [start, trace], [changedStart, changedTrace])),
  };
}

const symbolsOf = ({ target }: Trace): string[] => target.filter((symbol) => symbol !== END);

/** KL divergence of the distributions at each step, along both outputs, in bits. */
function divergences(predictor: ModelPredictor, before: [StartedSource, Trace], after: [StartedSource, Trace]): number[] {
  const [old, changed] = [before, after].map(([started, { target }]) => predictor.distributions(started, target));
  return old!.slice(0, changed!.length).map((distribution, step) => klDivergence(distribution, changed![step]!));
}

function klDivergence(before: Float32Array, after: Float32Array): number {
  const sum = before.reduce((total, value, id) => (value > -Infinity ? total + Math.exp(value) * (value - (after[id] ?? -Infinity)) : total), 0);
  return Math.max(0, sum / Math.LN2);
}

/** Example whose first output has the scores of forced decoding, if that is the same output. */
function withForcedScores(example: PageExample, scored: Trace): PageExample {
  const output = example.traces[0]!;
  const steps = output.target.map((_, step) => step);
  if (output.target.some((symbol, step) => symbol !== scored.target[step])) return example;
  const trace = { ...output, log_probabilities: [...decodeArray(scored.log_probabilities)].slice(0, steps.length), attention: encodeGrid(selectRows(toGrid(scored.attention), steps)) };
  return { ...example, traces: [trace, ...example.traces.slice(1)] };
}

/** Throws if no step with forced attention is a step of an output, with or without the forced attention. */
function checkForcedAttention(predictor: ModelPredictor, request: DecodeRequest, numSteps: number): void {
  const first = Math.min(...request.forced_attention.map(({ step }) => step));
  if (request.forced_attention.length === 0 || first < numSteps) return;
  const numUnforcedSteps = predictor.decode({ ...request, forced_attention: [], num_outputs: 1, search_tree: false }).traces[0]!.target.length;
  if (first >= Math.max(numUnforcedSteps, numSteps)) throw new Error(`The attention of step ${first + 1} is set, but the output has ${Math.max(numUnforcedSteps, numSteps)} steps.`);
}
