"""Many-to-many alignment of sources and targets by expectation-maximization.

An alignment cuts a source and its target into equally many chunks, in order. A graphone is the pair of a source chunk
and its target chunk (Bisani and Ney 2008); `ChunkLimits` sets the sizes that it may have. The probability of an
alignment is the product of the probabilities of its graphones. All alignments of an example form a lattice: nodes are
pairs of a source and a target position, edges are graphones.

N examples, S source positions, T target positions, E edges of the lattices of all examples, G graphones.
"""

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from pellucid.alignment.types import ChunkLimits, GraphoneKeys, SymbolPairs
from pellucid.kernels.compilation import njit
from pellucid.kernels.runtime import defer_signals
from pellucid.shapes import Float, Int

MAX_EDGES = 8_000_000
"""Maximum number of edges of the lattices from which probabilities are estimated; they take 12 bytes each, and three
times as much while the graphones are counted. Beyond it a random sample of the examples is used."""
BLOCK_EDGES = 1_000_000
"""Number of edges of the examples that are computed at once, about a twentieth of a second: signals, such as that of
Ctrl-C, wait for the end."""
MIN_PROBABILITY = 1e-12
"""Graphones of lower probability are not kept."""
SMALL = 1e-15
"""Highest forward probability of a row below which it is scaled together with the rows after it. The quotients of up to
16 rows (`ChunkLimits`) do not overflow."""
MISSING_PENALTY = 3.0
"""A graphone that is not kept has the lowest log-probability of those kept, minus this."""
SEED = 1
"""Seed of the sample."""


class GraphoneDistribution(NamedTuple):
    """Joint probabilities of graphones."""

    keys: Int[np.ndarray, " G"]
    """Keys in ascending order."""
    log_probabilities: Float[np.ndarray, " G"]


class GraphoneSequences(NamedTuple):
    """The most probable alignment of each example."""

    graphones: Int[np.ndarray, " graphones"]
    """Keys of the graphones of all alignments, one example after the other."""
    source_sizes: Int[np.ndarray, " graphones"]
    """Number of source symbols of each graphone."""
    target_sizes: Int[np.ndarray, " graphones"]
    """Number of target symbols of each graphone."""
    offsets: Int[np.ndarray, " N+1"]
    """Index of the first graphone of each example, and the number of all graphones."""
    log_probabilities: Float[np.ndarray, " N"]
    """Sum of the log-probabilities of the graphones of each example."""


class ExpectationStep(NamedTuple):
    """Probabilities and expected counts of graphones in one iteration."""

    probabilities: Float[np.ndarray, " G"]
    counts: Float[np.ndarray, " G"]
    """Sums over the examples so far."""


class PathScoring(NamedTuple):
    """Scores of paths (`align_pairs`)."""

    distribution: GraphoneDistribution
    by_longer_side: bool


class LatticeEdges(NamedTuple):
    """Edges of the lattice of one example: by row, then by column, then by kind of graphone."""

    row: Int[np.ndarray, " E"]
    """Source position before the graphone."""
    column: Int[np.ndarray, " E"]
    """Target position before it."""
    height: Int[np.ndarray, " E"]
    """Number of its source symbols."""
    width: Int[np.ndarray, " E"]
    """Number of its target symbols."""


@njit
def list_edges(num_source: int, num_target: int, limits: ChunkLimits) -> LatticeEdges:
    """Return the edges through which a path from the start to the end of an example passes.

    Args:
        num_source: S, number of source symbols.
        num_target: T, number of target symbols.
        limits: Sizes that a graphone may have.
    """
    count = 0
    for fills_arrays in (False, True):
        edges = np.empty((4, count if fills_arrays else 0), np.int32)
        count = 0
        for row in range(num_source + 1):
            first, last = _columns_on_paths(row, num_source, num_target, limits)
            for column in range(first, last + 1):
                for height in range(0 if limits.insertions else 1, min(limits.max_source, num_source - row) + 1):
                    left, right = _columns_on_paths(row + height, num_source, num_target, limits)
                    fewest = 0 if limits.deletions and height == 1 else 1
                    for width in range(fewest, _max_width(height, limits) + 1):
                        if not left <= column + width <= right:
                            continue
                        if fills_arrays:
                            edges[0, count], edges[1, count] = row, column
                            edges[2, count], edges[3, count] = height, width
                        count += 1
    return LatticeEdges(edges[0], edges[1], edges[2], edges[3])


