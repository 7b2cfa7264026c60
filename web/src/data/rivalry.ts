// Two runs on the same sources: who wins where. Pure.

import type { Item } from "./contents";

export type Outcome = "both" | "first" | "second" | "neither";

/** Which of the two was right; null where nothing says what was expected. */
export function outcome(first: Item, second: Item): Outcome | null {
  if (first.exact === null || second.exact === null) return null;
  if (first.exact) return second.exact ? "both" : "first";
  return second.exact ? "second" : "neither";
}

/** Places by outcome. */
export function outcomes(first: Item[], second: Item[]): Record<Outcome, number[]> {
  const places: Record<Outcome, number[]> = { both: [], first: [], second: [], neither: [] };
  first.forEach((item, place) => {
    const rival = second[place];
    const found = rival && outcome(item, rival);
    if (found) places[found].push(place);
  });
  return places;
}

/** McNemar's exact test: how often chance alone would split the n differing examples so unevenly or more. */
export function chance(onlyFirst: number, onlySecond: number): number {
  const n = onlyFirst + onlySecond;
  let term = -n * Math.LN2;
  let total = 0;
  for (let k = 0; k <= Math.min(onlyFirst, onlySecond); k++) {
    total += Math.exp(term);
    term += Math.log((n - k) / (k + 1));
  }
  return Math.min(1, 2 * total);
}
