"""Preprocessing: texts to examples, tokenized sources, ids and batches.

B sources of a batch, N sources of a chunk, S source positions.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from io import TextIOBase
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np

from pellucid.argument_checks import convert_argument
from pellucid.config.settings import Config, DataConfig, has_characters, reads_features
from pellucid.data.characters import WordCharacters, encode_characters
from pellucid.data.context import unknown_context
from pellucid.data.encoding import Ragged, encode_sources
from pellucid.data.examples import Example, features_error
from pellucid.data.extended_vocabulary import EncoderInput, extend_sources, input_symbols
from pellucid.data.lines import strip_newline
from pellucid.data.tokenizers import Tokenizers
from pellucid.data.vocabulary import UNK, Vocabularies
from pellucid.decoding.constraints import Constraints
from pellucid.decoding.streaming import pair_up
from pellucid.errors import DataError
from pellucid.kernels.types import Array
from pellucid.shapes import Int


def make_examples(sources: Iterable[str], features: Iterable[str] | None) -> list[Example] | Iterator[Example]:
    """Return one example per source, with an empty target: a list, or an iterator if `sources` is an iterator.

    Args:
        sources: Source texts. The lines of an open text file are read without their ends.
        features: One features text per source; None for a model without features.

    Raises:
        ArgumentError: An argument is not an iterable of texts.
        DataError: The numbers of sources and features differ. An iterator raises either error where it reaches it.
    """
    sources = _without_line_ends(sources, convert_argument("sources", sources, Iterable[str]))
    features = _without_line_ends(features, convert_argument("features", features, Iterable[str] | None))
    pairs = zip(sources, repeat("")) if features is None else pair_up(sources, features, "features", "features text")
    examples = (Example(source, "", tags) for source, tags in pairs)
    return examples if isinstance(sources, Iterator) else list(examples)


def _without_line_ends(texts: Iterable[str] | None, converted: Any) -> Any:  # noqa: ANN401 (as `convert_argument`)
    """Return converted texts; those of an open text file are its lines, without their ends."""
    return map(strip_newline, converted) if issubclass(type(texts), TextIOBase) else converted


class TokenizedSource(NamedTuple):
    """One tokenized source."""

    text: str
    """Source text as given."""
    source: tuple[str, ...]
    """Symbols: features, then the source; empty for an empty source, even one with features."""
    num_features: int
    """Number of features at the beginning of `source`."""
    unknown: tuple[int, ...] = ()
    """Positions in `source` whose symbol is not in the vocabulary."""
    summed_features: tuple[str, ...] = ()
    """Features whose embeddings are added to every symbol; they have no positions."""


class SourceBatch(NamedTuple):
    """One batch to decode, as arrays, or as tensors of the backend."""

    rows: Int[np.ndarray, " B"]
    """Index of each example in its chunk."""
    source: Int[Array, "B S"]
    """Source ids, padded."""
    lengths: Int[Array, " B"]
    """Number of source ids of each source, including features."""
    positions: Int[Array, " B"]
    """Number of encoder positions of each source: `lengths`, less the features where these are added to the symbols."""
    first: int = 0
    """Number of the first example of the chunk among all given ones, from 0."""
    characters: WordCharacters | None = None
    """Characters of the words of the sources; None for an encoder that reads none."""

    def take(self, rows: Sequence[int]) -> "SourceBatch":
        """Return some sources of the batch, in any order; a source may be repeated.

        Args:
            rows: Row of each source in this batch.
        """
        index = list(rows)
        characters = None if self.characters is None else self.characters.index_select(index)
        source, lengths, positions = self.source[index], self.lengths[index], self.positions[index]
        return SourceBatch(self.rows[index], source, lengths, positions, self.first, characters)


def encode_source_ids(
    examples: Sequence[Example], vocabularies: Vocabularies, tokenizers: Tokenizers, config: Config
) -> tuple[Ragged, Ragged]:
    """Return source ids, in which features precede symbols. The second form keeps unknown symbols that can be copied.

    Args:
        examples: Examples; their targets are ignored.
        vocabularies: Vocabularies of the model.
        tokenizers: Tokenizers of the model.
        config: Configuration of the model.

    Returns:
        The source ids, and the ids for the network, in which an unknown symbol is the number of source ids + its target
        id (or V + its source position) instead of UNK; both are the same object for a model that does not copy.
    """
    plain = encode_sources(examples, tokenizers, vocabularies)
    if not config.decoder.pointer_generator:
        return plain, plain
    return plain, extend_sources(plain, examples, tokenizers, vocabularies, config.encoder.feature_merge == "sum")


def encode_source_characters(
    examples: Sequence[Example], vocabularies: Vocabularies, tokenizers: Tokenizers, config: Config
) -> Ragged | None:
    """Return the characters of the words of each source (`encode_characters`); None for a model that reads none.

    Args:
        examples: Examples; their targets are ignored.
        vocabularies: Vocabularies of the model.
        tokenizers: Tokenizers of the model.
        config: Configuration of the model.
    """
    return encode_characters(examples, tokenizers, vocabularies.characters) if has_characters(config) else None


def copyable_sources(examples: Sequence[Example], tokenizers: Tokenizers, config: Config) -> list[EncoderInput] | None:
    """Return the symbols that a model can copy from each source, and how many of them are features.

    Args:
        examples: Examples; their targets are ignored.
        tokenizers: Tokenizers of the model.
        config: Configuration of the model.

    Returns:
        The symbols of each example, without features if these have no positions; None for a model that does not copy.
    """
    if not config.decoder.pointer_generator:
        return None
    sources = [input_symbols(example, tokenizers) for example in examples]
    if config.encoder.feature_merge == "sum":
        return [EncoderInput(source.symbols[source.num_features :], 0) for source in sources]
    return sources


def encode_source_chunk(
    examples: Sequence[Example],
    tokenized: Sequence[TokenizedSource],
    vocabularies: Vocabularies,
    tokenizers: Tokenizers,
    config: Config,
) -> tuple[list[TokenizedSource], Ragged]:
    """Return the sources with the positions of their unknown symbols, and the ids for the network.

    Args:
        examples: Examples; their targets are ignored.
        tokenized: The tokenized source of each example.
        vocabularies: Vocabularies of the model.
        tokenizers: Tokenizers of the model.
        config: Configuration of the model; with encoder.feature_merge = "sum", features are moved from the symbols of a
            source to its field `summed_features`.
    """
    source_ids, encoder_ids = encode_source_ids(examples, vocabularies, tokenizers, config)
    marked = mark_unknown_symbols(tokenized, source_ids, len(vocabularies.source))
    if config.data.context_words:
        marked = [ignore_unknown_features(source) for source in marked]
    return [
        remove_feature_positions(source) for source in marked
    ] if config.encoder.feature_merge == "sum" else marked, encoder_ids


MAX_HYPOTHESES = 2**14
"""Maximum number of hypotheses in a batch; the hypotheses of one source are never split, however many."""
MAX_BATCH_POSITIONS = 2**17
"""Source positions of these hypotheses, padding included: each step keeps a weight for each of them."""
MAX_BATCH_LOGITS = 2**24
"""Logits of these hypotheses that are computed together: those of one decoder step, or of all tags of a source."""


class ChunkConfig(NamedTuple):
    """Numbers and constraints of outputs that determine the batches of a chunk and its lexicon entries."""

    hypotheses_per_source: int
    """The beam size, or the number of samples."""
    max_lexicon_entries: int
    """Maximum number of lexicon entries per source."""
    constraints: Constraints
    """Constraints of all sources, by the row of the source."""

    def batch_size(self, size: int) -> int:
        """Return the maximum number of sources in a batch: `size`, or less for at most `MAX_HYPOTHESES` hypotheses.

        Args:
            size: Setting `search.batch_size`.

        Returns:
            The number, at least 1.
        """
        return max(1, min(size, MAX_HYPOTHESES // self.hypotheses_per_source))


def split_into_batches(
    rows: Sequence[int],
    lengths: Int[np.ndarray, " N"],
    config: ChunkConfig,
    size: int,
    count_logits: Callable[[int], int],
) -> Iterator[Sequence[int]]:
    """Yield the rows of each batch, in order: at most `config.batch_size(size)`, fewer for long sources or many logits.

    Args:
        rows: Rows of the sources to decode, shortest first.
        lengths: Length of every source, by its row.
        config: Number of hypotheses per source.
        size: Maximum number of sources in a batch.
        count_logits: Function from the length of a source to the number of logits of a hypothesis that are computed
            together.
    """
    start = 0
    max_sources = config.batch_size(size)
    while start < len(rows):
        batch = rows[start : start + max_sources]
        # The last source is the longest. The sources of a smaller batch are shorter, so its padded size still fits.
        length = int(lengths[batch[-1]])
        max_hypotheses = min(MAX_BATCH_POSITIONS // length, MAX_BATCH_LOGITS // count_logits(length))
        batch = batch[: max(1, max_hypotheses // config.hypotheses_per_source)]
        yield batch
        start += len(batch)


def tokenize_source(example: Example, number: int, tokenizers: Tokenizers, config: DataConfig) -> TokenizedSource:
    """Tokenize the source and the features of an example.

    Args:
        example: Example; its target is ignored.
        number: Number of the example, from 1, for errors.
        tokenizers: Tokenizers of the model.
        config: Data settings of the model.

    Raises:
        DataError: The source has more than `data.max_sequence_length` symbols or features, has features and the model
            reads none, or has a context of another number of words.
    """
    source = tokenizers.source.split(example.source)
    limit = config.max_sequence_length
    if len(source) > limit:
        raise DataError(f"source {number} has {len(source)} symbols; data.max_sequence_length is {limit}")
    if example.features and not reads_features(config):
        raise DataError(f"source {number} has features, but the model was trained without (data.features_column)")
    if not source:
        return TokenizedSource(example.source, (), 0)
    features = tokenizers.features.split(example.features) if example.features else []
    if features and (reason := features_error(example.features, tokenizers, config)):
        raise DataError(f"source {number}: {reason}")
    symbols = (*features, *source) if features else tuple(source)
    if features or len(source) != len(example.source) or not example.source.isascii():
        symbols = tuple(map(sys.intern, symbols))  # one object per symbol; CPython caches single ASCII characters
    return TokenizedSource(example.source, symbols, len(features))


def mark_unknown_symbols(
    tokenized: Sequence[TokenizedSource], sources: Ragged, num_source_ids: int
) -> list[TokenizedSource]:
    """Return the sources with the positions of symbols and features outside the vocabulary (`unknown`).

    Args:
        tokenized: Tokenized sources.
        sources: Source ids of each, in which these are UNK.
        num_source_ids: Number of ids of source symbols, after which the ids of features follow.
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


