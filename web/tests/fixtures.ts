// Small traces and examples.

import { encodeGrid, gridFromRows } from "../src/data/arrays";
import views from "./views.json" with { type: "json" };
import type { SearchTree, EditOperation, PageExample, TaskView, Trace } from "../src/data/contents";

export function trace(target: string, source: string, weights?: number[][]): Trace {
  const symbols = [...target];
  const rows = weights ?? symbols.map((_, step) => [...source].map((_, at) => (at === step % source.length ? 1 : 0)));
  const logs = symbols.map((_, step) => -0.1 * (step + 1));
  return {
    version: 2,
    text: source,
    source: [...source],
    num_features: 0,
    unknown: [],
    target: symbols,
    output: target,
    finished: true,
    score: logs.reduce((sum, value) => sum + value, 0),
    log_probabilities: { ...encodeGrid(gridFromRows([logs])), shape: [logs.length] },
    attention: encodeGrid(gridFromRows(rows)),
    top: symbols.map((symbol) => [[symbol, -0.1]]),
    entropy: { ...encodeGrid(gridFromRows([logs.map((value) => -value)])), shape: [logs.length] },
    origin: "search",
    rank: 1,
    probability: null,
    search_score: null,
    pair_ngram_score: null,
    confidence: null,
    unknown_target: [],
    forced: [],
    forced_attention: [],
    search_tree: null,
    heads: null,
    summed_features: [],
    alignment: [],
    attribution: null,
    states: null,
    entropy_is_lower_bound: false,
    task: "transduce",
    hop_weights: null,
  };
}

export function example(text: string, output: string, reference: string | null, edits: EditOperation[] = []): PageExample {
  const wrong = edits.filter((edit) => edit.kind !== "same").length;
  return {
    text,
    features: [],
    traces: [trace(output, text)],
    references: reference === null ? [] : [reference],
    edits,
    errors: reference === null ? null : wrong,
    exact: reference === null ? null : output === reference,
    line: null,
    row_id: "",
    gold_alignment: null,
  };
}

const vector = (values: number[]) => ({ ...encodeGrid(gridFromRows([values])), shape: [values.length] });
/** Beam whose best hypothesis is “ac”; “b” is finished, too. */
export const beam: SearchTree = {
  symbols: ["a", "b", "c", "⟨end⟩", "d"],
  parents: [-1, -1, 0, 1, 0],
  log_probabilities: vector([-0.5, -1, -0.25, -0.5, -3]),
  scores: vector([-0.5, -1, -0.75, -1.5, -3.5]),
  statuses: ["kept", "kept", "kept", "ended", "pruned"],
  attention_rows: [0, 0, 1, 2, 1],
  attention: encodeGrid(gridFromRows([[1, 0], [0.25, 0.75], [0, 1]])),
  leaf: 2,
};

/** Views of the built-in tasks, as pellucid/tasks defines them; tests/test_viewer_typescript.py compares the file. */
export const VIEWS: Record<string, TaskView> = views;
