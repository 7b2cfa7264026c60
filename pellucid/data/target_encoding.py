"""Encoding and vocabularies for each kind of target: sequences, labels, source positions.

Label and position targets get no EOS. Targets that are not scored (the ignored tag, tags that training never saw) are
encoded as PAD, which no loss counts.
"""

from collections.abc import Iterable, Sequence
from itertools import chain

import msgspec

from pellucid.config.settings import Config
from pellucid.data.batches import EncodedExamples, encode_column, encode_examples, encode_sources, id_dtypes
from pellucid.data.examples import Example
from pellucid.data.extended_vocabulary import encode_extended
from pellucid.data.tokenizers import Tokenizers
from pellucid.data.vocabulary import (
    PAD,
    UNK,
    Vocabularies,
    Vocabulary,
    build_vocabulary,
    learn_vocabularies,
    remove_symbol,
)


def encode_pairs(
    examples: Sequence[Example], tokenizers: Tokenizers, vocabularies: Vocabularies, config: Config
) -> EncodedExamples:
    """Encode examples whose targets are sequences, with EOS after each target.

    Args:
        examples: The examples.
        tokenizers: The tokenizers of the run.
        vocabularies: The vocabularies of the run.
        config: The configuration; a decoder that copies gets the ids of the extended vocabulary.

    Returns:
        Source and target ids of the examples.
    """
    if config.decoder.pointer_generator:
        return encode_extended(examples, tokenizers, vocabularies, config.encoder.features == "sum")
    return encode_examples(examples, tokenizers, vocabularies)


def encode_labels(examples: Sequence[Example], tokenizers: Tokenizers, vocabularies: Vocabularies) -> EncodedExamples:
    """Encode examples whose targets are labels: no EOS, and PAD for the ignored tag and for unknown labels.

    Args:
        examples: The examples.
        tokenizers: The tokenizers of the run.
        vocabularies: The vocabularies of the run.

    Returns:
        Source and target ids of the examples.
    """
    _, target_dtype = id_dtypes(vocabularies)
    target = encode_column(
        [example.target for example in examples], tokenizers.target, vocabularies.target, target_dtype
    )
    target.values[target.values == UNK] = PAD
    return EncodedExamples(encode_sources(examples, tokenizers, vocabularies), target)


def learn_pair_vocabularies(examples: Sequence[Example], tokenizers: Tokenizers, config: Config) -> Vocabularies:
    """Return the vocabularies of training examples whose targets are sequences.

    Args:
        examples: The training examples.
        tokenizers: The tokenizers of the run.
        config: The configuration, which sets the minimum count of a symbol.

    Raises:
        DataError: A symbol has a reserved name or is too long.
    """
    return learn_vocabularies(examples, tokenizers, config.data.min_count)


def learn_label_vocabularies(examples: Sequence[Example], tokenizers: Tokenizers, config: Config) -> Vocabularies:
    """Return the vocabularies of training examples whose targets are labels.

    Every label is kept, however rare; the ignored tag is left out.

    Args:
        examples: The training examples.
        tokenizers: The tokenizers of the run.
        config: The configuration, which sets the minimum count of source symbols and features.

    Raises:
        DataError: A symbol has a reserved name or is too long.
    """
    target = build_vocabulary((tokenizers.target.split(example.target) for example in examples), 1)
    return msgspec.structs.replace(
        learn_pair_vocabularies(examples, tokenizers, config),
        target=remove_symbol(target, tokenizers.target.ignored_tag),
    )


def learn_position_vocabularies(examples: Sequence[Example], tokenizers: Tokenizers, config: Config) -> Vocabularies:
    """Return the vocabularies of training examples whose targets are source positions.

    The target vocabulary holds the numbers from 1 to the maximum source length of the configuration, because later
    sources may be longer than those of the training file.

    Args:
        examples: The training examples.
        tokenizers: The tokenizers of the run.
        config: The configuration, which sets the minimum count and the maximum length.

    Raises:
        DataError: A source symbol or a feature has a reserved name or is too long.
    """
    target = _position_vocabulary(
        (tokenizers.target.split(example.target) for example in examples), config.data.max_sequence_length
    )
    return msgspec.structs.replace(learn_pair_vocabularies(examples, tokenizers, config), target=target)


def _position_vocabulary(targets: Iterable[Sequence[str]], max_position: int) -> Vocabulary:
    """Return the numbers from 1 to `max_position` in order, each with its number of occurrences as a target."""
    symbols = tuple(str(number) for number in range(1, max_position + 1))
    counts = dict.fromkeys(symbols, 0)
    for symbol in chain.from_iterable(targets):
        counts[symbol] += 1
    return Vocabulary(symbols, tuple(counts.values()))
