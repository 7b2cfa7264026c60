"""Preprocessing: examples to tokenized sources, ids and batches.

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
from pellucid.data.batches import Ragged, encode_sources, to_ragged
from pellucid.data.examples import Example
from pellucid.data.extended_vocabulary import extend_sources, input_symbols
from pellucid.data.target_encoding import pair_encoder
from pellucid.data.tokenizers import Tokenizers
from pellucid.data.vocabulary import EOS, UNK, Vocabularies, Vocabulary
from pellucid.decoding.constraints import Constraints
from pellucid.decoding.outputs import BatchLengthLimits
from pellucid.errors import ConfigError, ConstraintError, DataError


class TokenizedSource(NamedTuple):
    """One tokenized source: its symbols, which begin with the features."""

    text: str
    source: tuple[str, ...]
    features: int
    unknown: tuple[int, ...] = ()
    added: tuple[str, ...] = ()
    """Features whose embeddings are added to every symbol; they have no positions."""


class InferenceBatch(NamedTuple):
    """One batch to decode."""

    rows: Int[np.ndarray, " B"]
    """Index of each example among the given ones."""
    source: Int[Tensor, "B S"]
    lengths: Int[Tensor, " B"]
    spans: BatchLengthLimits
    positions: Int[Tensor, " B"]
    """Number of encoder positions of each source: `lengths`, or without features where these are added."""
    first: int = 0
    """Number of the first given example, from 0."""


def encode_targets(
    given: Sequence[Example], symbols: Sequence[Sequence[str]], known: Vocabularies, cut: Tokenizers, config: Config
) -> Ragged:
    """Return target ids with EOS. With copying, a symbol outside the vocabulary becomes its position in the source."""
    if config.decoder.pointer_generator:
        return pair_encoder(config)(given, cut, known).target
    return to_ragged([[*known.target.encode(each), EOS] for each in symbols])


def encode_source_ids(
    given: Sequence[Example], known: Vocabularies, cut: Tokenizers, config: Config
) -> tuple[Ragged, Ragged]:
    """Return source ids for the encoder. With copying, unknown symbols keep their target ids."""
    plain = encode_sources(given, cut, known)
    if not config.decoder.pointer_generator:
        return plain, plain
    return plain, extend_sources(plain, given, cut, known, config.encoder.features == "sum")


def copyable_sources(
    given: Sequence[Example], cut: Tokenizers, config: Config
) -> list[tuple[Sequence[str], int]] | None:
    """Return the symbols that a model can copy from each source, and how many of them are features."""
    if not config.decoder.pointer_generator:
        return None
    read = [input_symbols(each, cut) for each in given]
    return [(symbols[features:], 0) for symbols, features in read] if config.encoder.features == "sum" else list(read)


def encode_source_batch(
    given: Sequence[Example], read: Sequence[TokenizedSource], known: Vocabularies, cut: Tokenizers, config: Config
) -> tuple[list[TokenizedSource], Ragged]:
    """Return the sources with their unknown positions, and the ids for the encoder."""
    plain, sources = encode_source_ids(given, known, cut, config)
    named = mark_unknown_symbols(read, plain, len(known.source))
    return [remove_feature_positions(each) for each in named] if config.encoder.features == "sum" else named, sources


TOGETHER = 2**14
"""Maximum number of hypotheses in memory; those of one source are never split."""
POSITIONS = 2**17
"""Source positions of these hypotheses, padding included: each step keeps a weight for each of them."""


class SearchRequest(NamedTuple):
    """Parameters of a search: hypotheses per source, lexicon entries per source, and constraints."""

    width: int
    best: int
    constraints: Constraints

    def sources(self, size: int) -> int:
        """Return the batch size: `size`, or less to keep at most `TOGETHER` hypotheses."""
        return max(1, min(size, TOGETHER // self.width))


def batched(
    rows: Sequence[int], lengths: Int[np.ndarray, " N"], asked: SearchRequest, size: int
) -> Iterator[Sequence[int]]:
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


def read_example(example: Example, number: int, tokenizers: Tokenizers, config: DataConfig) -> TokenizedSource:
    """Tokenize one example.

    Raises:
        DataError: The source is too long, or has features that the model does not use.
    """
    source, limit = tokenizers.source.split(example.source), config.max_length
    if len(source) > limit:
        raise DataError(f"source {number} has {len(source)} symbols; data.max_length is {limit}")
    if example.features and not config.features_column:
        raise DataError(f"source {number} has features, but the model was trained without (data.features_column)")
    if not source:
        return TokenizedSource(example.source, (), 0)
    features = tokenizers.features.split(example.features) if example.features else []
    symbols = (*features, *source) if features else tuple(source)
    if features or len(source) != len(example.source) or not example.source.isascii():
        symbols = tuple(map(sys.intern, symbols))  # one object per symbol; CPython caches single ASCII characters
    return TokenizedSource(example.source, symbols, len(features))


def mark_unknown_symbols(read: Sequence[TokenizedSource], sources: Ragged, symbols: int) -> list[TokenizedSource]:
    """Return a source with the positions of symbols outside the vocabulary; `symbols` is the number of source ids."""
    places = np.flatnonzero(np.isin(sources.values, (UNK, symbols + UNK)))
    rows = np.searchsorted(sources.offsets, places, side="right") - 1
    found: dict[int, list[int]] = {}
    for row, position in zip(rows.tolist(), (places - sources.offsets[rows]).tolist(), strict=True):
        found.setdefault(row, []).append(position)
    return [
        each._replace(unknown=tuple(found[row])) if row in found and each.source else each
        for row, each in enumerate(read)
    ]


def remove_feature_positions(read: TokenizedSource) -> TokenizedSource:
    """Return a source whose features are added to every symbol and have no positions."""
    unknown = tuple(at - read.features for at in read.unknown if at >= read.features)
    return TokenizedSource(read.text, read.source[read.features :], 0, unknown, read.source[: read.features])


LONGER = 10
"""No output is longer than so many times the longest training target, or than `ALWAYS_ALLOWED` symbols."""
ALWAYS_ALLOWED = 1000


def max_output_length(search: SearchConfig, known: Vocabularies) -> int:
    """Return the maximum output length in symbols: the setting, or 1.5 times the longest training target plus 10.

    Raises:
        ConfigError: The minimum length exceeds it.
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


