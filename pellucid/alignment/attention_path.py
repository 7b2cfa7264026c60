"""Monotone path through attention weights: the alignment on which they agree most.

T target positions, S source positions.
"""

from typing import Annotated, NamedTuple

import numpy as np

from pellucid.alignment.types import DEFAULT_LIMITS, AlignedChunk, ChunkLimits, chunks_of_sizes, no_alignment_reason
from pellucid.argument_checks import PROBABILITY, check_arguments
from pellucid.shapes import Float, Int

MIN_MASS = 1e-6
"""Lowest sum of weights that a logarithm is taken of, so that every path has a finite score."""
EXTRA_SYMBOL_PENALTY = np.log(2.0)
"""Penalty of each source symbol of a chunk after the first, in nats: one bit."""


class MonotonePath(NamedTuple):
    """A path through attention weights."""

    chunks: tuple[AlignedChunk, ...]
    """Chunks of source and target positions, in order."""
    score: float
    """Its score, at most 0 (`monotone_path`)."""


@check_arguments
def monotone_path(
    weights: Annotated[Float[np.ndarray, "T S"], PROBABILITY], limits: ChunkLimits = DEFAULT_LIMITS
) -> MonotonePath | None:
    """Return the monotone many-to-many path of the highest score through attention weights α.

        score = Σ_c [Σ_{t∈c} log Σ_{s∈c} α_ts − (S_c − 1) log 2] + Σ_d Σ_t log(1 − α_td) − I log(S + 1)

    c are the chunks with S_c source and at least one target position. A target symbol contributes the logarithm of its
    attention within its chunk. Each further source symbol of a chunk has a penalty of one bit; otherwise the longest
    chunks would always be the best. d are the deleted source positions: log of the probability that no target symbol
    attends to d. An inserted target symbol, of which there are I, contributes uniform attention: over the S positions
    and none. Sums below 10⁻⁶ count as 10⁻⁶. Without insertions and deletions, and with at most one symbol on one side
    of each chunk, the penalty is the same on every path, and the path maximizes the sum of the log attention mass
    alone.

    Args:
        weights: Attention weights, shape (T, S), one row per target symbol.
        limits: Sizes that a chunk may have.

    Returns:
        The path; None where `no_alignment_reason` names one: no source position, no path within the limits, or too many
        positions.

    Raises:
        ArgumentError: An argument has a wrong type or is out of range.
    """
    num_target, num_source = weights.shape
    if no_alignment_reason(num_source, num_target, limits):
        return None
    best, sizes = _search(weights.astype(np.float64), limits)
    row = num_source
    column = num_target
    path = list[tuple[int, int]]()
    while row or column:
        path.append((int(sizes[column, row, 0]), int(sizes[column, row, 1])))
        row, column = row - path[-1][0], column - path[-1][1]
    return MonotonePath(chunks_of_sizes(path[::-1]), min(float(best[-1, -1]), 0.0))


def _search(
    weights: Float[np.ndarray, "T S"], limits: ChunkLimits
) -> tuple[Float[np.ndarray, "T+1 S+1"], Int[np.ndarray, "T+1 S+1 2"]]:
    """Return the best score of the paths to each node, and the size of the last chunk of the best one."""
    num_target, num_source = weights.shape
    kinds, scores = _chunk_scores(weights, limits)
    deleted = np.concatenate([[0.0], np.cumsum(np.log(np.maximum(1 - weights, MIN_MASS)).sum(axis=0))])
    best = np.full((num_target + 1, num_source + 1), -np.inf)
    sizes = np.zeros((num_target + 1, num_source + 1, 2), np.int64)
    best[0, 0] = 0.0
    for column in range(num_target + 1):
        for (height, width), kind_scores in zip(kinds, scores, strict=True):
            if width <= column and height <= num_source:
                reached = best[column - width, : num_source + 1 - height] + kind_scores[column - width]
                is_better = reached > best[column, height:]
                best[column, height:][is_better] = reached[is_better]
                sizes[column, height:][is_better] = height, width
        if limits.deletions:
            _delete(best[column], sizes[column], deleted)
    return best, sizes


def _delete(
    best: Float[np.ndarray, " nodes"], sizes: Int[np.ndarray, "nodes 2"], deleted: Float[np.ndarray, " nodes"]
) -> None:
    """Extend the paths to the nodes of one target position by deletions; `deleted` are the sums of their scores."""
    relative = best - deleted
    highest = np.maximum.accumulate(relative)
    nodes = np.arange(len(best))
    start = np.maximum.accumulate(np.where(relative == highest, nodes, 0))  # from which source symbols are deleted
    is_deleted = start < nodes
    best[is_deleted] = (best[start] + deleted - deleted[start])[is_deleted]
    sizes[is_deleted] = 1, 0


def _chunk_scores(
    weights: Float[np.ndarray, "T S"], limits: ChunkLimits
) -> tuple[list[tuple[int, int]], list[Float[np.ndarray, "t s"]]]:
    """Return the sizes of the chunks with a target position, and the score of each chunk by its first positions."""
    num_target, num_source = weights.shape
    sums = np.concatenate([np.zeros((num_target, 1)), np.cumsum(weights, axis=1)], axis=1)
    kinds, scores = list[tuple[int, int]](), list[np.ndarray]()
    for height in range(1, min(limits.max_source, num_source) + 1):
        mass = np.log(np.maximum(sums[:, height:] - sums[:, :-height], MIN_MASS))
        rows = np.concatenate([np.zeros((1, mass.shape[1])), np.cumsum(mass, axis=0)])
        widest = limits.max_target if height == 1 or limits.many_to_many else 1
        for width in range(1, min(widest, num_target) + 1):
            kinds.append((height, width))
            scores.append(rows[width:] - rows[:-width] - (height - 1) * EXTRA_SYMBOL_PENALTY)
    if limits.insertions:
        kinds.append((0, 1))
        scores.append(np.full((num_target, num_source + 1), -np.log(num_source + 1)))
    return kinds, scores
