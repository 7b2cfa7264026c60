import { expect, test } from "vitest";
import { gridFromRows } from "../src/data/arrays";
import type { ConfusionCount, EditOperation } from "../src/data/contents";
import { outputSteps } from "../src/data/steps";
import { renderFigure } from "../src/drawing/figure";
import { candidateFigure, sourceFigure, stateTable, stepFigure, tagFigure } from "../src/files/figures";
import { tagFiles, weightFiles } from "../src/files/panelFiles";
import { tikzHeatMap } from "../src/files/tikz";
import { confusionTable, confusionFiles } from "../src/corpus/confusion";
import { confusionKey } from "../src/selection/exampleRows";
import { changeFigure, changeTable } from "../src/what-if/changeFigure";
import { registerTaskViews } from "../src/data/taskView";
import { trace, VIEWS } from "./fixtures";

const texts = (svg: string): string[] => [...svg.matchAll(/<text [^>]*>([^<]*)<\/text>/g)].map(([, text]) => text!);
const edit = (kind: EditOperation["kind"], written: number | null, expected: string | null): EditOperation => ({ kind, step: written, expected });
const times = (of: readonly string[], text: string): number => of.filter((each) => each === text).length;

test("a step figure has output, reference and a bar for each candidate", () => {
  const stepTrace = { ...trace("xyz", "abc"), top: [[["x", -0.1], ["q", -3]], [["y", -0.2], ["w", -2]], [["z", -0.1]]] as [string, number][][] };
  const edits = [edit("same", 0, "x"), edit("deletion", null, "m"), edit("substitution", 1, "w"), edit("insertion", 2, null)];
  const svgTexts = texts(stepFigure("abc → xyz", outputSteps(stepTrace, edits), true));
  expect(svgTexts.slice(0, 2)).toEqual(["abc → xyz", "output →"]);
  for (const head of ["output", "expected", "most probable", "2.", "1", "2", "3", "q", "m", "missing"]) expect(svgTexts).toContain(head);
  expect(times(svgTexts, "–")).toBe(2);
  expect(times(svgTexts, "w")).toBe(2);
  expect(svgTexts).toContain("≥ 0.10 bits");
  expect(svgTexts).toContain("90 %");
});

test("a step figure without a reference has no row for it", () => {
  const svgTexts = texts(stepFigure("t", outputSteps(trace("xy", "ab"), [])));
  expect(svgTexts).not.toContain("expected");
  expect(svgTexts).toContain("output");
});

test("a tag figure has source, tags, and the expected tags of wrong ones", () => {
  const tagTrace = { ...trace("VCV", "abc"), task: "tag" as const };
  const files = tagFiles("Tags", tagTrace, [edit("same", 0, "V"), edit("substitution", 1, "N"), edit("same", 2, "V")], ["V", "V", "V"]);
  const svgTexts = texts(files.picture as string);
  for (const text of ["source", "tag", "expected", "a", "b", "c", "V", "C", "N"]) expect(svgTexts).toContain(text);
  expect((files.picture as string).match(/var\(--gold\)" d="M/g)).toHaveLength(1);
  expect(tagFigure("", outputSteps(tagTrace, []), ["a", "b", "c"])).not.toContain("expected");
  expect(files.table).toHaveLength(4);
});

test("a candidate figure marks the output and the reference", () => {
  const [step] = outputSteps({ ...trace("x", "a"), top: [[["x", -0.1], ["y", -3]]] }, [edit("substitution", 0, "y")]);
  expect(texts(candidateFigure("t", step!, (symbol) => `<${symbol}>`))).toEqual(["t", "probability →", "90 %, output", "5.0 %, expected", "&lt;x&gt;", "&lt;y&gt;"]);
});

