import { expect, test } from "vitest";
import { gridFromRows } from "../src/data/arrays";
import { toCsv, availableFormats } from "../src/files/export";
import { colorRuns } from "../src/files/pictureFiles";
import { toScriptJson, fileName } from "../src/files/download";
import { weightFiles } from "../src/files/panelFiles";
import { escapeLatex, tikzHeatMap } from "../src/files/tikz";
import type { PageContents } from "../src/data/contents";
import { trace } from "./fixtures";

test("CSV keeps commas, quotes and blanks", () => {
  expect(toCsv([["a", 1], ["b,c", 'd"e'], [" ", ""]])).toBe('a,1\r\n"b,c","d""e"\r\n" ",""\r\n');
});

test("weight files name the example in every format", () => {
  const files = weightFiles("one less other: “x”", trace("x", "ab"), gridFromRows([[-0.5, 0.25]]), "");
  expect(files.data).toMatchObject({ title: "one less other: “x”", weights: [[-0.5, 0.25]] });
  const one = trace("x", "ab");
  expect(weightFiles("all of it", one, gridFromRows([[1, 0]]), "", one).data).toMatchObject({ ...one, title: "all of it", weights: [[1, 0]] });
  expect(files.table![0]).toEqual(["one less other: “x”", "a", "b"]);
  expect(files.tex!.split("\n")[0]).toBe("% one less other: “x”");
});

test("a menu offers only available formats", () => {
  expect(availableFormats({ name: "x", data: [], tex: "" })).toEqual(["JSON", "TikZ"]);
});

test("special characters of TeX are escaped", () => {
  expect(escapeLatex("a_b%\\")).toBe("a\\_b\\%\\textbackslash{}");
  expect(escapeLatex(" ")).toBe("\\textvisiblespace{}");
});

test("a TikZ heat map draws cells with weight", () => {
  const tex = tikzHeatMap(gridFromRows([[0.25, 0], [0.001, 1]]), ["x", "y"], ["a", "b"]);
  expect(tex.match(/\\fill/g)).toHaveLength(2);
  expect(tex).toContain("\\fill[weight!25] (0,0)");
});

test("a TikZ heat map has axis titles and a color key, and underlines unknown symbols", () => {
  const tex = tikzHeatMap(gridFromRows([[0.25, 1]]), ["x"], ["a_", "b"], { unknown: [0], axisTitles: ["100 % {read}", "written"] });
  expect(tex).toContain("{100 \\% \\{read\\} $\\rightarrow$};");
  expect(tex).toContain("{$\\leftarrow$ written};");
  expect(tex).toContain("{darkest: 1; underlined: not in the vocabulary};");
  expect(tex).toContain("{\\underline{a\\_}};");
  expect(tikzHeatMap(gridFromRows([[-0.5, 0.25]]), ["x"], ["a", "b"])).toContain("red: positive,{} blue: negative; strongest: 0.500");
  expect(tikzHeatMap(gridFromRows([[1]]), ["x"], ["a"], { colorKey: "" })).not.toContain("darkest");
  const faint = tikzHeatMap(gridFromRows([[0.2, 0.1], [0.1, 0]]), ["x", "y"], ["a", "b"]);
  expect(faint.match(/weight!\d+/g)).toEqual(["weight!100", "weight!50", "weight!100"]);
  expect(faint).toContain("{darkest: the row\\textquotesingle{}s maximum};");
  const bare = tex.replaceAll(/\\[\\{}]/g, "");
  expect(bare.split("{")).toHaveLength(bare.split("}").length);
});

test("TikZ of a long source fits a page and numbers positions", () => {
  const tex = tikzHeatMap(gridFromRows([Array.from({ length: 1000 }, () => 0.001)]), ["x"], Array.from({ length: 1000 }, () => "a"));
  expect(tex).toContain("[x=0.16mm, y=-4mm,");
  expect(tex).toContain("(999.5,0) {1000};");
  expect(tex).not.toContain("{a}");
});

test("file names, and JSON that no text can close", () => {
  expect(fileName("a/b: c…", "svg")).toBe("a-b-c.svg");
  expect(fileName("///", "svg")).toBe("pellucid.svg");
  const contents = { title: "</script><b>" } as PageContents;
  expect(toScriptJson(contents)).not.toContain("<");
  expect(JSON.parse(toScriptJson(contents))).toEqual(contents);
});

test("adjacent cells of one color become one rectangle", () => {
  expect(colorRuns(["a", "a", "b", "a"])).toEqual([[0, 2, "a"], [2, 3, "b"], [3, 4, "a"]]);
  expect(colorRuns([])).toEqual([]);
});
