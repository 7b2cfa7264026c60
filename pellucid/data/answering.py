"""Targets that are answers, not texts to write: tags, a class, a position. Their ids have no end.

What is not scored (tags of no account, tags that training never saw) has the id of padding, which no loss counts.
"""

from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from pellucid.config import Config
from pellucid.data.batches import Encoded, column, encode, encode_sources, id_types
from pellucid.data.copies import encode_with_copies
from pellucid.data.examples import Example
from pellucid.data.symbols import Segmenters
from pellucid.data.vocabulary import PAD, UNK, Vocabularies, Vocabulary, count_symbols, learn_vocabularies, without

Encoding = Callable[[Sequence[Example], Segmenters, Vocabularies], Encoded]
"""How examples become ids."""


def encoding_of(config: Config) -> Encoding:
    """How examples become the ids that a configuration's network reads and is judged by."""
    if config.task != "transduce":
        return encode_answers
    if not config.decoder.copying:
        return encode
    return partial(encode_with_copies, added=True) if config.encoder.features == "sum" else encode_with_copies


def encode_answers(examples: Sequence[Example], segmenters: Segmenters, vocabularies: Vocabularies) -> Encoded:
    """Examples as ids, their targets without an end, what is not scored as padding."""
    _, written = id_types(vocabularies)
    target = column([example.target for example in examples], segmenters.target, vocabularies.target, written)
    target.values[target.values == UNK] = PAD
    return Encoded(encode_sources(examples, segmenters, vocabularies), target)


def vocabularies_of(examples: Sequence[Example], segmenters: Segmenters, config: Config) -> Vocabularies:
    """What training examples teach. Every tag or class counts, however rare; positions are 1 to the longest source's.

    The longest that may be, for a source to come may be longer than all of training.
    """
    learnt = learn_vocabularies(examples, segmenters, config.data.minimum_count)
    match config.task:
        case "transduce":
            return learnt
        case "point":
            return msgspec.structs.replace(learnt, target=_positions(examples, config.data.maximum_length))
        case "tag" | "classify":
            target = count_symbols((segmenters.target.split(example.target) for example in examples), 1)
            return msgspec.structs.replace(learnt, target=without(target, segmenters.target.unscored))


def _positions(examples: Sequence[Example], longest: int) -> Vocabulary:
    """The numbers from 1, in their order, with how often each is a target."""
    symbols = tuple(str(number) for number in range(1, longest + 1))
    counts = dict.fromkeys(symbols, 0)
    for example in examples:
        counts[example.target] += 1
    return Vocabulary(symbols, tuple(counts.values()))
