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
    limits: BatchLengthLimits
    positions: Int[Tensor, " B"]
    """Number of encoder positions of each source: `lengths`, or without features where these are added."""
    first: int = 0
    """Number of the first given example, from 0."""


def encode_targets(
    examples: Sequence[Example],
    symbols: Sequence[Sequence[str]],
    vocabularies: Vocabularies,
    tokenizers: Tokenizers,
    config: Config,
) -> Ragged:
    """Return target ids with EOS. With copying, a symbol outside the vocabulary becomes its position in the source.

    Args:
        examples: Examples.
        symbols: Target symbols of each example.
        vocabularies: Vocabularies of the model.
        tokenizers: Tokenizers of the model.
        config: Configuration of the model.
    """
    if config.decoder.pointer_generator:
        return pair_encoder(config)(examples, tokenizers, vocabularies).target
    return to_ragged([[*vocabularies.target.encode(target), EOS] for target in symbols])


def encode_source_ids(
    examples: Sequence[Example], vocabularies: Vocabularies, tokenizers: Tokenizers, config: Config
) -> tuple[Ragged, Ragged]:
    """Return source ids. With copying, the second form keeps the target ids of unknown symbols.

    Args:
        examples: Examples; their targets are ignored.
        vocabularies: Vocabularies of the model.
        tokenizers: Tokenizers of the model.
        config: Configuration of the model.

    Returns:
        The source ids, and the ids for the encoder; equal for a model that does not copy.
    """
    plain = encode_sources(examples, tokenizers, vocabularies)
    if not config.decoder.pointer_generator:
        return plain, plain
    return plain, extend_sources(plain, examples, tokenizers, vocabularies, config.encoder.features == "sum")


def copyable_sources(
    examples: Sequence[Example], tokenizers: Tokenizers, config: Config
) -> list[tuple[Sequence[str], int]] | None:
    """Return the symbols that a model can copy from each source, and how many of them are features.

    Args:
        examples: Examples; their targets are ignored.
        tokenizers: Tokenizers of the model.
        config: Configuration of the model.

    Returns:
        One pair per example; None for a model that does not copy.
    """
    if not config.decoder.pointer_generator:
        return None
    sources = [input_symbols(example, tokenizers) for example in examples]
    if config.encoder.features == "sum":
        return [(symbols[features:], 0) for symbols, features in sources]
    return list(sources)


def encode_source_batch(
    examples: Sequence[Example],
    tokenized: Sequence[TokenizedSource],
    vocabularies: Vocabularies,
    tokenizers: Tokenizers,
    config: Config,
) -> tuple[list[TokenizedSource], Ragged]:
    """Return the sources with their unknown positions, and the ids for the encoder.

    Args:
        examples: Examples; their targets are ignored.
        tokenized: The tokenized source of each example.
        vocabularies: Vocabularies of the model.
        tokenizers: Tokenizers of the model.
        config: Configuration of the model.
    """
    source_ids, encoder_ids = encode_source_ids(examples, vocabularies, tokenizers, config)
    marked = mark_unknown_symbols(tokenized, source_ids, len(vocabularies.source))
    return [
        remove_feature_positions(source) for source in marked
    ] if config.encoder.features == "sum" else marked, encoder_ids


MAX_HYPOTHESES = 2**14
"""Maximum number of hypotheses in memory; those of one source are never split."""
MAX_POSITIONS = 2**17
"""Source positions of these hypotheses, padding included: each step keeps a weight for each of them."""


