import { expect, test } from "vitest";
import { equationTable, parameterSum } from "../src/about/equationTable";
import type { FormulaSection } from "../src/data/contents";

const formula = (latex: string) => ({ latex, mathml: "<math/>" });
const SECTIONS: FormulaSection[] = [
  { title: "Attention", equations: [formula("e = W q")], symbols: [{ symbol: formula("W"), meaning: "query projection", size: "2 × 3", num_parameters: 6 }, { symbol: formula("q"), meaning: "query", size: "3", num_parameters: 0 }], note: "" },
  { title: "GRU", equations: [formula("h = x")], symbols: [], note: "" },
];

test("equations and symbols are a table, with the number of parameters", () => {
  expect(parameterSum(SECTIONS)).toBe(6);
  expect(equationTable(SECTIONS)).toEqual([
    ["part", "LaTeX", "meaning", "size", "parameters"],
    ["Attention", "e = W q", "", "", ""],
    ["Attention", "W", "query projection", "2 × 3", 6],
    ["Attention", "q", "query", "3", ""],
    ["GRU", "h = x", "", "", ""],
  ]);
});
