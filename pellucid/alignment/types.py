"""Alignments as values, the limits of their chunks, and arrays of pairs. This module imports no compiled function.

N examples.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple, TypeVar

import msgspec
import numpy as np
from msgspec import Meta

from pellucid.errors import DataError, quote
from pellucid.shapes import Bool, Int

EPSILON, SEPARATOR, SIDE_SEPARATOR = "_", "|", "}"
"""Marks of Phonetisaurus' corpus format: no symbol, between the symbols of a chunk, and between its two sides."""
SCORE_DECIMALS = 6
AlignmentMethod = Literal["auto", "em", "attention"]
"""Method of an alignment: expectation-maximization or the attention of a model; auto: attention if there is a model."""
ChunkSize = Annotated[int, Meta(ge=1, le=16)]

LengthsType = TypeVar("LengthsType", int, Int[np.ndarray, "..."])

MAX_PAIR_EDGES = 2**24
"""Maximum number of edges of the lattice of one pair, which bounds memory; longer pairs have no alignment."""


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

    @property
    def num_sizes(self) -> int:
        """Number of different sizes of a chunk."""
        with_both = self.max_source + self.max_target - 1
        if self.many_to_many:
            with_both = self.max_source * self.max_target
        return with_both + self.insertions + self.deletions

    def count_edges(self, num_source: LengthsType, num_target: LengthsType) -> LengthsType:
        """Return the maximum number of edges of a lattice; pairs with more than `MAX_PAIR_EDGES` are not aligned.

        Args:
            num_source: S, number of source symbols, or an array of such numbers.
            num_target: T, number of target symbols, or an array of such numbers.
        """
        edges: LengthsType = (num_source + 1) * (num_target + 1) * self.num_sizes
        return edges

    def allow(self, num_source: LengthsType, num_target: LengthsType) -> bool | Bool[np.ndarray, "..."]:
        """Return whether a source and a target of these lengths can be divided into such chunks.

        Args:
            num_source: S, number of source symbols, or an array of such numbers.
            num_target: T, number of target symbols, or an array of such numbers.
        """
        fits_target = self.insertions | (num_target <= num_source * self.max_target)
        return fits_target & (self.deletions | (num_source <= num_target * self.max_source))

    def can_align(self, num_source: LengthsType, num_target: LengthsType) -> bool | Bool[np.ndarray, "..."]:
        """Return whether a source and a target of these lengths are aligned.

        They are if the source is not empty, the chunks allow it (`allow`), and the lattice has at most `MAX_PAIR_EDGES`
        edges (`count_edges`). `no_alignment_reason` names the reason if not.

        Args:
            num_source: S, number of source symbols, or an array of such numbers.
            num_target: T, number of target symbols, or an array of such numbers.
        """
        is_short = self.count_edges(num_source, num_target) <= MAX_PAIR_EDGES
        return (num_source > 0) & self.allow(num_source, num_target) & is_short

    def describe(self) -> str:
        """Return the limits for messages: "chunks of at most 2-1 or 1-2 symbols, with insertions, with deletions"."""
        switches = {"insertions": self.insertions, "deletions": self.deletions}
        kinds = ", ".join(f"{'with' if allowed else 'without'} {name}" for name, allowed in switches.items())
        sizes = f"{self.max_source}-{self.max_target}"
        if not self.many_to_many and min(self.max_source, self.max_target) > 1:
            sizes = f"{self.max_source}-1 or 1-{self.max_target}"
        return f"chunks of at most {sizes} symbols, {kinds}"


DEFAULT_LIMITS = ChunkLimits()


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

    def to_pharaoh(self) -> str:
        """Return the links as pairs of positions from 0, "0-0 1-1 2-1", the format of fast_align, Moses and OpenNMT."""
        return " ".join(f"{source}-{target}" for source, target in self.links)

    def to_phonetisaurus(self) -> str:
        """Return the alignment as a line of a corpus of phonetisaurus-align, with its default marks: "t|h}ð e}_".

        Raises:
            DataError: A symbol cannot be written, because it is empty or "_", or contains "|", "}" or white space.
        """
        for symbol in (*self.source, *self.target):
            if reason := _unwritable_reason(symbol):
                raise DataError(
                    f"the symbol {quote(symbol)} cannot be written in the corpus format of Phonetisaurus: {reason}"
                )
        return " ".join(
            f"{SEPARATOR.join(source) or EPSILON}{SIDE_SEPARATOR}{SEPARATOR.join(target) or EPSILON}"
            for source, target in self.symbols
        )

    def to_json(self) -> str:
        """Return the alignment as one line of JSON: an object with the fields source, target, chunks and score."""
        record = {
            "source": self.source,
            "target": self.target,
            "chunks": self.chunks,
            "score": round(self.score, SCORE_DECIMALS),
        }
        return msgspec.json.encode(record).decode()


def _unwritable_reason(symbol: str) -> str:
    """Return why a symbol cannot be written in the corpus format of Phonetisaurus; "" if it can."""
    if symbol in ("", EPSILON):
        return f"{quote(EPSILON)} stands for no symbol there" if symbol else "it is empty"
    for mark in (SEPARATOR, SIDE_SEPARATOR):
        if mark in symbol:
            return f"{quote(mark)} separates symbols there"
    return "it contains white space" if symbol.split() != [symbol] else ""


def chunks_of_sizes(sizes: Sequence[tuple[int, int]]) -> tuple[AlignedChunk, ...]:
    """Return successive chunks that have these sizes.

    Args:
        sizes: Number of source symbols and of target symbols of each chunk.
    """
    chunks = list[AlignedChunk]()
    row = 0
    column = 0
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
    """Numbering of all possible graphones: pairs of a source chunk and a target chunk.

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
    def fits_int64(self) -> bool:
        """True if every key is an integer of 63 bits."""
        num_keys: int = (self.source_size + 1) ** self.source_chunk * (self.target_size + 1) ** self.target_chunk
        return num_keys < 2**63


def no_alignment_reason(num_source: int, num_target: int, limits: ChunkLimits) -> str:
    """Return why a source and a target of these lengths are not aligned; "" if they are.

    Args:
        num_source: S, number of source symbols.
        num_target: T, number of target symbols.
        limits: Sizes that a chunk may have.
    """
    if limits.can_align(num_source, num_target):
        return ""
    lengths = f"{num_source:,} source and {num_target:,} target symbols"
    if not num_source:
        return "the source has no symbol"
    if not limits.allow(num_source, num_target):
        return f"{lengths} cannot be divided into {limits.describe()}"
    return f"{lengths} are too long: at most {MAX_PAIR_EDGES // limits.num_sizes:,} pairs of positions are compared"
