import { expect, test } from "vitest";
import { barTable, renderFigure, renderPictureFile, type FigureCell } from "../src/drawing/figure";

/** The texts of a figure in their order, as XML has them. */
const texts = (svg: string): string[] => [...svg.matchAll(/<text [^>]*>([^<]*)<\/text>/g)].map(([, text]) => text!);
const size = (svg: string): [number, number] => {
  const [, width, height] = /<svg [^>]*width="(\d+)" height="(\d+)"/.exec(svg)!;
  return [Number(width), Number(height)];
};
const cells = (count: number, cell: FigureCell): FigureCell[] => Array.from({ length: count }, () => cell);

test("a figure contains its title, axis titles, heads and cells as text", () => {
  const svg = renderFigure([{ title: "a < b", xTitle: "reads", yTitle: "writes", headers: ["x", "y"], rows: [["row", [{ text: "<s>" }, { text: '"&"', note: "n" }]]] }]);
  expect(texts(svg)).toEqual(["a &lt; b", "reads →", "x", "&lt;s&gt;", "y", "&quot;&amp;&quot;", "n", "row", "writes →"]);
  expect(svg.match(/<text/g)).toHaveLength(svg.match(/<\/text>/g)!.length);
  expect(svg).not.toMatch(/NaN|undefined|Infinity/);
});

test("control characters are replaced", () => {
  expect(renderFigure([{ title: "\u0000\u001b", rows: [] }])).not.toMatch(/[\u0000-\u0008\u001b]/);
});

test("columns wrap to further lines, which repeat the row heads", () => {
  const [few, many] = [3, 100].map((count) => renderFigure([{ title: "t", rows: [["row", cells(count, { text: "word" })]] }]));
  expect(texts(few!).filter((text) => text === "row")).toHaveLength(1);
  expect(texts(many!).filter((text) => text === "row").length).toBeGreaterThan(3);
  expect(texts(many!).filter((text) => text === "word")).toHaveLength(100);
  expect(size(many!)[0]).toBeLessThan(1000);
  expect(size(many!)[1]).toBeGreaterThan(size(few!)[1]);
});

test("only too long symbols are truncated", () => {
  const svg = renderFigure([{ title: "t", rows: [["", [{ text: "a".repeat(300) }, { text: "b" }]]] }]);
  expect(texts(svg)).toEqual(["t", `${"a".repeat(40)}…`, "b"]);
  expect(size(svg)[0]).toBeLessThan(1000);
});

test("cells of one style are one path", () => {
  const svg = renderFigure([{ title: "", rows: Array.from({ length: 50 }, () => ["", cells(50, { fill: "red" })]), size: [4, 4] }]);
  expect(svg.match(/<path/g)).toHaveLength(1);
  expect(svg.match(/M[\d.]+ [\d.]+h/g)).toHaveLength(2500);
  expect(svg.length).toBeLessThan(70_000);
});

test("columns without text have the minimum width", () => {
  const svg = renderFigure([{ title: "", headers: ["", "50"], rows: [["", cells(2, { fill: "red" })]], size: [1, 3] }]);
  expect(svg).toContain("h1v3");
});

test("words above narrow columns are rotated, within the picture", () => {
  const svg = renderFigure([{ title: "", headers: ["a-rather-long-name", "b"], rows: [["", cells(2, {})]] }]);
  expect(svg.match(/rotate\(-60/g)).toHaveLength(2);
  expect(size(svg)[1]).toBeGreaterThan(150);
});

test("bars are proportional to their values and labeled", () => {
  const svg = renderFigure([barTable("counts", [["a", 2], ["b", 1, "one"], ["c", 0]])]);
  expect(texts(svg)).toEqual(["counts", "2", "one", "0", "a", "b", "c"]);
  const long = [...svg.matchAll(/h([\d.]+)v14/g)].map(([, width]) => Number(width));
  expect(long).toHaveLength(2);
  expect(long[0]).toBeCloseTo(2 * long[1]!);
});

test("a figure without tables is empty", () => {
  for (const svg of [renderFigure([]), renderFigure([barTable("none", [])]), renderFigure([{ title: "t", headers: [], rows: [["row", []]] }])]) {
    expect(svg).toMatch(/^<svg [^>]*>.*<\/svg>$/);
    expect(svg).not.toMatch(/NaN|undefined|Infinity/);
  }
});

test("a picture file contains title, axis titles, color key and legend", () => {
  const labels = { above: "reads →", below: "b", vertical: "writes →", colormap: "difference", low: "difference: −0.5", high: "0.5", notes: `${"word ".repeat(40)}end` };
  const svg = renderPictureFile("<g/>", [100, 80], "the title", labels, [["<path/>", "one line"]], false);
  expect(texts(svg).slice(0, 7)).toEqual(["the title", "reads →", "writes →", "b", "one line", "difference: −0.5", "0.5"]);
  expect(texts(svg).at(-1)).toMatch(/end$/);
  expect(texts(svg).length).toBeGreaterThan(8);
  const filled = [...svg.matchAll(/fill="(rgb[^"]+)"/g)].map(([, fill]) => fill);
  expect(filled).toHaveLength(24);
  expect([filled[0], filled[23]]).toEqual(["rgb(27,79,145)", "rgb(156,17,39)"]);
  const [width, height] = size(svg);
  for (const [, x, y] of svg.matchAll(/<text x="(\d+)" y="(\d+)"/g)) expect(Number(x) < width && Number(y) < height).toBe(true);
  const bare = renderPictureFile("<g/>", [100, 80], "t", {}, [], false);
  expect(texts(bare)).toEqual(["t"]);
  expect(bare).not.toMatch(/rgb|NaN|undefined/);
});

test("a long title wraps at about the width of its table", () => {
  const svg = renderFigure([{ title: "word ".repeat(30), rows: [["row", cells(4, { text: "x" })]] }]);
  expect(size(svg)[0]).toBeLessThan(560);
});

test("tables are below each other", () => {
  const one = renderFigure([barTable("a", [["x", 1]])]);
  const two = renderFigure([barTable("a", [["x", 1]]), barTable("b", [["y", 1]])]);
  expect(size(two)[1]).toBe(2 * size(one)[1]);
  expect(texts(two)).toEqual(["a", "1", "x", "b", "1", "y"]);
});
