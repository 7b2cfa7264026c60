"""Targets that are answers, not texts to write: tags, a class, a position. Their ids have no end.

What is not scored (tags of no account, tags that training never saw) has the id of padding, which no loss counts.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
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

ExampleEncoder = Callable[[Sequence[Example], Tokenizers, Vocabularies], EncodedExamples]
"""How examples become ids."""


def pair_encoder(config: Config) -> ExampleEncoder:
    """How examples whose targets are written symbol by symbol become the ids of a configuration's network."""
    if not config.decoder.pointer_generator:
        return encode_examples
    return partial(encode_extended, added=True) if config.encoder.features == "sum" else encode_extended


def encode_labels(examples: Sequence[Example], tokenizers: Tokenizers, vocabularies: Vocabularies) -> EncodedExamples:
    """Examples as ids, their targets without an end, what is not scored as padding."""
    _, written = id_dtypes(vocabularies)
    target = encode_column([example.target for example in examples], tokenizers.target, vocabularies.target, written)
    target.values[target.values == UNK] = PAD
    return EncodedExamples(encode_sources(examples, tokenizers, vocabularies), target)


def learn_pair_vocabularies(examples: Sequence[Example], tokenizers: Tokenizers, config: Config) -> Vocabularies:
    """Return what training examples teach where targets are written symbol by symbol."""
    return learn_vocabularies(examples, tokenizers, config.data.min_count)


def learn_label_vocabularies(examples: Sequence[Example], tokenizers: Tokenizers, config: Config) -> Vocabularies:
    """Return the same where targets are labels: every label counts, however rare."""
    target = build_vocabulary((tokenizers.target.split(example.target) for example in examples), 1)
    return msgspec.structs.replace(
        learn_pair_vocabularies(examples, tokenizers, config),
        target=remove_symbol(target, tokenizers.target.ignored_tag),
    )


def learn_position_vocabularies(examples: Sequence[Example], tokenizers: Tokenizers, config: Config) -> Vocabularies:
    """Return the same where targets are source positions: 1 to the longest that a source may be.

    Not to the longest of the training file, for a source to come may be longer than all of it.
    """
    target = _position_vocabulary((tokenizers.target.split(each.target) for each in examples), config.data.max_length)
    return msgspec.structs.replace(learn_pair_vocabularies(examples, tokenizers, config), target=target)


def _position_vocabulary(targets: Iterable[Sequence[str]], max_position: int) -> Vocabulary:
    """The numbers from 1, in their order, with how often each is a target."""
    symbols = tuple(str(number) for number in range(1, max_position + 1))
    counts = dict.fromkeys(symbols, 0)
    for symbol in chain.from_iterable(targets):
        counts[symbol] += 1
    return Vocabulary(symbols, tuple(counts.values()))
