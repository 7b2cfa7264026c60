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

SOURCE_CHUNK = 2
"""Maximum number of source symbols of a graphone."""
MAX_EDGES = 8_000_000
"""Maximum number of edges of the lattices from which probabilities are estimated; they take 12 bytes each, and three
times as much while the graphones are counted. Beyond it a random sample of the examples is used."""
MIN_PROBABILITY = 1e-12
"""Graphones of lower probability are not kept."""
SEED = 1


class SymbolPairs(NamedTuple):
    """Sources and targets of examples, as ids in one array each."""

    source: Int[np.ndarray, " source_ids"]
    source_offsets: Int[np.ndarray, " N+1"]
    target: Int[np.ndarray, " target_ids"]
    target_offsets: Int[np.ndarray, " N+1"]


class GraphoneKeys(NamedTuple):
    """Numbering of all possible graphones.

    The key of a graphone is k_s·(V_t + 1)^M + k_t, where k_s and k_t are the ids of its source and target chunk, plus
    one, as digits in the bases V_s + 1 and V_t + 1. Graphones with the same source chunk have successive keys.
    """

    source_size: int
    """V_s, number of source ids."""
    target_size: int
    """V_t, number of target ids."""
    target_chunk: int
    """M, maximum number of target symbols of a graphone."""

    @property
    def fits(self) -> bool:
        """True if every key is an integer of 63 bits."""
        return (self.source_size + 1) ** SOURCE_CHUNK * (self.target_size + 1) ** self.target_chunk < 2**63


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


@njit
def edge_sizes(target_chunk: int) -> Int[np.ndarray, "kinds 2"]:
    """Return the numbers of source and target symbols of each kind of graphone.

    Args:
        target_chunk: M, maximum number of target symbols.
    """
    sizes = np.ones((target_chunk + 2, 2), np.int64)
    for count in range(target_chunk + 1):
        sizes[count, 1] = count
    sizes[target_chunk + 1, 0] = SOURCE_CHUNK
    return sizes


@njit
def chunk_key(ids: Int[np.ndarray, " ids"], size: int) -> int:
    """Return the ids plus one as the digits of a number in the base `size` + 1.

    Args:
        ids: Ids of a chunk.
        size: Number of ids.
    """
    key = np.int64(0)
    for identity in ids:
        key = key * (size + 1) + identity + 1
    return key


@njit
def _is_in_lattice(row: int, column: int, lengths: tuple[int, int], target_chunk: int) -> bool:
    """Return whether a node lies within the example, and a path from the start to the end passes through it."""
    rows, columns = lengths
    is_inside = row <= rows and column <= columns
    return is_inside and column <= row * target_chunk and columns - column <= (rows - row) * target_chunk


@njit
def _write_edge_keys(
    pairs: SymbolPairs, rows: Int[np.ndarray, " n"], numbering: GraphoneKeys, keys: Int[np.ndarray, " E"]
) -> int:
    """Write the keys of all edges, in the order in which `_add_expected_counts` reads them; return their number.

    An empty array is not written to.
    """
    sizes, count, target_factor = (
        edge_sizes(numbering.target_chunk),
        0,
        (numbering.target_size + 1) ** numbering.target_chunk,
    )
    for example in rows:
        source = pairs.source[pairs.source_offsets[example] : pairs.source_offsets[example + 1]]
        target = pairs.target[pairs.target_offsets[example] : pairs.target_offsets[example + 1]]
        lengths = (source.shape[0], target.shape[0])
        for row in range(lengths[0]):
            for column in range(lengths[1] + 1):
                if not _is_in_lattice(row, column, lengths, numbering.target_chunk):
                    continue
                for kind in range(sizes.shape[0]):
                    height, width = sizes[kind]
                    if _is_in_lattice(row + height, column + width, lengths, numbering.target_chunk):
                        if keys.shape[0]:
                            source_key = chunk_key(source[row : row + height], numbering.source_size)
                            target_key = chunk_key(target[column : column + width], numbering.target_size)
                            keys[count] = source_key * target_factor + target_key
                        count += 1
    return count


