/** Attention statistics that are shown at first: those that docs/viewer.md explains. */
import type { Statistic } from "../data/contents";

export const FIRST_STATISTICS = ["entropy", "permutation effect", "conicity"] as const;

/** The named statistics in this order, filled to their number with others in file order, for models that lack some. */
export function firstStatistics(all: readonly Statistic[], names: readonly string[]): Statistic[] {
  const named = names.flatMap((name) => all.filter((each) => each.name === name));
  return [...named, ...all.filter((each) => !named.includes(each))].slice(0, names.length);
}
