"""Symbols that a vocabulary lacks, told by where they stand in the source: for decoders that copy.

V counts the target vocabulary, N the ids that an encoder reads, features included. Target id V + p is the symbol at
source position p, the first where it stands there. Source id N + t is a symbol that the source vocabulary lacks and
that is written as target id t. Source: See et al. 2017, section 2.2, the extended vocabulary.
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
    """Examples as ids, as `encode_examples` has them, but for symbols that a vocabulary lacks and that can be copied.

    Features that are `added` to every symbol are no positions: counting begins after them.
    """
    plain = encode_examples(examples, tokenizers, vocabularies)
    target = plain.target._replace(values=plain.target.values.astype(np.int32))
    size = len(vocabularies.target)
    for row in _rows_with_unknown(target):
        read, features = input_symbols(examples[row], tokenizers)
        written = tokenizers.target.split(examples[row].target)
        start = target.offsets[row]
        for at, symbol in enumerate(written):
            if target.values[start + at] == UNK and symbol in read[features:]:
                target.values[start + at] = size + read.index(symbol, features) - features * added
    return EncodedExamples(extend_sources(plain.source, examples, tokenizers, vocabularies, added), target)


def extend_sources(
    sources: Ragged,
    examples: Sequence[Example],
    tokenizers: Tokenizers,
    vocabularies: Vocabularies,
    added: bool = False,
) -> Ragged:
    """Encoded sources, in which each symbol that the source vocabulary lacks says what it is as a target."""
    known = len(vocabularies.source) + len(vocabularies.features)
    target, told = vocabularies.target, sources._replace(values=sources.values.astype(np.int32))
    for row in _rows_with_unknown(sources):
        read, features = input_symbols(examples[row], tokenizers)
        start = sources.offsets[row]
        for at, symbol in enumerate(read):
            if sources.values[start + at] == UNK:
                place = len(target) + read.index(symbol, features) - features * added
                told.values[start + at] = known + target.ids.get(symbol, place)
    return told


def input_symbols(example: Example, tokenizers: Tokenizers) -> tuple[list[str], int]:
    """The symbols that the encoder reads, and how many of them, from the first, are features."""
    features = tokenizers.features.split(example.features) if example.features else []
    return [*features, *tokenizers.source.split(example.source)], len(features)


def extended_ids(symbols: Sequence[str], vocabulary: Vocabulary, read: tuple[Sequence[str], int]) -> list[int]:
    """Target ids of symbols, those that the vocabulary lacks by their place in what is read, or unknown."""
    source, features = read
    places = {symbol: place for place, symbol in reversed(list(enumerate(source))) if place >= features}
    size = len(vocabulary)
    return [vocabulary.ids.get(symbol, size + places[symbol] if symbol in places else UNK) for symbol in symbols]


def _rows_with_unknown(column: Ragged) -> list[int]:
    """The sequences in which a symbol is unknown."""
    found: Int[np.ndarray, " F"] = np.flatnonzero(column.values == UNK)
    rows: list[int] = np.unique(np.searchsorted(column.offsets, found, side="right") - 1).tolist()
    return rows
