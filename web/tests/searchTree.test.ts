import { expect, test } from "vitest";
import type { Trace } from "../src/data/contents";
import { attentionAlongPath, adjacentNode, treeNodes, normalizedScore, pathToNode } from "../src/data/searchTree";
import { beam } from "./fixtures";

test("nodes are in columns, best first, pruned last", () => {
  expect(treeNodes(beam).map(({ index, depth, rank, selected }) => [index, depth, rank, selected])).toEqual([
    [0, 0, 0, true], [1, 0, 1, false], [2, 1, 0, true], [3, 1, 1, false], [4, 1, 2, false],
  ]);
  expect(treeNodes(beam, false).map(({ index }) => index)).toEqual([0, 1, 2, 3]);
  expect(normalizedScore(treeNodes(beam)[2]!)).toBeCloseTo(-0.375);
});

test("a node has its own path and attention weights", () => {
  expect(pathToNode(beam, 3)).toEqual([1, 3]);
  const { target, weights } = attentionAlongPath({ source: ["x", "y"] } as Trace, beam, 3);
  expect(target).toEqual(["b", "⟨end⟩"]);
  expect([...weights.values]).toEqual([1, 0, 0, 1]);
  const added = { source: ["x", "y"], target: ["z"], attention: [[0.25, 0.75]] } as unknown as Trace;
  expect(attentionAlongPath(added, beam, -1)).toMatchObject({ target: ["z"], weights: { rows: 1, columns: 2 } });
});

test("arrow keys move to the parent, the best child and the neighbors", () => {
  const all = treeNodes(beam);
  expect([["ArrowRight", 0], ["ArrowLeft", 4], ["ArrowDown", 2], ["ArrowUp", 2], ["ArrowRight", 4]].map(([key, from]) => adjacentNode(all, from as number, key as string))).toEqual([2, 0, 3, 2, 4]);
  expect(adjacentNode(all, -5, "ArrowRight")).toBe(0);
});