def output_length_limits(
    read: Sequence[TokenizedSource], search: SearchConfig, longest: int, constraints: Constraints
) -> BatchLengthLimits:
    """Return the minimum and maximum output length of each source.

    A limit by ratio gives way to the constraints. If the two limits of a source cross, the maximum holds, with a
    warning.

    Raises:
        InputError: The constraints need more symbols than `longest`.
    """
    symbols = np.array([len(each.source) - each.features for each in read])
    maximum, minimum = np.full(len(read), longest), np.full(len(read), search.min_length)
    if search.max_length_ratio:
        allowed = np.floor(np.round(search.max_length_ratio * symbols, 9)).astype(np.int64) + search.max_length_offset
        maximum = np.minimum(maximum, np.maximum(allowed, 1))
    if search.min_length_ratio:
        asked = np.ceil(np.round(search.min_length_ratio * symbols, 9)).astype(np.int64) + search.min_length_offset
        minimum = np.maximum(minimum, asked)
    needed = np.zeros(len(read), np.int64)
    if constraints.any:
        needed = np.array([constraints.least(row) for row in range(len(read))])
    if (needed > longest).any():
        raise ConstraintError(
            f"the prefix and the required symbols take {needed.max()} symbols, but search.max_length is {longest}"
        )
    maximum = np.maximum(maximum, needed)
    if (minimum > maximum).any():
        told = "for some sources the shortest output of search is beyond the longest: the longest holds"
        warnings.warn(told, stacklevel=2)
    return BatchLengthLimits(np.minimum(minimum, maximum), maximum)


def check_minimum(
    read: Sequence[TokenizedSource],
    spans: BatchLengthLimits,
    numbers: Int[np.ndarray, " B"],
    vocabulary: Vocabulary,
    copies: bool,
) -> None:
    """Raise an `InputError` where a shortest output is asked for, but every symbol of the vocabulary is forbidden.

    Args:
        read: The sources of a batch.
        spans: The shortest and the longest output of each.
        numbers: The number of each, from 0, among all that are given.
        vocabulary: The symbols that the model writes.
        copies: Whether it also copies symbols of the source that the vocabulary lacks.
    """
    for each, least, number in zip(read, spans.minimum.tolist(), numbers.tolist(), strict=True):
        if least > 0 and not (copies and any(symbol not in vocabulary.ids for symbol in each.source[each.features :])):
            raise ConstraintError(
                f"forbidden: all {len(vocabulary.symbols)} symbols that the model writes are forbidden, but the output "
                f"of source {number + 1} has at least {least} (search.min_length, search.min_length_ratio)"
            )
