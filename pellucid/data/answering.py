"""Targets that are answers, not texts to write: tags, a class, a position. Their ids have no end.

What is not scored (tags of no account, tags that training never saw) has the id of padding, which no loss counts.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import chain

import msgspec

from pellucid.config.settings import Config
from pellucid.data.batches import Encoded, column, encode, encode_sources, id_types
from pellucid.data.copies import encode_with_copies
from pellucid.data.examples import Example
from pellucid.data.tokenizers import Segmenters
from pellucid.data.vocabulary import PAD, UNK, Vocabularies, Vocabulary, count_symbols, learn_vocabularies, without

Encoding = Callable[[Sequence[Example], Segmenters, Vocabularies], Encoded]
"""How examples become ids."""


def encoding_of_pairs(config: Config) -> Encoding:
    """How examples whose targets are written symbol by symbol become the ids of a configuration's network."""
    if not config.decoder.pointer_generator:
        return encode
    return partial(encode_with_copies, added=True) if config.encoder.features == "sum" else encode_with_copies


def encode_answers(examples: Sequence[Example], segmenters: Segmenters, vocabularies: Vocabularies) -> Encoded:
    """Examples as ids, their targets without an end, what is not scored as padding."""
    _, written = id_types(vocabularies)
    target = column([example.target for example in examples], segmenters.target, vocabularies.target, written)
    target.values[target.values == UNK] = PAD
    return Encoded(encode_sources(examples, segmenters, vocabularies), target)


def learn_pairs(examples: Sequence[Example], segmenters: Segmenters, config: Config) -> Vocabularies:
    """Return what training examples teach where targets are written symbol by symbol."""
    return learn_vocabularies(examples, segmenters, config.data.min_count)


def learn_labels(examples: Sequence[Example], segmenters: Segmenters, config: Config) -> Vocabularies:
    """Return the same where targets are labels: every label counts, however rare."""
    target = count_symbols((segmenters.target.split(example.target) for example in examples), 1)
    return msgspec.structs.replace(
        learn_pairs(examples, segmenters, config), target=without(target, segmenters.target.unscored)
    )


def learn_positions(examples: Sequence[Example], segmenters: Segmenters, config: Config) -> Vocabularies:
    """Return the same where targets are source positions: 1 to the longest that a source may be.

    Not to the longest of the training file, for a source to come may be longer than all of it.
    """
    target = _positions((segmenters.target.split(each.target) for each in examples), config.data.max_length)
    return msgspec.structs.replace(learn_pairs(examples, segmenters, config), target=target)


def _positions(targets: Iterable[Sequence[str]], longest: int) -> Vocabulary:
    """The numbers from 1, in their order, with how often each is a target."""
    symbols = tuple(str(number) for number in range(1, longest + 1))
    counts = dict.fromkeys(symbols, 0)
    for symbol in chain.from_iterable(targets):
        counts[symbol] += 1
    return Vocabulary(symbols, tuple(counts.values()))
