"""Many-to-many alignment of sources and targets by expectation-maximization.

An alignment cuts a source and its target into equally many chunks, in order. A graphone is the pair of a source chunk
and its target chunk (Bisani and Ney 2008). It has one source symbol and 0 to M target symbols, or two source symbols
and one target symbol. The probability of an alignment is the product of the probabilities of its graphones. All
alignments of an example form a lattice: nodes are pairs of a source and a target position, edges are graphones.

N examples, S source positions, T target positions, E edges of the lattices of all examples, G graphones.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from pellucid.kernels.compilation import njit
from pellucid.kernels.runtime import defer_signals
from pellucid.pair_ngram.types import SOURCE_CHUNK, GraphoneKeys, SymbolPairs

MAX_EDGES = 8_000_000
"""Maximum number of edges of the lattices from which probabilities are estimated; they take 12 bytes each, and three
times as much while the graphones are counted. Beyond it a random sample of the examples is used."""
MIN_PROBABILITY = 1e-12
"""Graphones of lower probability are not kept."""
MISSING_PENALTY = 3.0
"""A graphone that is not kept has the lowest log-probability of those kept, minus this."""
SEED = 1
"""Seed of the sample."""


class GraphoneDistribution(NamedTuple):
    """Joint probabilities of graphones."""

    keys: Int[np.ndarray, " G"]
    """Keys in ascending order."""
    log_probabilities: Float[np.ndarray, " G"]


class Alignments(NamedTuple):
    """The most probable alignment of each example."""

    graphones: Int[np.ndarray, " graphones"]
    """Keys of the graphones of all alignments, one example after the other."""
    offsets: Int[np.ndarray, " N+1"]
    """Index of the first graphone of each example, and the number of all graphones."""


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
def list_edges(num_source: int, num_target: int, target_chunk: int) -> LatticeEdges:
    """Return the edges through which a path from the start to the end of an example passes.

    Args:
        num_source: S, number of source symbols.
        num_target: T, number of target symbols.
        target_chunk: M, maximum number of target symbols of a graphone.
    """
    count = 0
    for is_counted in (False, True):
        edges = np.empty((4, count if is_counted else 0), np.int32)
        count = 0
        for row in range(num_source):
            # Before `row`, at most M symbols per source symbol are written, and so many must suffice after it.
            first, last = max(0, num_target - (num_source - row) * target_chunk), min(num_target, row * target_chunk)
            for column in range(first, last + 1):
                for kind in range(target_chunk + 2):
                    height, width = (SOURCE_CHUNK, 1) if kind > target_chunk else (1, kind)
                    below, right = row + height, column + width
                    if below > num_source or right > num_target:
                        continue
                    if num_target - right > (num_source - below) * target_chunk:
                        continue
                    if is_counted:
                        edges[0, count], edges[1, count], edges[2, count], edges[3, count] = row, column, height, width
                    count += 1
    return LatticeEdges(edges[0], edges[1], edges[2], edges[3])


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
    factor, keys = (numbering.target_size + 1) ** numbering.target_chunk, np.empty(edges.row.shape[0], np.int64)
    for edge in range(keys.shape[0]):
        row, column = edges.row[edge], edges.column[edge]
        source_key = chunk_key(source[row : row + edges.height[edge]], numbering.source_size)
        target_key = chunk_key(target[column : column + edges.width[edge]], numbering.target_size)
        keys[edge] = source_key * factor + target_key
    return keys


@njit
def _example_edges(pairs: SymbolPairs, example: int, target_chunk: int) -> LatticeEdges:
    """Return the edges of the lattice of an example."""
    num_source = pairs.source_offsets[example + 1] - pairs.source_offsets[example]
    num_target = pairs.target_offsets[example + 1] - pairs.target_offsets[example]
    return list_edges(num_source, num_target, target_chunk)


@njit
def _count_edges(pairs: SymbolPairs, rows: Int[np.ndarray, " n"], target_chunk: int) -> int:
    """Return the number of edges of several examples."""
    count = 0
    for example in rows:
        count += _example_edges(pairs, example, target_chunk).row.shape[0]
    return count


@njit
def _write_edge_keys(
    pairs: SymbolPairs, rows: Int[np.ndarray, " n"], numbering: GraphoneKeys, keys: Int[np.ndarray, " E"]
) -> None:
    """Write the keys of the edges of several examples, one example after the other."""
    first = 0
    for example in rows:
        edges = _example_edges(pairs, example, numbering.target_chunk)
        last = first + edges.row.shape[0]
        keys[first:last] = _edge_keys(pairs, example, numbering, edges)
        first = last


@njit
def _forward(
    edges: LatticeEdges,
    probabilities: Float[np.ndarray, " E"],
    alpha: Float[np.ndarray, "S+1 T+1"],
    scales: Float[np.ndarray, " S+1"],
) -> None:
    """Write the forward probabilities, each row divided by its maximum; `scales` are the logarithms of the divisors.

    The last row keeps the scale of the row before it.
    """
    alpha[:], scales[:] = 0.0, 0.0
    alpha[0, 0] = 1.0
    for edge in range(edges.row.shape[0]):
        row, column = edges.row[edge], edges.column[edge]
        if row > 0 and edges.row[edge - 1] < row:
            maximum = max(alpha[row].max(), 1e-300)
            # The next row holds what earlier rows have added, in the same scale.
            alpha[row : row + SOURCE_CHUNK] /= maximum
            scales[row:] = scales[row - 1] + np.log(maximum)
        alpha[row + edges.height[edge], column + edges.width[edge]] += alpha[row, column] * probabilities[edge]


@njit
def _add_expected_counts(
    pairs: SymbolPairs,
    rows: Int[np.ndarray, " n"],
    target_chunk: int,
    ids: Int[np.ndarray, " E"],
    distribution: tuple[Float[np.ndarray, " G"], Float[np.ndarray, " G"]],
) -> None:
    """Add the expected count of each graphone by the forward-backward algorithm.

    `distribution` holds the probabilities and the counts; `ids` are the numbers of the graphones of all edges.
    """
    (probabilities, counts), first = distribution, 0
    for example in rows:
        edges = _example_edges(pairs, example, target_chunk)
        edge_ids = ids[first : first + edges.row.shape[0]]
        first += edges.row.shape[0]
        height = pairs.source_offsets[example + 1] - pairs.source_offsets[example]
        width = pairs.target_offsets[example + 1] - pairs.target_offsets[example]
        alpha, beta = np.empty((height + 1, width + 1)), np.zeros((height + 1, width + 1))
        scales, edge_probabilities = np.empty(height + 1), probabilities[edge_ids]
        _forward(edges, edge_probabilities, alpha, scales)
        if alpha[height, width] <= 0.0:
            continue  # the probabilities underflow: an example of very rare graphones
        beta[height, width] = 1.0 / alpha[height, width]
        for edge in range(edges.row.shape[0] - 1, -1, -1):
            row, column = edges.row[edge], edges.column[edge]
            below, right = row + edges.height[edge], column + edges.width[edge]
            share = beta[below, right] * edge_probabilities[edge] * np.exp(scales[row] - scales[below])
            beta[row, column] += share
            counts[edge_ids[edge]] += share * alpha[row, column]


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
    distribution: GraphoneDistribution,
    alignments: Alignments,
) -> None:
    """Write the keys of the graphones of the best path of each lattice (Viterbi algorithm).

    The log-probability of a graphone counts (number of its source symbols + number of its target symbols) / 2 times.
    Otherwise few long graphones would be more probable than many short ones.
    """
    missing = distribution.log_probabilities.min() - MISSING_PENALTY
    for index in range(rows.shape[0]):
        edges = _example_edges(pairs, rows[index], numbering.target_chunk)
        keys, last = _edge_keys(pairs, rows[index], numbering, edges), edges.row.shape[0] - 1
        height, width = edges.row[last] + edges.height[last], edges.column[last] + edges.width[last]
        best, incoming = np.full((height + 1, width + 1), -np.inf), np.full((height + 1, width + 1), -1)
        best[0, 0] = 0.0
        for edge in range(edges.row.shape[0]):
            row, column = edges.row[edge], edges.column[edge]
            below, right = row + edges.height[edge], column + edges.width[edge]
            weight = 0.5 * (edges.height[edge] + edges.width[edge])
            score = best[row, column] + weight * _log_probability(distribution, keys[edge], missing)
            if score > best[below, right]:
                best[below, right], incoming[below, right] = score, edge
        first, count = alignments.offsets[index], 0
        while height > 0:
            edge = incoming[height, width]
            alignments.graphones[first + count] = keys[edge]
            height, width, count = edges.row[edge], edges.column[edge], count + 1
        alignments.graphones[first : first + count] = alignments.graphones[first : first + count][::-1].copy()
        alignments.offsets[index + 1] = first + count


def alignable_rows(pairs: SymbolPairs, target_chunk: int) -> Int[np.ndarray, " n"]:
    """Return the numbers of the examples that have an alignment: a source, and at most M target symbols per symbol.

    Args:
        pairs: Sources and targets.
        target_chunk: M, maximum number of target symbols of a graphone.
    """
    sources, targets = np.diff(pairs.source_offsets), np.diff(pairs.target_offsets)
    return np.flatnonzero((sources > 0) & (targets <= sources * target_chunk))


def estimate_graphones(pairs: SymbolPairs, numbering: GraphoneKeys, iterations: int = 10) -> GraphoneDistribution:
    """Estimate the joint probabilities of graphones by expectation-maximization, from a uniform distribution.

    Args:
        pairs: Sources and targets.
        numbering: Numbering of the graphones.
        iterations: Number of iterations.

    References:
        Jiampojamarn, Kondrak and Sherif 2007, Applying many-to-many alignments and hidden Markov models to
        letter-to-phoneme conversion; Bisani and Ney 2008, Joint-sequence models, section 3.
    """
    rows = _sample_rows(pairs, numbering.target_chunk)
    with defer_signals():
        keys = np.empty(_count_edges(pairs, rows, numbering.target_chunk), np.int64)
        _write_edge_keys(pairs, rows, numbering, keys)
    graphones, edge_ids = np.unique(keys, return_inverse=True)
    edge_ids = edge_ids.astype(np.int32)
    probabilities = np.full(len(graphones), 1 / max(len(graphones), 1))
    for _ in range(iterations):
        counts = np.zeros(len(graphones))
        with defer_signals():
            _add_expected_counts(pairs, rows, numbering.target_chunk, edge_ids, (probabilities, counts))
        probabilities = counts / counts.sum()
    kept = probabilities > MIN_PROBABILITY
    return GraphoneDistribution(graphones[kept], np.log(probabilities[kept]))


def _sample_rows(pairs: SymbolPairs, target_chunk: int) -> Int[np.ndarray, " n"]:
    """Return the numbers of the alignable examples, or of a random sample whose lattices have `MAX_EDGES` at most."""
    rows = alignable_rows(pairs, target_chunk)
    nodes = (np.diff(pairs.source_offsets)[rows] + 1) * (np.diff(pairs.target_offsets)[rows] + 1)
    order = np.random.default_rng(SEED).permutation(len(rows))
    edges = np.cumsum(nodes[order] * (target_chunk + 2))  # an upper bound
    return np.sort(rows[order[: max(1, np.searchsorted(edges, MAX_EDGES))]])


def align_pairs(pairs: SymbolPairs, numbering: GraphoneKeys, distribution: GraphoneDistribution) -> Alignments:
    """Return the most probable alignment of each alignable example.

    Args:
        pairs: Sources and targets.
        numbering: Numbering of the graphones.
        distribution: Joint probabilities of the graphones.
    """
    rows = alignable_rows(pairs, numbering.target_chunk)
    graphones = np.empty(int(np.diff(pairs.source_offsets)[rows].sum()), np.int64)
    found = Alignments(graphones, np.zeros(len(rows) + 1, np.int64))
    with defer_signals():
        _write_best_paths(pairs, rows, numbering, distribution, found)
    return Alignments(graphones[: found.offsets[-1]], found.offsets)
