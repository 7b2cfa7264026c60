/** SVG figures of panels that the page shows as HTML. */
import { row, type Grid } from "../data/arrays";
import type { OutputStep } from "../data/steps";
import { fullRange } from "../drawing/layout";
import { maxPool, stateRange } from "../drawing/raster";
import { colorAt, formatDecimal, textColor, formatPercent, type Colormap } from "../drawing/scales";
import { barTable, renderFigure, type FigureCell, type FigureTable } from "../drawing/figure";
import { textWidth, visibleSymbol } from "../drawing/symbols";

const RIGHT = "var(--right)";
const WRONG = "var(--wrong)";

/** Cell in the color of its value. */
export const tintedCell = (value: number, colormap: Colormap, dark: boolean): FigureCell => ({ fill: `rgb(${colorAt(value, colormap, dark).join()})`, color: textColor(value, colormap, dark) });
const isWrong = ({ kind }: OutputStep): boolean => kind === "substitution" || kind === "insertion";
/** Wrong symbols. */
const MARKED: FigureCell = { fill: WRONG, fillOpacity: 0.16, color: WRONG };

/** Figure of the output steps: output, reference, and the most probable symbols as bars. */
export function stepFigure(title: string, all: readonly OutputStep[], minimum = false): string {
  const columns = all.flatMap((step) => [...step.missing, step].map((each) => (typeof each === "string" ? each : step)));
  const line = (header: string, cellOf: (step: OutputStep) => FigureCell, missing: (symbol: string) => FigureCell = () => ({})): FigureTable["rows"][number] => [
    header, columns.map((each) => (typeof each === "string" ? missing(each) : cellOf(each))),
  ];
  const rows = [
    line("output", (step) => ({ text: visibleSymbol(step.symbol), note: `${minimum ? "≥ " : ""}${formatDecimal(step.entropy, 2)} bits`, ...(isWrong(step) && MARKED) }), () => ({ text: "–", note: "missing", ...MARKED })),
    line("expected", (step) => (step.kind === "substitution" ? { text: visibleSymbol(step.expected ?? ""), color: RIGHT } : step.kind === "insertion" ? { text: "–", color: RIGHT } : {}), (symbol) => ({ text: visibleSymbol(symbol), color: RIGHT })),
    ...Array.from({ length: Math.max(0, ...all.map(({ candidates }) => candidates.length)) }, (_, rank) =>
      line(rank ? `${rank + 1}.` : "most probable", ({ candidates, symbol }) => {
        const candidate = candidates[rank];
        return candidate ? { text: visibleSymbol(candidate.symbol), note: formatPercent(candidate.probability), bar: candidate.probability, frameColor: candidate.symbol === symbol ? "var(--accent)" : candidate.isExpected ? RIGHT : undefined } : {};
      }),
    ),
  ].filter(([, cells]) => cells.some(({ text }) => text));
  const headers = columns.map((each) => (typeof each === "string" ? "" : `${each.index + 1}`));
  return renderFigure([{ title, xTitle: "output", headers, rows, size: [58, 26] }]);
}

/** Figure of a tagged source with probabilities and expected tags; tags that differ from `otherTags` are framed. */
export function tagFigure(title: string, all: readonly OutputStep[], source: readonly string[], otherTags: readonly string[] | null = null): string {
  const rows: FigureTable["rows"] = [
    ["source", all.map((step) => ({ text: visibleSymbol(source[step.index] ?? "") }))],
    ["tag", all.map((step) => ({ text: visibleSymbol(step.symbol), note: formatPercent(step.probability), bar: step.probability, ...(isWrong(step) && { color: WRONG }), frameColor: otherTags && otherTags[step.index] !== step.symbol ? "var(--gold)" : undefined }))],
    ["expected", all.map((step) => ({ text: isWrong(step) ? visibleSymbol(step.expected ?? "") : "", color: RIGHT }))],
  ];
  return renderFigure([{ title, xTitle: "source", headers: all.map(({ index }) => `${index + 1}`), rows: rows.filter(([, cells]) => cells.some(({ text }) => text)) }]);
}

/** Figure of the most probable predictions. */
export function candidateFigure(title: string, { candidates, symbol }: OutputStep, nameOf: (symbol: string) => string): string {
  const bars = candidates.map((each) => [nameOf(each.symbol), each.probability, `${formatPercent(each.probability)}${each.symbol === symbol ? ", output" : each.isExpected ? ", expected" : ""}`] as const);
  return renderFigure([{ ...barTable(title, bars, 1), xTitle: "probability" }]);
}

/** Figure of a source tinted by the weights of one step; marked positions are framed. */
export function sourceFigure(title: string, source: readonly string[], tints: ArrayLike<number>, colormap: Colormap, dark: boolean, marks?: ReadonlyMap<number, string>): string {
  const cells = source.map((symbol, index) => ({ text: visibleSymbol(symbol), ...tintedCell(tints[index] ?? 0, colormap, dark), frameColor: marks?.has(index) ? (marks.get(index) === "expected" ? RIGHT : "var(--gold)") : undefined }));
  return renderFigure([{ title, xTitle: "source", rows: [["", cells]], size: [10, 24] }]);
}

/** Table of states: one column per position, one row per unit in `order`. */
export function stateTable(title: string, of: Grid, order: readonly number[], symbols: readonly string[], dark: boolean): FigureTable {
  const [gate, maximum] = stateRange(of);
  // Units that share a row are max-pooled, to limit the number of cells.
  const transposed: Grid = { rows: order.length, columns: of.rows, values: Float32Array.from({ length: order.length * of.rows }, (_, at) => of.values[(at % of.rows) * of.columns + order[Math.floor(at / of.rows)]!]! / maximum) };
  const cells = maxPool(transposed, fullRange(transposed.rows), fullRange(transposed.columns), of.rows, Math.max(1, Math.floor(30_000 / Math.max(1, of.rows))));
  // Numbers replace symbols if there is no room.
  const many = of.rows > 120;
  const width = symbols.reduce((top, symbol) => Math.max(top, textWidth(visibleSymbol(symbol)) * 13 + 6), 16);
  return {
    title: `${title}, ${order.length} units${cells.rows < order.length ? ` in ${cells.rows} rows, the greatest of each` : ""}; ${gate ? "strongest: 1" : `red +, blue −, strongest: ${formatDecimal(maximum)}`}`,
    xTitle: title.startsWith("encoder") ? "source" : "output",
    yTitle: "units",
    headers: symbols.slice(0, of.rows).map((symbol, at) => (many ? ((at + 1) % 50 ? "" : `${at + 1}`) : visibleSymbol(symbol))),
    rows: Array.from({ length: cells.rows }, (_, unit) => ["", Array.from(row(cells, unit), (value) => tintedCell(value, gate ? "weight" : "difference", dark))]),
    size: [many ? Math.max(1, Math.floor(880 / of.rows)) : width > 28 ? 16 : Math.ceil(width), Math.max(1, Math.min(5, 300 / cells.rows))],
  };
}
