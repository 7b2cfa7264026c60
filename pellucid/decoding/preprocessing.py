"""Examples as the encoder reads them, and what a search needs to know of each beside its ids.

B sources of a batch, S source positions.
"""

import math
import sys
import warnings
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Int
from torch import Tensor

from pellucid.config.settings import Config, DataConfig, SearchConfig
from pellucid.data.answering import encoding_of_pairs
from pellucid.data.batches import Ragged, encode_sources, ragged
from pellucid.data.copies import read_symbols, sources_with_copies
from pellucid.data.examples import Example
from pellucid.data.tokenizers import Segmenters
from pellucid.data.vocabulary import EOS, UNK, Vocabularies
from pellucid.decoding.constraints import Constraints
from pellucid.decoding.outputs import Spans
from pellucid.errors import ConfigError, DataError, InputError


class Read(NamedTuple):
    """One source as the encoder reads it: its symbols, of which the first are features; none where it has none."""

    text: str
    source: tuple[str, ...]
    features: int
    unknown: tuple[int, ...] = ()
    added: tuple[str, ...] = ()
    """Features that are added to every symbol, and stand nowhere."""


class Work(NamedTuple):
    """One batch to decode."""

    rows: Int[np.ndarray, " B"]
    """The numbers of its examples among those given."""
    source: Int[Tensor, "B S"]
    lengths: Int[Tensor, " B"]
    spans: Spans
    positions: Int[Tensor, " B"]
    """How many positions the encoder leaves of each: `lengths`, or without features where these are added."""
    first: int = 0
    """The number of the first of the examples given, from 0."""


def targets_of(
    given: Sequence[Example], symbols: Sequence[Sequence[str]], known: Vocabularies, cut: Segmenters, config: Config
) -> Ragged:
    """Given targets in ids, the end last; with copying, what the vocabulary lacks by its place in the source."""
    if config.decoder.pointer_generator:
        return encoding_of_pairs(config)(given, cut, known).target
    return ragged([[*known.target.encode(each), EOS] for each in symbols])


def sources_of(given: Sequence[Example], known: Vocabularies, cut: Segmenters, config: Config) -> tuple[Ragged, Ragged]:
    """Ids of sources, and as the encoder reads them: with copying, unknown symbols say what they are as targets."""
    plain = encode_sources(given, cut, known)
    if not config.decoder.pointer_generator:
        return plain, plain
    return plain, sources_with_copies(plain, given, cut, known, config.encoder.features == "sum")


def copied_from(given: Sequence[Example], cut: Segmenters, config: Config) -> list[tuple[Sequence[str], int]] | None:
    """What a model that copies reads of each source, and how much of it, from the first, are features."""
    if not config.decoder.pointer_generator:
        return None
    read = [read_symbols(each, cut) for each in given]
    return [(symbols[features:], 0) for symbols, features in read] if config.encoder.features == "sum" else list(read)


def ids_of(
    given: Sequence[Example], read: Sequence[Read], known: Vocabularies, cut: Segmenters, config: Config
) -> tuple[list[Read], Ragged]:
    """What was read, with the positions of symbols never seen, and the ids that the encoder reads."""
    plain, sources = sources_of(given, known, cut, config)
    named = with_unknown(read, plain, len(known.source))
    return [with_added(each) for each in named] if config.encoder.features == "sum" else named, sources


TOGETHER = 2**14
"""Hypotheses that are held in memory at a time, of all sources of a batch; those of one source are never parted."""
POSITIONS = 2**17
"""Source positions of these hypotheses, padding included: each step keeps a weight for each of them."""


