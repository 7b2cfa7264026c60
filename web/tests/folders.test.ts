import { readdirSync, readFileSync } from "node:fs";
import { dirname, join, normalize } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, it } from "vitest";

// Folders in the order of the data flow: data, drawing, model, selection, panels, tabs, page, page with a model.
const ORDER = [
  "data", "drawing", "model", "selection", "files", "parts", "links", "matrix", "output",
  "examples", "beam", "what-if", "corpus", "compare", "states", "training", "about", "report", ".", "modelPage",
];
const SOURCES = fileURLToPath(new URL("../src", import.meta.url));

it("imports only from earlier folders", () => {
  const paths = readdirSync(SOURCES, { recursive: true, encoding: "utf8" }).filter((path) => /\.(ts|svelte)$/.test(path));
  expect(new Set(paths.map(dirname))).toEqual(new Set(ORDER));
  const wrong = paths.flatMap((path) => {
    const imported = [...readFileSync(join(SOURCES, path), "utf8").matchAll(/(?:from|import) "(\.[^"]+)"/g)];
    const folders = imported.map(([, name]) => normalize(join(dirname(path), dirname(name!))));
    return folders.filter((folder) => ORDER.indexOf(folder) > ORDER.indexOf(dirname(path))).map((folder) => `${path} imports from ${folder}`);
  });
  expect(wrong).toEqual([]);
});
