import { expect, test } from "vitest";
import { FIRST_STATISTICS, firstStatistics } from "../src/corpus/firstStatistics";

const statistic = (name: string) => ({ name, value: 1, unit: "", low: null, high: null, definition: "" });
const names = (all: string[]) => firstStatistics(all.map(statistic), FIRST_STATISTICS).map(({ name }) => name);

test("three statistics are shown at first, others for those that a model lacks", () => {
  expect(names(["coverage deviation", "conicity", "entropy", "residual", "permutation effect"])).toEqual(["entropy", "permutation effect", "conicity"]);
  expect(names(["coverage deviation", "entropy", "monotonicity", "residual"])).toEqual(["entropy", "coverage deviation", "monotonicity"]);
  expect(names(["entropy"])).toEqual(["entropy"]);
});
