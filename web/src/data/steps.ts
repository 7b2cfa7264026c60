/** Output steps with probabilities, candidates and errors. */
import { decodeArray } from "./arrays";
import type { EditOperation, Trace } from "./contents";

/** Name of the end symbol. */
export const END = "⟨end⟩";

/** Separator of output symbols: a space if they are words. */
export function symbolSeparator({ target, output }: Trace): string {
  const written = target.filter((symbol) => symbol !== END);
  return written.length > 1 && written.join(" ") === output ? " " : "";
}

/** Symbol expected at an edit: for an insertion, the next symbol of the reference or the end. */
export function expectedSymbol(edits: readonly EditOperation[], index: number): string {
  return edits.slice(index).find((edit) => edit.expected !== null)?.expected ?? END;
}

export interface Candidate {
  readonly symbol: string;
  readonly probability: number;
  readonly isExpected: boolean;
}

export interface OutputStep {
  readonly index: number;
  readonly symbol: string;
  readonly probability: number;
  /** In bits. */
  readonly entropy: number;
  readonly candidates: Candidate[];
  readonly kind: "same" | "substitution" | "insertion" | "unknown";
  /** Expected symbol, also at an insertion; null if unknown. */
  readonly expected: string | null;
  /** Missing symbols before this step. */
  readonly missing: string[];
  readonly forced: boolean;
  readonly attentionForced: boolean;
}

/** Steps of an output; `edits` are empty without a reference. */
export function outputSteps(trace: Trace, edits: readonly EditOperation[]): OutputStep[] {
  const [logProbabilities, entropy] = [decodeArray(trace.log_probabilities), decodeArray(trace.entropy)];
  const [forced, attentionForced] = [new Set(trace.forced), new Set(trace.forced_attention)];
  const editsByStep = new Map<number, { edit: EditOperation; missing: string[]; expected: string }>();
  let missing: string[] = [];
  for (const [index, edit] of edits.entries()) {
    if (edit.step === null) missing.push(edit.expected ?? "");
    else {
      editsByStep.set(edit.step, { edit, missing, expected: expectedSymbol(edits, index) });
      missing = [];
    }
  }
  return trace.target.map((symbol, index) => {
    const aligned = editsByStep.get(index);
    const isLast = index === trace.target.length - 1;
    const kind = aligned?.edit.kind;
    // Symbols missing at the end precede the end symbol.
    const before = aligned?.missing ?? (isLast ? missing : []);
    const expected = aligned?.expected ?? (isLast && edits.length > 0 ? END : null);
    return {
      index,
      symbol,
      probability: Math.exp(logProbabilities[index] ?? 0),
      entropy: entropy[index] ?? 0,
      candidates: (trace.top[index] ?? []).slice(0, 5).map(([other, logProbability]) => ({
        symbol: other,
        probability: Math.exp(logProbability),
        isExpected: expected === other || before[0] === other,
      })),
      kind: kind === undefined || kind === "deletion" ? "unknown" : kind,
      expected: aligned?.expected ?? null,
      missing: before,
      forced: forced.has(index),
      attentionForced: attentionForced.has(index),
    };
  });
}

/** Step to select first: the first error, else the least probable step. */
export function leastCertainStep(steps: readonly OutputStep[]): number {
  const wrong = steps.find((step) => step.kind === "substitution" || step.kind === "insertion" || step.missing.length > 0);
  if (wrong) return wrong.index;
  return steps.reduce((minimum, step) => (step.probability < (steps[minimum]?.probability ?? 2) ? step.index : minimum), 0);
}

/** Minimum edit alignment of two outputs; null for an unpaired step. */
export function alignSteps(before: readonly string[], after: readonly string[]): [number | null, number | null][] {
  const [rows, numColumns] = [before.length, after.length + 1];
  // Edit distance from step i of one and step j of the other to their ends.
  const costs = new Uint32Array((rows + 1) * numColumns);
  const cost = (i: number, j: number): number => costs[i * numColumns + j] ?? 0;
  const substitutionCost = (i: number, j: number): number => cost(i + 1, j + 1) + (before[i] === after[j] ? 0 : 1);
  for (let i = rows; i >= 0; i--) {
    for (let j = after.length; j >= 0; j--) {
      const left = rows - i + after.length - j;
      costs[i * numColumns + j] = i < rows && j < after.length ? Math.min(substitutionCost(i, j), cost(i + 1, j) + 1, cost(i, j + 1) + 1) : left;
    }
  }
  const pairs: [number | null, number | null][] = [];
  for (let [i, j] = [0, 0]; i < rows || j < after.length; ) {
    if (i < rows && j < after.length && cost(i, j) === substitutionCost(i, j)) pairs.push([i++, j++]);
    else if (i < rows && cost(i, j) === cost(i + 1, j) + 1) pairs.push([i++, null]);
    else pairs.push([null, j++]);
  }
  return pairs;
}