test("a source figure tints symbols and frames marked positions", () => {
  const svg = sourceFigure("t", ["a", " ", "b"], [0, 0.5, 1], "weight", false, new Map([[0, "expected"], [2, "predicted"]]));
  expect(texts(svg)).toEqual(["t", "source →", "a", "␣", "b"]);
  expect(svg).toContain('stroke="var(--right)"');
  expect(svg).toContain('stroke="var(--gold)"');
  expect(new Set(svg.match(/fill="rgb\([\d,]+\)"/g))).toHaveProperty("size", 3);
});

test("state tables have the given order of units, for states and gates", () => {
  const signed = stateTable("encoder", gridFromRows([[1, -1], [0, 0.5], [-1, 1]]), [1, 0], ["a", "b", "c"], false);
  expect(signed.rows).toHaveLength(2);
  expect(signed.rows[0]![1]).toHaveLength(3);
  expect(signed.rows[0]![1][0]!.fill).toBe(signed.rows[1]![1][2]!.fill);
  expect(signed.title).toContain("red +");
  expect(stateTable("decoder update", gridFromRows([[0, 1]]), [0, 1], ["a"], false).title).toBe("decoder update, 2 units; strongest: 1");
  const large = stateTable("encoder", gridFromRows(Array.from({ length: 300 }, () => Array(512).fill(0.1))), [...Array(512).keys()], Array(300).fill("a"), false);
  expect(large.rows.length * 300).toBeLessThanOrEqual(30_000);
  expect(texts(renderFigure([large]))).toContain("source →");
});

const CONFUSIONS: ConfusionCount[] = [
  { expected: "a", predicted: "b", count: 4, num_expected: 9, example_indices: [] },
  { expected: "a", predicted: null, count: 2, num_expected: 9, example_indices: [] },
  { expected: null, predicted: "b", count: 1, num_expected: 9, example_indices: [] },
];

test("a confusion table has no symbol last, and its files", () => {
  const { rows, columns, at, maximum } = confusionTable(CONFUSIONS);
  expect([rows, columns, maximum]).toEqual([["a", null], ["b", null], 4]);
  expect(at("a", "b")?.count).toBe(4);
  expect(at(null, null)).toBeUndefined();
  expect(confusionKey("", null)).not.toBe(confusionKey(null, null));
  const files = confusionFiles(CONFUSIONS, "predicted", (symbol) => symbol ?? "nothing");
  expect(texts(files.picture as string)).toEqual(["Confusions", "predicted →", "b", "4", "1", "nothing", "2", "a", "nothing", "expected →"]);
  expect(files.picture).toContain('fill-opacity="0.70"');
  expect(files.table).toEqual([["expected", "predicted", "count", "of"], ["a", "b", 4, 9], ["a", "", 2, 9], ["", "b", 1, ""]]);
  expect(files.data).toBe(CONFUSIONS);
  expect(files.tex).toContain("\\node[white] at (0.5,0.5) {4};");
  expect(files.tex).toContain("\\node[black] at (1.5,0.5) {2};");
});

test("a confusion table of many errors has the most frequent, with a note", () => {
  const one = (expected: string, written: string, times: number): ConfusionCount => ({ expected, predicted: written, count: times, num_expected: 99, example_indices: [] });
  // "z" is expected often, but written as symbols that are too rare for the table.
  const all = [..."abcdefghijklmnop"].map((symbol, at) => one(symbol, symbol.toUpperCase(), 30 - at)).concat([..."0123456789"].map((rare) => one("z", rare, 3)));
  const { rows, columns, note } = confusionTable(all);
  expect(rows).toEqual([..."abcdefghijklm"]);
  expect(columns).toEqual([..."ABCDEFGHIJKLM"]);
  expect(note).toBe("of the 13 expected and 13 predicted symbols with the most errors; the list is complete");
  expect(confusionTable(CONFUSIONS).note).toBe("");
  expect(texts(confusionFiles(all, "predicted", (symbol) => symbol ?? "nothing").picture as string).join(" ")).toContain(`Confusions ${note}`);
});

