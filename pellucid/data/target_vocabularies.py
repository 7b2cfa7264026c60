"""Vocabularies of training examples whose targets are labels or source positions.

`vocabulary.learn_vocabularies` learns those of examples whose targets are sequences.
"""

from collections.abc import Iterable, Sequence
from itertools import chain

import msgspec

from pellucid.config.settings import Config
from pellucid.data.examples import Example
from pellucid.data.tokenizers import Tokenizers
from pellucid.data.vocabulary import Vocabularies, Vocabulary, build_vocabulary, learn_vocabularies, remove_symbol


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
        learn_vocabularies(examples, tokenizers, config.data.min_count),
        target=remove_symbol(target, tokenizers.target.ignored_tag),
    )


def learn_class_and_tag_vocabularies(
    examples: Sequence[Example], tokenizers: Tokenizers, config: Config
) -> Vocabularies:
    """Return the vocabularies of training examples whose targets are a class and tags.

    A symbol may be both a class and a tag.

    Args:
        examples: The training examples.
        tokenizers: The tokenizers of the run.
        config: The configuration, which sets the minimum count of source symbols and features.

    Raises:
        DataError: A symbol has a reserved name or is too long.
    """
    learned = learn_label_vocabularies(examples, tokenizers, config)
    targets = [tokenizers.target.split(example.target) for example in examples]
    classes = {target[0] for target in targets}
    tags = {tag for target in targets for tag in target[1:]}
    symbols = learned.target.symbols
    return msgspec.structs.replace(
        learned,
        classes=tuple(symbol for symbol in symbols if symbol in classes),
        tags=tuple(symbol for symbol in symbols if symbol in tags),
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
    return msgspec.structs.replace(learn_vocabularies(examples, tokenizers, config.data.min_count), target=target)


def _position_vocabulary(targets: Iterable[Sequence[str]], max_position: int) -> Vocabulary:
    """Return the numbers from 1 to `max_position` in order, each with its number of occurrences as a target."""
    symbols = tuple(str(number) for number in range(1, max_position + 1))
    counts = dict.fromkeys(symbols, 0)
    for symbol in chain.from_iterable(targets):
        counts[symbol] += 1
    return Vocabulary(symbols, tuple(counts.values()))
