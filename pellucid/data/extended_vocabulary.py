"""Extended vocabulary of decoders that copy: ids for source symbols that the vocabularies lack.

V is the size of the target vocabulary, N the number of encoder ids, features included. Target id V + p is the symbol
whose first source position is p. Source id N + t is a symbol that the source vocabulary lacks and whose target id is t.

References:
    See et al. (2017), "Get to the point: summarization with pointer-generator networks", section 2.2.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int

from pellucid.data.batches import EncodedExamples, Ragged, encode_examples
from pellucid.data.examples import Example
from pellucid.data.tokenizers import Tokenizers
from pellucid.data.vocabulary import UNK, Vocabularies, Vocabulary


def encode_extended(
    examples: Sequence[Example], tokenizers: Tokenizers, vocabularies: Vocabularies, added: bool = False
) -> EncodedExamples:
    """Encode examples as `encode_examples` does, with extended ids for symbols that a vocabulary lacks.

    Args:
        examples: The examples.
        tokenizers: The tokenizers of the run.
        vocabularies: The vocabularies of the run.
        added: Whether feature embeddings are added to those of the source; features are then no positions.

    Returns:
        Source and target ids. A target symbol that neither the vocabulary nor the source holds stays UNK.
    """
    encoded = encode_examples(examples, tokenizers, vocabularies)
    target = encoded.target._replace(values=encoded.target.values.astype(np.int32))
    size = len(vocabularies.target)
    for row in _rows_with_unknown(target):
        read, features = input_symbols(examples[row], tokenizers)
        written = tokenizers.target.split(examples[row].target)
        start = target.offsets[row]
        for at, symbol in enumerate(written):
            if target.values[start + at] == UNK and symbol in read[features:]:
                target.values[start + at] = size + read.index(symbol, features) - features * added
    return EncodedExamples(extend_sources(encoded.source, examples, tokenizers, vocabularies, added), target)


def extend_sources(
    sources: Ragged,
    examples: Sequence[Example],
    tokenizers: Tokenizers,
    vocabularies: Vocabularies,
    added: bool = False,
) -> Ragged:
    """Replace UNK in encoded sources by N + the target id of the symbol.

    Args:
        sources: The encoded sources.
        examples: The examples that they encode.
        tokenizers: The tokenizers of the run.
        vocabularies: The vocabularies of the run.
        added: Whether feature embeddings are added to those of the source; features are then no positions.

    Returns:
        The sources with extended ids.
    """
    known = len(vocabularies.source) + len(vocabularies.features)
    target, extended = vocabularies.target, sources._replace(values=sources.values.astype(np.int32))
    for row in _rows_with_unknown(sources):
        read, features = input_symbols(examples[row], tokenizers)
        start = sources.offsets[row]
        for at, symbol in enumerate(read):
            if sources.values[start + at] == UNK:
                place = len(target) + read.index(symbol, features) - features * added
                extended.values[start + at] = known + target.ids.get(symbol, place)
    return extended


def input_symbols(example: Example, tokenizers: Tokenizers) -> tuple[list[str], int]:
    """Return the input symbols of the encoder, features first, and the number of features.

    Args:
        example: The example.
        tokenizers: The tokenizers of the run.
    """
    features = tokenizers.features.split(example.features) if example.features else []
    return [*features, *tokenizers.source.split(example.source)], len(features)


def extended_ids(symbols: Sequence[str], vocabulary: Vocabulary, read: tuple[Sequence[str], int]) -> list[int]:
    """Return the target ids of symbols: those of the vocabulary, else of the first source position, else UNK.

    Args:
        symbols: Target symbols.
        vocabulary: The target vocabulary.
        read: The input symbols of the encoder, and the number of features among them (see `input_symbols`).
    """
    source, features = read
    places = {symbol: place for place, symbol in reversed(list(enumerate(source))) if place >= features}
    size = len(vocabulary)
    return [vocabulary.ids.get(symbol, size + places[symbol] if symbol in places else UNK) for symbol in symbols]


def _rows_with_unknown(column: Ragged) -> list[int]:
    """Return the indices of sequences that contain UNK."""
    unknown: Int[np.ndarray, " F"] = np.flatnonzero(column.values == UNK)
    rows: list[int] = np.unique(np.searchsorted(column.offsets, unknown, side="right") - 1).tolist()
    return rows