/** Probabilities of the symbols of a step: 0.9 → 0.25, and of another symbol < 0.01 → 0.7. */
const changesOf = (symbol: string, newSymbol: string) => [
  { symbol, before: { probability: 0.9, isBound: false }, after: { probability: 0.25, isBound: false } },
  ...(newSymbol === symbol ? [] : [{ symbol: newSymbol, before: { probability: 0.01, isBound: true }, after: { probability: 0.7, isBound: false } }]),
];

test("a what-if figure has the outputs before and after, with changed symbols marked", () => {
  const change = (step: number, symbol: string, newSymbol = symbol) => ({ step, oldSymbol: symbol, newSymbol, isShared: true, symbols: changesOf(symbol, newSymbol), probabilityChange: -0.65, divergence: 1.5 });
  const added = { step: 2, oldSymbol: undefined, newSymbol: "z", isShared: false, symbols: [{ symbol: "z", before: null, after: { probability: 0.41, isBound: false } }], probabilityChange: null, divergence: null };
  const svg = changeFigure("masking b", trace("xy", "ab"), { ...trace("xyz", "ab"), forced: [1] }, [change(0, "x"), change(1, "y"), added]);
  const svgTexts = texts(svg);
  for (const text of ["masking b", "before", "after", "p(before), before the change", "p(before), after the change", "KL divergence, bits", "z", "–", "0.41"]) expect(svgTexts).toContain(text);
  expect([times(svgTexts, "x"), times(svgTexts, "0.25"), times(svgTexts, "1.50")]).toEqual([2, 2, 2]);
  expect(svg.match(/fill="var\(--accent\)" fill-opacity="0.16" d="[^"]*M[^"]*M/g)).toHaveLength(1);
  expect(svg).toContain('stroke="var(--gold)"');
  expect(texts(changeFigure("t", trace("x", "a"), trace("y", "a"), []))).not.toContain("p(before), after the change");
  // A substituted symbol has its own probabilities.
  const substituted = texts(changeFigure("t", trace("x", "a"), trace("y", "a"), [change(0, "x", "y")]));
  expect(["0.90", "0.25", "&lt; 0.01", "0.70"].map((text) => times(substituted, text))).toEqual([1, 1, 1, 1]);
});

test("a what-if table marks forced symbols and attention, and names the output that p after refers to", () => {
  const change = (step: number, newSymbol = "x") => ({ step, oldSymbol: "x", newSymbol, isShared: true, symbols: changesOf("x", newSymbol), probabilityChange: -0.25, divergence: 1 });
  const now = { ...trace("xyzx", "ab"), forced: [0, 1], forced_attention: [1, 2] };
  const table = changeTable(now, [change(0), change(1, "y"), change(2), change(3)]);
  expect(table[0]).toEqual(["step", "before", "after", "p(symbol before), before the change", "p(symbol before), after the change, given the output after", "p(symbol after), before the change", "p(symbol after), after the change, given the output after", "KL in bits", "forced after"]);
  expect(table.slice(1, 3).map((line) => line.slice(3, 7))).toEqual([[0.9, 0.25, "", ""], [0.9, 0.25, "< 0.01", 0.7]]);
  expect(table.slice(1).map((line) => line[8])).toEqual(["symbol", "symbol and attention", "attention", ""]);
  // Tags do not depend on each other.
  registerTaskViews(VIEWS);
  expect(changeTable({ ...now, task: "tag" }, [])[0]![6]).toBe("p(symbol after), after the change");
});

test("a TikZ difference has two colors, scaled by the maximum magnitude", () => {
  const tex = tikzHeatMap(gridFromRows([[-0.1, 0.2]]), ["x"], ["a", "b"]);
  expect(tex).toContain("\\fill[less!50] (0,0)");
  expect(tex).toContain("\\fill[weight!100] (1,0)");
  expect(tex.match(/definecolor/g)).toHaveLength(2);
  const files = weightFiles("d", trace("x", "ab"), gridFromRows([[-0.1, 0.2]]), undefined);
  expect(files.table![1]!.slice(1)).toEqual([-0.1, 0.2]);
});