@njit
def _forward(
    lengths: tuple[int, int],
    target_chunk: int,
    ids: Int[np.ndarray, " E"],
    probabilities: Float[np.ndarray, " G"],
    alpha: Float[np.ndarray, "S+1 T+1"],
    scales: Float[np.ndarray, " S+1"],
) -> None:
    """Write the forward probabilities, each row divided by its maximum; `scales` are the logarithms of the divisors.

    The last row keeps the scale of the row before it.
    """
    sizes, edge = edge_sizes(target_chunk), 0
    alpha[:], scales[:] = 0.0, 0.0
    alpha[0, 0] = 1.0
    for row in range(lengths[0]):
        if row > 0:
            maximum = max(alpha[row].max(), 1e-300)
            # The later rows hold what earlier rows have added, in the same scale.
            alpha[row : min(row + SOURCE_CHUNK, lengths[0] + 1)] /= maximum
            scales[row] = scales[row - 1] + np.log(maximum)
        for column in range(lengths[1] + 1):
            if not _is_in_lattice(row, column, lengths, target_chunk):
                continue
            for kind in range(sizes.shape[0]):
                height, width = sizes[kind]
                if _is_in_lattice(row + height, column + width, lengths, target_chunk):
                    alpha[row + height, column + width] += alpha[row, column] * probabilities[ids[edge]]
                    edge += 1
    scales[lengths[0]] = scales[lengths[0] - 1]


@njit
def _add_expected_counts(
    pairs: SymbolPairs,
    rows: Int[np.ndarray, " n"],
    target_chunk: int,
    edge_ids: Int[np.ndarray, " E"],
    probabilities: Float[np.ndarray, " G"],
    counts: Float[np.ndarray, " G"],
) -> None:
    """Add the expected count of each graphone by the forward-backward algorithm."""
    sizes, first = edge_sizes(target_chunk), 0
    for example in rows:
        height_total = pairs.source_offsets[example + 1] - pairs.source_offsets[example]
        width_total = pairs.target_offsets[example + 1] - pairs.target_offsets[example]
        lengths = (height_total, width_total)
        alpha, beta = np.empty((lengths[0] + 1, lengths[1] + 1)), np.zeros((lengths[0] + 1, lengths[1] + 1))
        scales = np.empty(lengths[0] + 1)
        _forward(lengths, target_chunk, edge_ids[first:], probabilities, alpha, scales)
        edge = first + _count_edges(lengths, target_chunk)
        first = edge
        if alpha[lengths] <= 0.0:
            continue  # the probabilities underflow: an example of very rare graphones
        beta[lengths] = 1.0 / alpha[lengths]
        for row in range(lengths[0] - 1, -1, -1):
            for column in range(lengths[1], -1, -1):
                if not _is_in_lattice(row, column, lengths, target_chunk):
                    continue
                for kind in range(sizes.shape[0] - 1, -1, -1):
                    height, width = sizes[kind]
                    if _is_in_lattice(row + height, column + width, lengths, target_chunk):
                        edge -= 1
                        scale = np.exp(scales[row] - scales[row + height])
                        share = beta[row + height, column + width] * probabilities[edge_ids[edge]] * scale
                        beta[row, column] += share
                        counts[edge_ids[edge]] += share * alpha[row, column]


@njit
def _count_edges(lengths: tuple[int, int], target_chunk: int) -> int:
    """Return the number of edges of a lattice."""
    sizes, count = edge_sizes(target_chunk), 0
    for row in range(lengths[0]):
        for column in range(lengths[1] + 1):
            if _is_in_lattice(row, column, lengths, target_chunk):
                for kind in range(sizes.shape[0]):
                    if _is_in_lattice(row + sizes[kind, 0], column + sizes[kind, 1], lengths, target_chunk):
                        count += 1
    return count


