"""Extended vocabulary of decoders that copy: ids for source symbols that the vocabularies lack.

V is the size of the target vocabulary, N the number of encoder ids, features included; F counts unknown symbols. Target
id V + p is the symbol whose first source position is p. Source id N + t is a symbol that the source vocabulary lacks
and whose target id is t.

References:
    See et al. (2017), "Get to the point: summarization with pointer-generator networks", section 2.2.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pellucid.config.settings import Config
from pellucid.data.encoding import EncodedExamples, Ragged, encode_examples
from pellucid.data.examples import Example
from pellucid.data.tokenizers import Tokenizers
from pellucid.data.vocabulary import NUM_SPECIAL, UNK, Vocabularies, Vocabulary
from pellucid.shapes import Int

BY_POSITION, NEVER_COPIED = -1, -2
"""In place of a target id: a source symbol outside the target vocabulary; a source id that is never copied."""


def target_ids_of_source_ids(vocabularies: Vocabularies) -> list[int]:
    """Return the target id of each source id.

    Args:
        vocabularies: Vocabularies of sources, features and targets.

    Returns:
        The target id; −1 (`BY_POSITION`) for a symbol outside the target vocabulary; −2 (`NEVER_COPIED`) for special
        ids and features, which are never copied.
    """
    source = vocabularies.source.symbols
    target = vocabularies.target.ids
    ids = [*[NEVER_COPIED] * NUM_SPECIAL, *(target.get(symbol, BY_POSITION) for symbol in source)]
    return [*ids, *[NEVER_COPIED] * len(vocabularies.features)]


def encode_extended(
    examples: Sequence[Example], tokenizers: Tokenizers, vocabularies: Vocabularies, sum_features: bool = False
) -> EncodedExamples:
    """Encode examples as `encode_examples` does, with extended ids for symbols that a vocabulary lacks.

    Args:
        examples: The examples.
        tokenizers: The tokenizers of the run.
        vocabularies: The vocabularies of the run.
        sum_features: Whether feature embeddings are added to those of the source; features then have no positions.
            False by default.

    Returns:
        Source and target ids. A target symbol that neither the vocabulary nor the source contains stays UNK.
    """
    encoded = encode_examples(examples, tokenizers, vocabularies)
    target = encoded.target._replace(values=encoded.target.values.astype(np.int32))
    size = len(vocabularies.target)
    for row in _rows_with_unknown(target):
        inputs = input_symbols(examples[row], tokenizers)
        target_symbols = tokenizers.target.split(examples[row].target)
        start = target.offsets[row]
        positions = inputs.first_positions()
        for index, symbol in enumerate(target_symbols):
            if target.values[start + index] == UNK and symbol in positions:
                target.values[start + index] = size + positions[symbol] - inputs.num_features * sum_features
    return EncodedExamples(extend_sources(encoded.source, examples, tokenizers, vocabularies, sum_features), target)


def encode_sequence_examples(
    examples: Sequence[Example], tokenizers: Tokenizers, vocabularies: Vocabularies, config: Config
) -> EncodedExamples:
    """Encode examples whose targets are sequences, with the ids that the decoder of a configuration reads and writes.

    EOS follows each target.

    Args:
        examples: The examples.
        tokenizers: The tokenizers of the run.
        vocabularies: The vocabularies of the run.
        config: The configuration; a decoder that copies gets the ids of the extended vocabulary, any other the ids of
            `encode_examples`.

    Returns:
        Source and target ids of the examples.
    """
    if config.decoder.pointer_generator:
        return encode_extended(examples, tokenizers, vocabularies, config.encoder.feature_merge == "sum")
    return encode_examples(examples, tokenizers, vocabularies)


def extend_sources(
    sources: Ragged,
    examples: Sequence[Example],
    tokenizers: Tokenizers,
    vocabularies: Vocabularies,
    sum_features: bool = False,
) -> Ragged:
    """Replace UNK in encoded sources by N + the target id of the symbol, from the vocabulary or V + its first position.

    Args:
        sources: The encoded sources.
        examples: The examples that they encode.
        tokenizers: The tokenizers of the run.
        vocabularies: The vocabularies of the run.
        sum_features: Whether feature embeddings are added to those of the source; features then have no positions.
            False by default.

    Returns:
        The sources with extended ids, as int32.
    """
    num_source_ids = len(vocabularies.source) + len(vocabularies.features)
    target = vocabularies.target
    extended = sources._replace(values=sources.values.astype(np.int32))
    for row in _rows_with_unknown(sources):
        inputs = input_symbols(examples[row], tokenizers)
        start = sources.offsets[row]
        positions = inputs.first_positions()
        for index, symbol in enumerate(inputs.symbols):
            if sources.values[start + index] == UNK:
                extended_id = len(target) + positions[symbol] - inputs.num_features * sum_features
                extended.values[start + index] = num_source_ids + target.ids.get(symbol, extended_id)
    return extended


class EncoderInput(NamedTuple):
    """Input symbols of the encoder."""

    symbols: Sequence[str]
    """Features, then the source."""
    num_features: int
    """Number of features at the beginning of `symbols`."""

    def first_positions(self) -> dict[str, int]:
        """Return the first position of each symbol that is not a feature, from 0, features in front included."""
        last = len(self.symbols) - 1
        return {self.symbols[position]: position for position in range(last, self.num_features - 1, -1)}


def input_symbols(example: Example, tokenizers: Tokenizers) -> EncoderInput:
    """Return the input symbols of the encoder, features first.

    Args:
        example: The example.
        tokenizers: The tokenizers of the run.
    """
    features = tokenizers.features.split(example.features) if example.features else []
    return EncoderInput([*features, *tokenizers.source.split(example.source)], len(features))


def extended_ids(symbols: Sequence[str], vocabulary: Vocabulary, encoder_input: EncoderInput) -> list[int]:
    """Return the target ids of symbols: those of the vocabulary, else V + the first source position, else UNK.

    Positions count from 0, features in front included; a symbol among the features is not copied.

    Args:
        symbols: Target symbols.
        vocabulary: The target vocabulary.
        encoder_input: The input symbols of the encoder (see `input_symbols`).
    """
    first_positions = encoder_input.first_positions()
    size = len(vocabulary)
    return [
        vocabulary.ids.get(symbol, size + first_positions[symbol] if symbol in first_positions else UNK)
        for symbol in symbols
    ]


def _rows_with_unknown(column: Ragged) -> list[int]:
    """Return the indices of sequences that contain UNK."""
    unknown: Int[np.ndarray, " F"] = np.flatnonzero(column.values == UNK)
    rows: list[int] = np.unique(np.searchsorted(column.offsets, unknown, side="right") - 1).tolist()
    return rows