def ignore_unknown_features(tokenized: TokenizedSource) -> TokenizedSource:
    """Return a source whose field `unknown` lists no features: an unknown word of the context is nothing unusual.

    Args:
        tokenized: Source that begins with its features.
    """
    if not tokenized.unknown:
        return tokenized
    unknown = tuple(position for position in tokenized.unknown if position >= tokenized.num_features)
    return tokenized._replace(unknown=unknown)


def add_unknown_contexts(examples: list[Example], config: DataConfig) -> list[Example]:
    """Return examples in which sources without features have a context of unknown words, if the model reads contexts.

    Args:
        examples: Examples.
        config: Data settings of the model.
    """
    if not config.context_words:
        return examples
    context = unknown_context(config.context_words)
    return [example if example.features else example._replace(features=context) for example in examples]


def remove_feature_positions(tokenized: TokenizedSource) -> TokenizedSource:
    """Return a source whose features are in `summed_features`, without positions; `unknown` lists no features.

    Args:
        tokenized: Source that begins with its features.
    """
    unknown = tuple(
        position - tokenized.num_features for position in tokenized.unknown if position >= tokenized.num_features
    )
    return TokenizedSource(
        tokenized.text,
        tokenized.source[tokenized.num_features :],
        0,
        unknown,
        tokenized.source[: tokenized.num_features],
    )
