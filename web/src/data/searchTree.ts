/** Search tree of a beam: one column per step, best hypotheses first. */
import { toGrid, decodeArray, row, gridFromRows, type Grid } from "./arrays";
import type { SearchTree, Trace } from "./contents";

export interface TreeNode {
  readonly index: number;
  readonly symbol: string;
  readonly parent: number;
  /** Step of the symbol, from 0. */
  readonly depth: number;
  /** Rank in its column, from 0. */
  readonly rank: number;
  readonly status: SearchTree["statuses"][number];
  /** Log-probability of the symbol, given the previous symbols. */
  readonly logProbability: number;
  /** Log-probability of the hypothesis. */
  readonly score: number;
  /** Whether the node is on the path of the shown output. */
  readonly selected: boolean;
}

const STATUS_ORDER = { kept: 0, ended: 0, pruned: 1 } as const;

/** Nodes from the root to this node. */
export function pathToNode(beam: Pick<SearchTree, "parents">, node: number): number[] {
  const path: number[] = [];
  for (let at = node; at >= 0 && at < beam.parents.length; at = beam.parents[at] ?? -1) path.push(at);
  return path.reverse();
}

/** Nodes with their positions; without `pruned`, only kept and finished ones. */
export function treeNodes(beam: SearchTree, pruned = true): TreeNode[] {
  const [logProbabilities, scores] = [decodeArray(beam.log_probabilities), decodeArray(beam.scores)];
  const selected = new Set(pathToNode(beam, beam.leaf));
  const depths: number[] = [];
  // Parents precede their children.
  beam.parents.forEach((parent, index) => (depths[index] = parent < 0 ? 0 : (depths[parent] ?? 0) + 1));
  const columns: number[][] = [];
  beam.statuses.forEach((status, index) => {
    if (pruned || status !== "pruned") (columns[depths[index] ?? 0] ??= []).push(index);
  });
  const status = (index: number): TreeNode["status"] => beam.statuses[index] ?? "pruned";
  return columns.flatMap((column, depth) =>
    column
      .sort((a, b) => STATUS_ORDER[status(a)] - STATUS_ORDER[status(b)] || (scores[b] ?? 0) - (scores[a] ?? 0))
      .map((index, rank) => ({
        index, depth, rank,
        symbol: beam.symbols[index] ?? "",
        parent: beam.parents[index] ?? -1,
        status: status(index),
        logProbability: logProbabilities[index] ?? 0,
        score: scores[index] ?? 0,
        selected: selected.has(index),
      })),
  );
}

/** Log-probability per symbol. */
export function normalizedScore(node: TreeNode): number {
  return node.score / (node.depth + 1);
}

/** Output up to a node, with the attention weights of each symbol; the trace's own output if the beam does not contain it. */
export function attentionAlongPath(trace: Trace, beam: SearchTree, node: number): { target: string[]; weights: Grid } {
  if (node < 0) return { target: trace.target, weights: toGrid(trace.attention) };
  const attention = toGrid(beam.attention);
  const path = pathToNode(beam, node);
  const weights = gridFromRows(path.map((at) => row(attention, beam.attention_rows[at] ?? 0)));
  return { target: path.map((at) => beam.symbols[at] ?? ""), weights: { ...weights, columns: trace.source.length } };
}

/** Target of the arrow keys: parent, best child, and adjacent nodes of the column. */
export function adjacentNode(all: readonly TreeNode[], from: number, key: string): number {
  const current = all.find((node) => node.index === from);
  if (!current) return all.find((node) => node.selected)?.index ?? all[0]?.index ?? from;
  const nodeAtRank = (rank: number): number => all.find((node) => node.depth === current.depth && node.rank === rank)?.index ?? from;
  if (key === "ArrowUp") return nodeAtRank(current.rank - 1);
  if (key === "ArrowDown") return nodeAtRank(current.rank + 1);
  if (key === "ArrowLeft") return current.parent >= 0 ? current.parent : from;
  const children = all.filter((node) => node.parent === from);
  return (children.find((node) => node.selected) ?? children[0])?.index ?? from;
}