class Asked(NamedTuple):
    """How many hypotheses of each source run together, how many a lexicon answers with at most, and constraints."""

    width: int
    best: int
    constraints: Constraints

    def sources(self, size: int) -> int:
        """How many are decoded at once: `size`, or fewer where these would have more hypotheses than `TOGETHER`."""
        return max(1, min(size, TOGETHER // self.width))


def batched(rows: Sequence[int], lengths: Int[np.ndarray, " N"], asked: Asked, size: int) -> Iterator[Sequence[int]]:
    """Yield the rows of each batch.

    Args:
        rows: The numbers of the sources to decode, shortest first.
        lengths: The length of every source.
        asked: What is asked of them.
        size: The greatest number of sources in a batch.
    """
    start, most = 0, asked.sources(size)
    while start < len(rows):
        batch = rows[start : start + most]
        # The last one is the longest. A batch of fewer sources has shorter ones, so this takes at least as many as fit.
        positions = asked.width * int(lengths[batch[-1]])
        batch = batch[: max(1, POSITIONS // positions)]
        yield batch
        start += len(batch)


def read_example(example: Example, number: int, segmenters: Segmenters, config: DataConfig) -> Read:
    """The symbols of one example; `DataError` for a source that is too long, and for features nobody reads."""
    source, limit = segmenters.source.split(example.source), config.max_length
    if len(source) > limit:
        raise DataError(f"source {number} has {len(source)} symbols; data.max_length is {limit}")
    if example.features and not config.features_column:
        raise DataError(f"source {number} has features, but the model was trained without (data.features_column)")
    if not source:
        return Read(example.source, (), 0)
    features = segmenters.features.split(example.features) if example.features else []
    symbols = (*features, *source)
    if features or len(source) != len(example.source) or not example.source.isascii():
        symbols = tuple(map(sys.intern, symbols))  # each in memory once, as single characters of ASCII are anyway
    return Read(example.source, symbols, len(features))


def with_unknown(read: Sequence[Read], sources: Ragged, symbols: int) -> list[Read]:
    """The same with the positions of symbols that were never seen; `symbols` counts the ids of sources alone."""
    places = np.flatnonzero(np.isin(sources.values, (UNK, symbols + UNK)))
    rows = np.searchsorted(sources.offsets, places, side="right") - 1
    found: dict[int, list[int]] = {}
    for row, position in zip(rows.tolist(), (places - sources.offsets[rows]).tolist(), strict=True):
        found.setdefault(row, []).append(position)
    return [
        each._replace(unknown=tuple(found[row])) if row in found and each.source else each
        for row, each in enumerate(read)
    ]


def with_added(read: Read) -> Read:
    """The same where features are added to every symbol: they are no positions."""
    unknown = tuple(at - read.features for at in read.unknown if at >= read.features)
    return Read(read.text, read.source[read.features :], 0, unknown, read.source[: read.features])


LONGER = 10
"""No output is longer than so many times the longest training target, or than `ALWAYS_ALLOWED` symbols."""
ALWAYS_ALLOWED = 1000


def greatest_length(search: SearchConfig, known: Vocabularies) -> int:
    """The greatest output length, in symbols: as set, or half as much again as the longest training target.

    Raises:
        ConfigError: The shortest output is to be longer than what is derived, or a limit is far beyond the targets
            that the model was trained on: decoding would take hours, and write nothing of use.
    """
    derived = math.ceil(1.5 * known.longest_target) + 10
    if not search.max_length and search.min_length > derived:
        raise ConfigError(
            f"search.min_length = {search.min_length} is beyond the greatest length, {derived} (half as much "
            f"again as the longest training target and ten): set search.max_length too"
        )
    bound = max(ALWAYS_ALLOWED, LONGER * known.longest_target)
    for name in ("min_length", "max_length"):
        if getattr(search, name) > bound:
            raise ConfigError(
                f"search.{name}: expected at most {bound} ({LONGER} times the longest training target, which has "
                f"{known.longest_target} symbols, or {ALWAYS_ALLOWED} where that is more), got {getattr(search, name)}"
            )
    return search.max_length or derived


def spans_for(read: Sequence[Read], search: SearchConfig, longest: int, constraints: Constraints) -> Spans:
    """The shortest and the longest output of each source: by number (`longest` is the greatest) and by the source.

    A ratio's limit gives way to what the constraints need, a number does not: then `InputError`. Where both limits
    cross for some sources the greatest length holds, with a warning.
    """
    symbols = np.array([len(each.source) - each.features for each in read])
    maximum, minimum = np.full(len(read), longest), np.full(len(read), search.min_length)
    if search.max_length_ratio:
        allowed = np.floor(np.round(search.max_length_ratio * symbols, 9)).astype(np.int64) + search.max_length_offset
        maximum = np.minimum(maximum, np.maximum(allowed, 1))
    if search.min_length_ratio:
        asked = np.ceil(np.round(search.min_length_ratio * symbols, 9)).astype(np.int64) + search.min_length_offset
        minimum = np.maximum(minimum, asked)
    needed = np.array([constraints.least(row) for row in range(len(read))])
    if (needed > longest).any():
        raise InputError(
            f"the prefix and the required symbols take {needed.max()} symbols, but search.max_length is {longest}"
        )
    maximum = np.maximum(maximum, needed)
    if (minimum > maximum).any():
        told = "for some sources the shortest output of search is beyond the longest: the longest holds"
        warnings.warn(told, stacklevel=2)
    return Spans(np.minimum(minimum, maximum), maximum)