class SearchRequest(NamedTuple):
    """Parameters of a search: hypotheses per source, lexicon entries per source, and constraints."""

    hypotheses: int
    nbest: int
    constraints: Constraints

    def sources(self, size: int) -> int:
        """Return the batch size: `size`, or less to keep at most `MAX_HYPOTHESES` hypotheses.

        Args:
            size: Maximum number of sources.
        """
        return max(1, min(size, MAX_HYPOTHESES // self.hypotheses))


def batched(
    rows: Sequence[int], lengths: Int[np.ndarray, " N"], request: SearchRequest, size: int
) -> Iterator[Sequence[int]]:
    """Yield the rows of each batch.

    Args:
        rows: Numbers of the sources to decode, shortest first.
        lengths: Length of every source.
        request: Number of hypotheses per source.
        size: Maximum number of sources in a batch.
    """
    start, max_sources = 0, request.sources(size)
    while start < len(rows):
        batch = rows[start : start + max_sources]
        # The last source is the longest. The sources of a smaller batch are shorter, so its padded size still fits.
        positions = request.hypotheses * int(lengths[batch[-1]])
        batch = batch[: max(1, MAX_POSITIONS // positions)]
        yield batch
        start += len(batch)


def read_example(example: Example, number: int, tokenizers: Tokenizers, config: DataConfig) -> TokenizedSource:
    """Tokenize one example.

    Args:
        example: Example; its target is ignored.
        number: Number of the example from 1, for errors.
        tokenizers: Tokenizers of the model.
        config: Data settings of the model.

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


def mark_unknown_symbols(
    tokenized: Sequence[TokenizedSource], sources: Ragged, num_source_ids: int
) -> list[TokenizedSource]:
    """Return the sources with the positions of symbols outside the vocabulary.

    Args:
        tokenized: Tokenized sources.
        sources: Source ids of each.
        num_source_ids: Number of source ids, after which the ids of features follow.
    """
    indices = np.flatnonzero(np.isin(sources.values, (UNK, num_source_ids + UNK)))
    rows = np.searchsorted(sources.offsets, indices, side="right") - 1
    unknown_positions: dict[int, list[int]] = {}
    for row, position in zip(rows.tolist(), (indices - sources.offsets[rows]).tolist(), strict=True):
        unknown_positions.setdefault(row, []).append(position)
    return [
        source._replace(unknown=tuple(unknown_positions[row])) if row in unknown_positions and source.source else source
        for row, source in enumerate(tokenized)
    ]


def remove_feature_positions(tokenized: TokenizedSource) -> TokenizedSource:
    """Return a source whose features are added to every symbol and have no positions.

    Args:
        tokenized: Source that begins with its features.
    """
    unknown = tuple(position - tokenized.features for position in tokenized.unknown if position >= tokenized.features)
    return TokenizedSource(
        tokenized.text, tokenized.source[tokenized.features :], 0, unknown, tokenized.source[: tokenized.features]
    )


MAX_LENGTH_FACTOR = 10
"""A length limit is at most this many times the longest training target, or `ALWAYS_ALLOWED` symbols if greater."""
ALWAYS_ALLOWED = 1000


def max_output_length(search: SearchConfig, vocabularies: Vocabularies) -> int:
    """Return the maximum output length in symbols: the setting, or 1.5 times the longest training target plus 10.

    Args:
        search: Search settings.
        vocabularies: Vocabularies of the model, with the length of the longest training target.

    Raises:
        ConfigError: The minimum length exceeds it, or a limit is more than `MAX_LENGTH_FACTOR` allows.
    """
    derived = math.ceil(1.5 * vocabularies.longest_target) + 10
    if not search.max_length and search.min_length > derived:
        raise ConfigError(
            f"search.min_length = {search.min_length} exceeds the maximum length, {derived} (1.5 times the longest "
            f"training target plus 10): set search.max_length too"
        )
    bound = max(ALWAYS_ALLOWED, MAX_LENGTH_FACTOR * vocabularies.longest_target)
    for name in ("min_length", "max_length"):
        if getattr(search, name) > bound:
            raise ConfigError(
                f"search.{name}: expected at most {bound} ({MAX_LENGTH_FACTOR} times the longest training target, "
                f"which has {vocabularies.longest_target} symbols, or {ALWAYS_ALLOWED} where that is more), got "
                f"{getattr(search, name)}"
            )
    return search.max_length or derived


def output_length_limits(
    sources: Sequence[TokenizedSource], search: SearchConfig, max_length: int, constraints: Constraints
) -> BatchLengthLimits:
    """Return the minimum and maximum output length of each source.

    A limit by ratio gives way to the constraints. If the two limits of a source cross, the maximum holds, with a
    warning.

    Args:
        sources: Sources of a batch.
        search: Search settings.
        max_length: Maximum output length of the model.
        constraints: Constraints of the batch.

    Raises:
        ConstraintError: The constraints need more symbols than `max_length`.
    """
    symbols = np.array([len(source.source) - source.features for source in sources])
    maximum, minimum = np.full(len(sources), max_length), np.full(len(sources), search.min_length)
    if search.max_length_ratio:
        allowed = np.floor(np.round(search.max_length_ratio * symbols, 9)).astype(np.int64) + search.max_length_offset
        maximum = np.minimum(maximum, np.maximum(allowed, 1))
    if search.min_length_ratio:
        required = np.ceil(np.round(search.min_length_ratio * symbols, 9)).astype(np.int64) + search.min_length_offset
        minimum = np.maximum(minimum, required)
    needed = np.zeros(len(sources), np.int64)
    if constraints.any:
        needed = np.array([constraints.min_length(row) for row in range(len(sources))])
    if (needed > max_length).any():
        raise ConstraintError(
            f"the prefix and the required symbols take {needed.max()} symbols, but search.max_length is {max_length}"
        )
    maximum = np.maximum(maximum, needed)
    if (minimum > maximum).any():
        message = "the minimum output length of some sources exceeds the maximum: the maximum is used"
        warnings.warn(message, stacklevel=2)
    return BatchLengthLimits(np.minimum(minimum, maximum), maximum)


def check_minimum(
    sources: Sequence[TokenizedSource],
    limits: BatchLengthLimits,
    numbers: Int[np.ndarray, " B"],
    vocabulary: Vocabulary,
    copies: bool,
) -> None:
    """Check that outputs with a minimum length are possible where every symbol of the vocabulary is forbidden.

    Args:
        sources: Sources of a batch.
        limits: Length limits of each source.
        numbers: Number of each source, from 0, among all given ones.
        vocabulary: Target vocabulary.
        copies: True if the model also copies source symbols outside the vocabulary.

    Raises:
        ConstraintError: A source has a minimum length above 0 and no symbol that can be copied.
    """
    for source, minimum, number in zip(sources, limits.minimum.tolist(), numbers.tolist(), strict=True):
        copyable = copies and any(symbol not in vocabulary.ids for symbol in source.source[source.features :])
        if minimum > 0 and not copyable:
            raise ConstraintError(
                f"forbidden: all {len(vocabulary.symbols)} symbols that the model writes are forbidden, but the output "
                f"of source {number + 1} has at least {minimum} (search.min_length, search.min_length_ratio)"
            )
