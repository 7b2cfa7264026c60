/** The beam's lattice as a picture: a column for each step, in it the nodes of that step, best first. */
import { toGrid, decodeArray, row, gridFromRows, type Grid } from "./arrays";
import type { Lattice, Trace } from "./contents";

export interface TreeNode {
  readonly index: number;
  readonly symbol: string;
  readonly parent: number;
  /** The step that it writes, from 0. */
  readonly depth: number;
  /** Its place in its column, from 0. */
  readonly rank: number;
  readonly fate: Lattice["fates"][number];
  /** ln p of the symbol, given those before it. */
  readonly logProbability: number;
  /** ln p of all symbols up to here. */
  readonly score: number;
  /** On the way to the output that is shown. */
  readonly chosen: boolean;
}

const FATES = { kept: 0, ended: 0, pruned: 1 } as const;

/** The nodes from the beginning to this one. */
export function pathToNode(beam: Pick<Lattice, "parents">, node: number): number[] {
  const found: number[] = [];
  for (let at = node; at >= 0 && at < beam.parents.length; at = beam.parents[at] ?? -1) found.push(at);
  return found.reverse();
}

/** Every node with its place; without `pruned` only those that the beam went on from, or that ended. */
export function treeNodes(beam: Lattice, pruned = true): TreeNode[] {
  const [likely, scores] = [decodeArray(beam.log_probabilities), decodeArray(beam.scores)];
  const chosen = new Set(pathToNode(beam, beam.leaf));
  const depths: number[] = [];
  // A parent comes before its children.
  beam.parents.forEach((parent, index) => (depths[index] = parent < 0 ? 0 : (depths[parent] ?? 0) + 1));
  const columns: number[][] = [];
  beam.fates.forEach((fate, index) => {
    if (pruned || fate !== "pruned") (columns[depths[index] ?? 0] ??= []).push(index);
  });
  const fate = (index: number): TreeNode["fate"] => beam.fates[index] ?? "pruned";
  return columns.flatMap((column, depth) =>
    column
      .sort((a, b) => FATES[fate(a)] - FATES[fate(b)] || (scores[b] ?? 0) - (scores[a] ?? 0))
      .map((index, rank) => ({
        index, depth, rank,
        symbol: beam.symbols[index] ?? "",
        parent: beam.parents[index] ?? -1,
        fate: fate(index),
        logProbability: likely[index] ?? 0,
        score: scores[index] ?? 0,
        chosen: chosen.has(index),
      })),
  );
}

/** ln p a symbol: what makes outputs of different lengths comparable. */
export function normalizedScore(node: TreeNode): number {
  return node.score / (node.depth + 1);
}

/** The output up to a node, with where the decoder looked for each of its symbols. */
export function attentionAlongPath(trace: Trace, beam: Lattice, node: number): { writes: string[]; weights: Grid } {
  const looks = toGrid(beam.attention);
  const way = pathToNode(beam, node);
  const weights = gridFromRows(way.map((at) => row(looks, beam.looks[at] ?? 0)));
  return { writes: way.map((at) => beam.symbols[at] ?? ""), weights: { ...weights, columns: trace.source.length } };
}

/** Where the arrow keys go: to the parent, the best child, and the neighbors of the column. */
export function adjacentNode(all: readonly TreeNode[], from: number, key: string): number {
  const here = all.find((node) => node.index === from);
  if (!here) return all.find((node) => node.chosen)?.index ?? all[0]?.index ?? from;
  const beside = (rank: number): number => all.find((node) => node.depth === here.depth && node.rank === rank)?.index ?? from;
  if (key === "ArrowUp") return beside(here.rank - 1);
  if (key === "ArrowDown") return beside(here.rank + 1);
  if (key === "ArrowLeft") return here.parent >= 0 ? here.parent : from;
  const children = all.filter((node) => node.parent === from);
  return (children.find((node) => node.chosen) ?? children[0])?.index ?? from;
}
