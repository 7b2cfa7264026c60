import { expect, test } from "vitest";
import { chunkBoxes, chunkLinks, type Chunk } from "../src/drawing/alignment";

/** "thigh": th to the first step, a deleted letter, an inserted step, gh to the third and fourth. */
const CHUNKS: Chunk[] = [[0, 2, 0, 1], [2, 3, 1, 1], [3, 3, 1, 2], [3, 5, 2, 4]];
const ALL = { from: 0, to: 5 };

test("chunks with both sides have a box", () => {
  expect(chunkBoxes(CHUNKS, ALL, ALL)).toEqual([
    { columns: { from: 0, to: 2 }, rows: { from: 0, to: 1 } },
    { columns: { from: 3, to: 5 }, rows: { from: 2, to: 4 } },
  ]);
});

test("boxes are cut to the zoomed ranges", () => {
  expect(chunkBoxes(CHUNKS, { from: 1, to: 4 }, { from: 0, to: 3 })).toEqual([
    { columns: { from: 1, to: 2 }, rows: { from: 0, to: 1 } },
    { columns: { from: 3, to: 4 }, rows: { from: 2, to: 3 } },
  ]);
  expect(chunkBoxes(CHUNKS, { from: 2, to: 3 }, ALL)).toEqual([]);
});

test("each symbol of a chunk is linked with each symbol of its other side", () => {
  expect(chunkLinks(CHUNKS)).toEqual([
    { position: 0, step: 0 }, { position: 1, step: 0 },
    { position: 3, step: 2 }, { position: 4, step: 2 }, { position: 3, step: 3 }, { position: 4, step: 3 },
  ]);
});
