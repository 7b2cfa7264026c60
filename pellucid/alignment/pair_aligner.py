"""Alignment of pairs of symbol sequences by a many-to-many model that is fitted to the pairs themselves.

n symbols of all sequences, N sequences.
"""

from collections.abc import Sequence
from typing import Annotated, NamedTuple

import numpy as np
from msgspec import Meta

from pellucid.alignment.types import (
    DEFAULT_LIMITS,
    Alignment,
    ChunkLimits,
    GraphoneKeys,
    SymbolPairs,
    chunks_of_sizes,
)
from pellucid.argument_checks import check_arguments
from pellucid.errors import ConfigError
from pellucid.shapes import Int

ITERATIONS = 11
"""Default number of iterations of expectation-maximization, that of phonetisaurus-align."""
Iterations = Annotated[int, Meta(ge=1, le=1000)]
SymbolSequences = Sequence[tuple[Sequence[str], Sequence[str]]]
"""Source symbols and target symbols of each pair."""


@check_arguments
def align_symbols(
    pairs: SymbolSequences, limits: ChunkLimits = DEFAULT_LIMITS, iterations: Iterations = ITERATIONS
) -> list[Alignment | None]:
    """Align pairs by a model that is fitted to them by expectation-maximization.

    The probability of an alignment is the product of the joint probabilities of its chunks. The alignment returned has
    the highest sum of the log-probabilities of its chunks, each times the number of symbols on the longer side of the
    chunk: without that factor, few long chunks would be more probable than many short ones.

    Args:
        pairs: Source symbols and target symbols of each pair.
        limits: Sizes that a chunk may have.
        iterations: Number of iterations of expectation-maximization; 11 by default.

    Returns:
        The alignment of each pair, whose score is the joint log-probability of its chunks; None for a pair that has no
        alignment (`ChunkLimits.can_align`).

    Raises:
        ArgumentError: An argument has a wrong type or is out of range.
        ConfigError: The pairs have too many different symbols for chunks of this size.

    References:
        Jiampojamarn, Kondrak and Sherif 2007, Applying many-to-many alignments and hidden Markov models to
        letter-to-phoneme conversion.
    """
    lengths = np.array([(len(source), len(target)) for source, target in pairs], np.int64).reshape(-1, 2)
    rows = np.flatnonzero(limits.can_align(lengths[:, 0], lengths[:, 1])).tolist()
    alignments = list[Alignment | None]([None] * len(pairs))
    if not rows:
        return alignments
    from pellucid.alignment.lattice import align_pairs, estimate_graphones  # Numba takes a second to import

    sources = _encode_sequences([pairs[row][0] for row in rows])
    targets = _encode_sequences([pairs[row][1] for row in rows])
    arrays = SymbolPairs(sources.ids, sources.offsets, targets.ids, targets.offsets)
    numbering = GraphoneKeys(sources.num_ids, targets.num_ids, limits.max_source, limits.max_target)
    if not numbering.fits_int64:
        raise ConfigError(
            f"chunks of up to {limits.max_source} of {sources.num_ids:,} different source symbols with up to "
            f"{limits.max_target} of {targets.num_ids:,} target symbols cannot be numbered: lower limits.max_source "
            "or limits.max_target (--max-source, --max-target)"
        )
    distribution = estimate_graphones(arrays, numbering, limits, iterations)
    sequences = align_pairs(arrays, numbering, limits, distribution, by_longer_side=True)
    chunk_sizes = list(zip(sequences.source_sizes.tolist(), sequences.target_sizes.tolist(), strict=True))
    offsets, scores = sequences.offsets.tolist(), sequences.log_probabilities.tolist()
    assert len(offsets) - 1 == len(rows), "all of them are aligned"
    for index, row in enumerate(rows):
        source, target = pairs[row]
        chunks = chunks_of_sizes(chunk_sizes[offsets[index] : offsets[index + 1]])
        alignments[row] = Alignment(tuple(source), tuple(target), chunks, min(scores[index], 0.0))
    return alignments


class _EncodedSequences(NamedTuple):
    """Sequences of symbols as ids, in the order of the first occurrences, in one array."""

    ids: Int[np.ndarray, " n"]
    offsets: Int[np.ndarray, " N+1"]
    num_ids: int
    """Number of different ids, at least 1."""


def _encode_sequences(sequences: Sequence[Sequence[str]]) -> _EncodedSequences:
    """Return the sequences as ids."""
    ids: dict[str, int] = {}
    encoded = [ids.setdefault(symbol, len(ids)) for sequence in sequences for symbol in sequence]
    offsets = np.cumsum([0, *map(len, sequences)]).astype(np.int64)
    return _EncodedSequences(np.array(encoded, np.int64), offsets, max(1, len(ids)))
