/** Equations of a network as a table, and the number of its parameters. */
import type { FormulaSection } from "../data/contents";

export const parameterSum = (sections: readonly FormulaSection[]): number =>
  sections.reduce((sum, { symbols }) => symbols.reduce((part, symbol) => part + symbol.num_parameters, sum), 0);

/** Rows of the equations and of the symbols of each part; formulas in LaTeX. */
export function equationTable(sections: readonly FormulaSection[]): (string | number)[][] {
  const rows = sections.flatMap(({ title, equations, symbols }) => [
    ...equations.map(({ latex }) => [title, latex, "", "", ""]),
    ...symbols.map(({ symbol, meaning, size, num_parameters: count }) => [title, symbol.latex, meaning, size, count || ""]),
  ]);
  return [["part", "LaTeX", "meaning", "size", "parameters"], ...rows];
}
