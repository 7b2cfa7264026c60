// Path of the reference in the beam: scored lower by the model, or lost by the search.
import { decodeArray } from "../data/arrays";
import type { SearchTree } from "../data/contents";
import { END } from "../data/steps";
import { formatDecimal } from "../drawing/scales";
import { quoteSymbol } from "../drawing/symbols";

/** Nodes of the reference in the beam, and the first symbol that is missing; null if all are there. */
export function followReference({ symbols, parents, statuses }: SearchTree, expected: readonly string[]): { path: number[]; missingSymbol: string | null } {
  const path: number[] = [];
  let last = -1;
  for (const symbol of [...expected, END]) {
    const node = parents.findIndex((parent, index) => parent === last && symbols[index] === symbol);
    // Outputs of the maximum length end without an end symbol.
    if (node < 0) return { path, missingSymbol: symbol === END && statuses[last] === "ended" ? null : symbol };
    path.push((last = node));
  }
  return { path, missingSymbol: null };
}

/** Description in a sentence. */
export function describeReference({ symbols, parents, statuses, leaf, scores }: SearchTree, { path, missingSymbol }: ReturnType<typeof followReference>): string {
  const last = path.at(-1) ?? -1;
  const reached = (node: number): string => formatDecimal(decodeArray(scores)[node] ?? 0);
  const marked = last < 0 ? "" : " (underlined)";
  const status =
    statuses[last] === "pruned" ? `was pruned at step ${path.length} with ${quoteSymbol(symbols[last]!)}, log p = ${reached(last)}`
    : missingSymbol === null ? `is in the beam too: log p = ${reached(last)}; output: ${leaf < 0 ? "not in the beam" : reached(leaf)}`
    : last >= 0 && !parents.includes(last) ? `was kept at step ${path.length}, where the search ended, log p = ${reached(last)}`
    : `left the beam at step ${path.length + 1}: ${quoteSymbol(missingSymbol)} was not considered`;
  return `The expected output${marked} ${status}.`;
}