@njit
def _write_best_paths(
    pairs: SymbolPairs,
    rows: Int[np.ndarray, " n"],
    numbering: GraphoneKeys,
    distribution: GraphoneDistribution,
    graphones: Int[np.ndarray, " graphones"],
    offsets: Int[np.ndarray, " n+1"],
) -> None:
    """Write the keys of the graphones of the best path of each lattice (Viterbi algorithm).

    The log-probability of a graphone counts (number of its source symbols + number of its target symbols) / 2 times.
    Otherwise few long graphones would be more probable than many short ones.
    """
    sizes, target_factor = edge_sizes(numbering.target_chunk), (numbering.target_size + 1) ** numbering.target_chunk
    missing = distribution.log_probabilities.min() - 3.0  # of graphones outside the sample
    for index in range(rows.shape[0]):
        example = rows[index]
        source = pairs.source[pairs.source_offsets[example] : pairs.source_offsets[example + 1]]
        target = pairs.target[pairs.target_offsets[example] : pairs.target_offsets[example + 1]]
        lengths = (source.shape[0], target.shape[0])
        best = np.full((lengths[0] + 1, lengths[1] + 1), -np.inf)
        kinds, keys = np.zeros(best.shape, np.int64), np.zeros(best.shape, np.int64)
        best[0, 0] = 0.0
        for row in range(lengths[0]):
            for column in range(lengths[1] + 1):
                if not _is_in_lattice(row, column, lengths, numbering.target_chunk):
                    continue
                for kind in range(sizes.shape[0]):
                    height, width = sizes[kind]
                    if not _is_in_lattice(row + height, column + width, lengths, numbering.target_chunk):
                        continue
                    source_key = chunk_key(source[row : row + height], numbering.source_size)
                    key = source_key * target_factor + chunk_key(target[column : column + width], numbering.target_size)
                    place = np.searchsorted(distribution.keys, key)
                    is_known = place < distribution.keys.shape[0] and distribution.keys[place] == key
                    log_probability = distribution.log_probabilities[place] if is_known else missing
                    score = best[row, column] + log_probability * 0.5 * (height + width)
                    if score > best[row + height, column + width]:
                        best[row + height, column + width] = score
                        kinds[row + height, column + width], keys[row + height, column + width] = kind, key
        offsets[index + 1] = _follow_path(sizes, kinds, keys, graphones[offsets[index] :]) + offsets[index]


@njit
def _follow_path(
    sizes: Int[np.ndarray, "kinds 2"],
    kinds: Int[np.ndarray, "S+1 T+1"],
    keys: Int[np.ndarray, "S+1 T+1"],
    graphones: Int[np.ndarray, " graphones"],
) -> int:
    """Write the keys of the graphones on the best path to the last node; return their number."""
    row, column, count = kinds.shape[0] - 1, kinds.shape[1] - 1, 0
    while row > 0:
        graphones[count] = keys[row, column]
        height, width = sizes[kinds[row, column]]
        row, column, count = row - height, column - width, count + 1
    graphones[:count] = graphones[:count][::-1].copy()
    return count


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
    keys = np.empty(_write_edge_keys(pairs, rows, numbering, np.empty(0, np.int64)), np.int64)
    _write_edge_keys(pairs, rows, numbering, keys)
    graphones, edge_ids = np.unique(keys, return_inverse=True)
    edge_ids = edge_ids.astype(np.int32)
    probabilities = np.full(len(graphones), 1 / max(len(graphones), 1))
    for _ in range(iterations):
        counts = np.zeros(len(graphones))
        _add_expected_counts(pairs, rows, numbering.target_chunk, edge_ids, probabilities, counts)
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
    offsets = np.zeros(len(rows) + 1, np.int64)
    _write_best_paths(pairs, rows, numbering, distribution, graphones, offsets)
    return Alignments(graphones[: offsets[-1]], offsets)
