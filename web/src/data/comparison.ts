// Paired outcomes of two runs on the same sources.

import type { PageExample } from "./contents";

export type PairedOutcome = "both" | "first" | "second" | "neither";

/** Which of the two outputs is correct; null without a reference. */
export function pairedOutcome(first: PageExample, second: PageExample): PairedOutcome | null {
  if (first.exact === null || second.exact === null) return null;
  if (first.exact) return second.exact ? "both" : "first";
  return second.exact ? "second" : "neither";
}

/** Indices of examples by outcome. */
export function groupByOutcome(first: PageExample[], second: PageExample[]): Record<PairedOutcome, number[]> {
  const groups: Record<PairedOutcome, number[]> = { both: [], first: [], second: [], neither: [] };
  first.forEach((example, index) => {
    const otherExample = second[index];
    const outcome = otherExample && pairedOutcome(example, otherExample);
    if (outcome) groups[outcome].push(index);
  });
  return groups;
}

/** Two-sided p-value of McNemar's exact test. */
export function mcnemarPValue(onlyFirst: number, onlySecond: number): number {
  const n = onlyFirst + onlySecond;
  let term = -n * Math.LN2;
  let total = 0;
  for (let k = 0; k <= Math.min(onlyFirst, onlySecond); k++) {
    total += Math.exp(term);
    term += Math.log((n - k) / (k + 1));
  }
  return Math.min(1, 2 * total);
}