@njit
def _max_width(height: int, limits: ChunkLimits) -> int:
    """Return the maximum number of target symbols of a graphone with `height` source symbols."""
    if height == 0:
        return 1  # an insertion
    max_width: int = limits.max_target if height == 1 or limits.many_to_many else 1
    return max_width


@njit
def _columns_on_paths(row: int, num_source: int, num_target: int, limits: ChunkLimits) -> tuple[int, int]:
    """Return the first and the last target position at a source position through which a path passes.

    There, the symbols before the position have an alignment (`ChunkLimits.allow`), and those after it.
    """
    first = 0
    last = num_target
    rest = num_source - row
    if not limits.insertions:
        first, last = max(first, num_target - rest * limits.max_target), min(last, row * limits.max_target)
    if not limits.deletions:
        first = max(first, -(-row // limits.max_source))
        last = min(last, num_target + -rest // limits.max_source)
    return first, last


@njit
def chunk_key(ids: Int[np.ndarray, " ids"], size: int) -> int:
    """Return the ids plus one as the digits of a number in the base `size` + 1.

    Args:
        ids: Ids of a chunk.
        size: Number of ids.
    """
    key = 0
    for identity in ids:
        key = key * (size + 1) + identity + 1
    return key


@njit
def _edge_keys(pairs: SymbolPairs, example: int, numbering: GraphoneKeys, edges: LatticeEdges) -> Int[np.ndarray, " E"]:
    """Return the key of the graphone of each edge of an example."""
    source = pairs.source[pairs.source_offsets[example] : pairs.source_offsets[example + 1]]
    target = pairs.target[pairs.target_offsets[example] : pairs.target_offsets[example + 1]]
    factor = (numbering.target_size + 1) ** numbering.target_chunk
    keys = np.empty(edges.row.shape[0], np.int64)
    for edge in range(keys.shape[0]):
        row, column = edges.row[edge], edges.column[edge]
        source_key = chunk_key(source[row : row + edges.height[edge]], numbering.source_size)
        target_key = chunk_key(target[column : column + edges.width[edge]], numbering.target_size)
        keys[edge] = source_key * factor + target_key
    return keys


@njit
def _example_edges(pairs: SymbolPairs, example: int, limits: ChunkLimits) -> LatticeEdges:
    """Return the edges of the lattice of an example."""
    num_source = pairs.source_offsets[example + 1] - pairs.source_offsets[example]
    num_target = pairs.target_offsets[example + 1] - pairs.target_offsets[example]
    return list_edges(num_source, num_target, limits)


@njit
def _count_edges(pairs: SymbolPairs, rows: Int[np.ndarray, " n"], limits: ChunkLimits) -> int:
    """Return the number of edges of several examples."""
    count = 0
    for example in rows:
        count += _example_edges(pairs, example, limits).row.shape[0]
    return count


@njit
def _write_edge_keys(
    pairs: SymbolPairs,
    rows: Int[np.ndarray, " n"],
    numbering: GraphoneKeys,
    limits: ChunkLimits,
    keys: Int[np.ndarray, " E"],
) -> None:
    """Write the keys of the edges of several examples, one example after the other."""
    first = 0
    for example in rows:
        edges = _example_edges(pairs, example, limits)
        last = first + edges.row.shape[0]
        keys[first:last] = _edge_keys(pairs, example, numbering, edges)
        first = last


@njit
def _forward(
    edges: LatticeEdges,
    probabilities: Float[np.ndarray, " E"],
    alpha: Float[np.ndarray, "S+1 T+1"],
    scales: Float[np.ndarray, " S+1"],
    max_source: int,
) -> None:
    """Write the forward probabilities, each row divided by its maximum; `scales` are the logarithms of the divisors.

    A row from which no edge starts, such as the last one without insertions, keeps the scale of the row before it.
    """
    alpha[:], scales[:] = 0.0, 0.0
    alpha[0, 0] = 1.0
    for edge in range(edges.row.shape[0]):
        row, column = edges.row[edge], edges.column[edge]
        if row > 0 and edges.row[edge - 1] < row:
            maximum = alpha[row].max()
            if maximum < SMALL:  # few paths or none pass through this row; the rows after it must not overflow
                maximum = max(alpha[row : row + max_source].max(), 1e-300)
            # The next row holds what earlier rows have added, in the same scale.
            alpha[row : row + max_source] /= maximum
            scales[row:] = scales[row - 1] + np.log(maximum)
        alpha[row + edges.height[edge], column + edges.width[edge]] += alpha[row, column] * probabilities[edge]


@njit
def _add_expected_counts(
    pairs: SymbolPairs,
    rows: Int[np.ndarray, " n"],
    limits: ChunkLimits,
    ids: Int[np.ndarray, " E"],
    step: ExpectationStep,
) -> None:
    """Add the expected count of each graphone by the forward-backward algorithm.

    `ids` are the numbers of the graphones of all edges.
    """
    first = 0
    for example in rows:
        edges = _example_edges(pairs, example, limits)
        edge_ids = ids[first : first + edges.row.shape[0]]
        first += edges.row.shape[0]
        height = pairs.source_offsets[example + 1] - pairs.source_offsets[example]
        width = pairs.target_offsets[example + 1] - pairs.target_offsets[example]
        alpha = np.empty((height + 1, width + 1))
        beta = np.zeros((height + 1, width + 1))
        scales = np.empty(height + 1)
        edge_probabilities = step.probabilities[edge_ids]
        _forward(edges, edge_probabilities, alpha, scales, limits.max_source)
        if alpha[height, width] <= 0.0:
            continue  # the probabilities underflow: an example of very rare graphones
        beta[height, width] = 1.0 / alpha[height, width]
        for edge in range(edges.row.shape[0] - 1, -1, -1):
            row, column = edges.row[edge], edges.column[edge]
            next_row, next_column = row + edges.height[edge], column + edges.width[edge]
            share = beta[next_row, next_column] * edge_probabilities[edge] * np.exp(scales[row] - scales[next_row])
            beta[row, column] += share
            step.counts[edge_ids[edge]] += share * alpha[row, column]


@njit
def _log_probability(distribution: GraphoneDistribution, key: int, missing: float) -> float:
    """Return the log-probability of a graphone; `missing` if it is not in the distribution."""
    place = np.searchsorted(distribution.keys, key)
    is_kept = place < distribution.keys.shape[0] and distribution.keys[place] == key
    log_probability: float = distribution.log_probabilities[place] if is_kept else missing
    return log_probability


@njit
def _write_best_paths(
    pairs: SymbolPairs,
    rows: Int[np.ndarray, " n"],
    numbering: GraphoneKeys,
    limits: ChunkLimits,
    scoring: PathScoring,
    sequences: GraphoneSequences,
) -> None:
    """Write the keys of the graphones of the best path of each lattice (Viterbi algorithm).

    In `sequences`, offsets and log-probabilities are those of these examples, and the first offset is given; the arrays
    of graphones are those of all examples.
    """
    distribution = scoring.distribution
    missing = distribution.log_probabilities.min() - MISSING_PENALTY
    for index in range(rows.shape[0]):
        edges = _example_edges(pairs, rows[index], limits)
        keys = _edge_keys(pairs, rows[index], numbering, edges)
        height = pairs.source_offsets[rows[index] + 1] - pairs.source_offsets[rows[index]]
        width = pairs.target_offsets[rows[index] + 1] - pairs.target_offsets[rows[index]]
        best, incoming = np.full((height + 1, width + 1), -np.inf), np.full((height + 1, width + 1), -1)
        log_probabilities = np.empty(keys.shape[0])
        best[0, 0] = 0.0
        for edge in range(edges.row.shape[0]):
            row, column = edges.row[edge], edges.column[edge]
            next_row, next_column = row + edges.height[edge], column + edges.width[edge]
            sizes = edges.height[edge] + edges.width[edge]
            weight = max(edges.height[edge], edges.width[edge]) if scoring.by_longer_side else 0.5 * sizes
            log_probabilities[edge] = _log_probability(distribution, keys[edge], missing)
            score = best[row, column] + weight * log_probabilities[edge]
            if score > best[next_row, next_column]:
                best[next_row, next_column], incoming[next_row, next_column] = score, edge
        first = sequences.offsets[index]
        count = 0
        while height > 0 or width > 0:
            edge = incoming[height, width]
            sequences.graphones[first + count] = keys[edge]
            sequences.source_sizes[first + count] = edges.height[edge]
            sequences.target_sizes[first + count] = edges.width[edge]
            sequences.log_probabilities[index] += log_probabilities[edge]
            height, width, count = edges.row[edge], edges.column[edge], count + 1
        for values in (sequences.graphones, sequences.source_sizes, sequences.target_sizes):
            values[first : first + count] = values[first : first + count][::-1].copy()
        sequences.offsets[index + 1] = first + count


def alignable_rows(pairs: SymbolPairs, limits: ChunkLimits) -> Int[np.ndarray, " n"]:
    """Return the numbers of the examples that are aligned (`ChunkLimits.can_align`).

    Args:
        pairs: Sources and targets.
        limits: Sizes that a graphone may have.
    """
    return np.flatnonzero(limits.can_align(np.diff(pairs.source_offsets), np.diff(pairs.target_offsets)))


def estimate_graphones(
    pairs: SymbolPairs, numbering: GraphoneKeys, limits: ChunkLimits, iterations: int = 10
) -> GraphoneDistribution:
    """Estimate the joint probabilities of graphones by expectation-maximization, from a uniform distribution.

    For the graphone q and an alignment a of the example i, with the probability p(a) of the product of its graphones,

        c(q) = Σ_i Σ_a n_q(a) p(a) / Σ_a′ p(a′),    p(q) = c(q) / Σ_q′ c(q′),

    where n_q(a) is the number of times that q is in a, and a and a′ are alignments of the example.

    Args:
        pairs: Sources and targets; some of them are alignable (`alignable_rows`).
        numbering: Numbering of the graphones.
        limits: Sizes that a graphone may have, within those of the numbering.
        iterations: Number of iterations.

    Returns:
        The probabilities of the graphones, without those of less than `MIN_PROBABILITY`; none if no example is
        alignable.

    References:
        Jiampojamarn, Kondrak and Sherif 2007, Applying many-to-many alignments and hidden Markov models to
        letter-to-phoneme conversion; Bisani and Ney 2008, Joint-sequence models, section 3.
    """
    blocks = _split_blocks(pairs, _sample_rows(pairs, limits), limits)
    keys, offsets = _list_edge_keys(pairs, blocks, numbering, limits)
    graphones, edge_ids = np.unique(keys, return_inverse=True)
    ids_of_blocks = np.split(edge_ids.astype(np.int32), offsets[1:-1]) if blocks else []
    del keys, edge_ids
    probabilities = np.full(len(graphones), 1 / max(len(graphones), 1))
    for _ in range(iterations):
        step = ExpectationStep(probabilities, np.zeros(len(graphones)))
        for rows, ids in zip(blocks, ids_of_blocks, strict=True):
            with defer_signals():
                _add_expected_counts(pairs, rows, limits, ids, step)
        if not step.counts.sum() > 0:
            break  # the probabilities of all examples underflow
        probabilities = step.counts / step.counts.sum()
    kept = probabilities > MIN_PROBABILITY
    return GraphoneDistribution(graphones[kept], np.log(probabilities[kept]))


def _list_edge_keys(
    pairs: SymbolPairs, blocks: list[Int[np.ndarray, " _"]], numbering: GraphoneKeys, limits: ChunkLimits
) -> tuple[Int[np.ndarray, " E"], list[int]]:
    """Return the keys of the edges of all blocks of examples, and the offsets of the blocks in them."""
    offsets = [0]
    for rows in blocks:
        with defer_signals():
            offsets.append(offsets[-1] + _count_edges(pairs, rows, limits))
    keys = np.empty(offsets[-1], np.int64)
    for rows, (first, last) in zip(blocks, pairwise(offsets), strict=True):
        with defer_signals():
            _write_edge_keys(pairs, rows, numbering, limits, keys[first:last])
    return keys, offsets


def _split_blocks(pairs: SymbolPairs, rows: Int[np.ndarray, " n"], limits: ChunkLimits) -> list[Int[np.ndarray, " _"]]:
    """Return the rows in blocks of about `BLOCK_EDGES` edges at most; one example may have more.

    Signals are deferred while a block is computed, not longer.
    """
    edges = limits.count_edges(np.diff(pairs.source_offsets)[rows], np.diff(pairs.target_offsets)[rows])
    starts = np.flatnonzero(np.diff(np.cumsum(edges) // BLOCK_EDGES)) + 1
    return np.split(rows, starts) if len(rows) else []


def _sample_rows(pairs: SymbolPairs, limits: ChunkLimits) -> Int[np.ndarray, " n"]:
    """Return the numbers of the alignable examples, or of a random sample whose lattices have `MAX_EDGES` at most."""
    rows = alignable_rows(pairs, limits)
    nodes = (np.diff(pairs.source_offsets)[rows] + 1) * (np.diff(pairs.target_offsets)[rows] + 1)
    order = np.random.default_rng(SEED).permutation(len(rows))
    edges = np.cumsum(nodes[order] * limits.num_sizes)  # an upper bound
    return np.sort(rows[order[: max(1, np.searchsorted(edges, MAX_EDGES))]])


def align_pairs(
    pairs: SymbolPairs,
    numbering: GraphoneKeys,
    limits: ChunkLimits,
    distribution: GraphoneDistribution,
    by_longer_side: bool = False,
) -> GraphoneSequences:
    """Return the best alignment of each alignable example: the path of the greatest Σ_e w_e log p_e over its edges.

    The weight w_e of an edge e is the mean of the numbers of its source and its target symbols, or the greater of the
    two. Without weights, few long graphones would be more probable than many short ones.

    Args:
        pairs: Sources and targets.
        numbering: Numbering of the graphones.
        limits: Sizes that a graphone may have, within those of the numbering.
        distribution: Joint probabilities of the graphones, at least one.
        by_longer_side: Weigh a graphone by the greater number. A deletion or an insertion then counts as one symbol, as
            a substitution does, and not as half a symbol.

    Returns:
        The alignments of the examples of `alignable_rows`, in their order; none if there is no such example.
    """
    rows = alignable_rows(pairs, limits)
    max_graphones = int(np.diff(pairs.source_offsets)[rows].sum())
    if limits.insertions:
        max_graphones += int(np.diff(pairs.target_offsets)[rows].sum())
    graphones, sizes = np.empty(max_graphones, np.int64), np.empty((2, max_graphones), np.int64)
    sequences = GraphoneSequences(
        graphones, sizes[0], sizes[1], np.zeros(len(rows) + 1, np.int64), np.zeros(len(rows), np.float64)
    )
    scoring = PathScoring(distribution, by_longer_side)
    first = 0
    for block in _split_blocks(pairs, rows, limits):
        last = first + len(block)
        of_block = sequences._replace(
            offsets=sequences.offsets[first : last + 1], log_probabilities=sequences.log_probabilities[first:last]
        )
        with defer_signals():
            _write_best_paths(pairs, block, numbering, limits, scoring, of_block)
        first = last
    used = sequences.offsets[-1]
    return sequences._replace(graphones=graphones[:used], source_sizes=sizes[0, :used], target_sizes=sizes[1, :used])


def warm_up() -> None:
    """Call every kernel of this module with small arguments, at which Numba loads it from the disk or compiles it."""
    pairs = SymbolPairs(*(np.array(values, np.int64) for values in ([4, 5], [0, 2], [4], [0, 1])))
    numbering = GraphoneKeys(6, 6, 1, 2)
    limits = ChunkLimits(1, 2)
    align_pairs(pairs, numbering, limits, estimate_graphones(pairs, numbering, limits, 1))
