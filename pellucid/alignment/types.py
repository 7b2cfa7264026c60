"""Alignments as values, the limits of their chunks, and arrays of pairs. This module imports no compiled function.

N examples.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import numpy as np
from jaxtyping import Int
from msgspec import Meta

ChunkSize = Annotated[int, Meta(ge=1, le=16)]


class ChunkLimits(NamedTuple):
    """Sizes that the chunks of an alignment may have: source symbols with target symbols.

    By default 1-1, 1-2, 2-1, 1-0 and 0-1, as in phonetisaurus-align.
    """

    max_source: ChunkSize = 2
    """Maximum number of source symbols of a chunk, 1 to 16."""
    max_target: ChunkSize = 2
    """Maximum number of target symbols of a chunk, 1 to 16."""
    insertions: bool = True
    """Whether a target symbol may be aligned with no source symbol (0-1)."""
    deletions: bool = True
    """Whether a source symbol may be aligned with no target symbol (1-0)."""
    many_to_many: bool = False
    """Whether a chunk may have several source symbols and several target symbols; otherwise one side has one at most.
    """

    def allow(self, num_source: int, num_target: int) -> bool:
        """Return whether a source and a target of these lengths have an alignment.

        Args:
            num_source: S, number of source symbols.
            num_target: T, number of target symbols.
        """
        fits_target = self.insertions or num_target <= num_source * self.max_target
        return fits_target and (self.deletions or num_source <= num_target * self.max_source)


class AlignedChunk(NamedTuple):
    """Source positions [source_start, source_stop) that are aligned with target positions [target_start, target_stop).

    An insertion has no source position, a deletion no target position.
    """

    source_start: int
    source_stop: int
    target_start: int
    target_stop: int


@dataclass(frozen=True, slots=True)
class Alignment:
    """Monotone alignment of a source with a target: chunks that cover both, in their order."""

    source: tuple[str, ...]
    """Source symbols."""
    target: tuple[str, ...]
    """Target symbols."""
    chunks: tuple[AlignedChunk, ...]
    """The chunks; each begins on both sides where the one before it ends."""
    score: float
    """Score of the alignment, at most 0; its meaning depends on the method."""

    @property
    def symbols(self) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
        """Source symbols and target symbols of each chunk."""
        return [
            (self.source[chunk.source_start : chunk.source_stop], self.target[chunk.target_start : chunk.target_stop])
            for chunk in self.chunks
        ]

    @property
    def links(self) -> list[tuple[int, int]]:
        """Pairs of a source position and a target position that are in one chunk, in ascending order."""
        return sorted(
            (source, target)
            for chunk in self.chunks
            for source in range(chunk.source_start, chunk.source_stop)
            for target in range(chunk.target_start, chunk.target_stop)
        )


def chunks_of_sizes(sizes: Sequence[tuple[int, int]]) -> tuple[AlignedChunk, ...]:
    """Return successive chunks that have these sizes.

    Args:
        sizes: Number of source symbols and of target symbols of each chunk.
    """
    chunks, row, column = list[AlignedChunk](), 0, 0
    for height, width in sizes:
        chunks.append(AlignedChunk(row, row + height, column, column + width))
        row, column = row + height, column + width
    return tuple(chunks)


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
    source_chunk: int
    """Maximum number of source symbols of a graphone."""
    target_chunk: int
    """M, maximum number of target symbols of a graphone."""

    @property
    def fits(self) -> bool:
        """True if every key is an integer of 63 bits."""
        num_keys: int = (self.source_size + 1) ** self.source_chunk * (self.target_size + 1) ** self.target_chunk
        return num_keys < 2**63
