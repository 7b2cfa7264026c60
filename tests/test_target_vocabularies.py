from collections.abc import Callable

import numpy as np
import pytest
from msgspec.structs import replace
from task_cases import learn_task_vocabularies, make_task_config

from pellucid.config.settings import Config
from pellucid.config.toml import build_config
from pellucid.data.encoding import (
    EncodedExamples,
    encode_classes_and_tags,
    encode_examples,
    encode_labels,
    label_masks,
)
from pellucid.data.examples import Example
from pellucid.data.extended_vocabulary import encode_extended
from pellucid.data.tokenizers import Tokenizers, build_tokenizers
from pellucid.data.vocabulary import NUM_SPECIAL, PAD, Vocabularies
from pellucid.tasks.registry import get_task


def test_tags_that_are_not_scored_are_encoded_as_padding() -> None:
    config, pairs = make_task_config("tag"), [Example("abc", "V-C"), Example("ab", "CC")]
    vocabularies = learn_task_vocabularies(config, pairs)
    assert vocabularies.target.symbols == ("C", "V")
    target = encode_labels([*pairs, Example("a", "X")], build_tokenizers(config.data), vocabularies).target
    assert target.values.tolist() == [NUM_SPECIAL + 1, PAD, NUM_SPECIAL, NUM_SPECIAL, NUM_SPECIAL, PAD]
    assert target.lengths.tolist() == [3, 2, 1]


def test_a_symbol_may_be_a_class_and_a_tag() -> None:
    config = make_task_config("tag-and-classify")
    vocabularies = learn_task_vocabularies(config, [Example("abc", "VC-C"), Example("ab", "NVC")])
    assert vocabularies.target.symbols == ("C", "V", "N")
    assert vocabularies.classes == ("V", "N") and vocabularies.tags == ("C", "V")
    is_class, is_tag = label_masks(vocabularies)
    assert np.flatnonzero(is_class).tolist() == [NUM_SPECIAL + 1, NUM_SPECIAL + 2]
    assert np.flatnonzero(is_tag).tolist() == [NUM_SPECIAL, NUM_SPECIAL + 1]
    pairs = [Example("ab", "NV-"), Example("ab", "CNV"), Example("a", "XX")]
    target = encode_classes_and_tags(pairs, build_tokenizers(config.data), vocabularies).target
    v, n = NUM_SPECIAL + 1, NUM_SPECIAL + 2
    assert target.values.tolist() == [n, v, PAD, PAD, PAD, v, PAD, PAD]
    with pytest.raises(ValueError, match="classes and tags must be symbols of target, and 'W' is none"):
        replace(vocabularies, classes=("W",))


def test_rare_classes_are_kept_and_rare_source_symbols_are_unknown() -> None:
    config = make_task_config("classify", data={"min_count": 2})
    vocabularies = learn_task_vocabularies(
        config, [Example("aa", "some of it"), Example("b", "none"), Example("a", "none")]
    )
    assert vocabularies.target.symbols == ("none", "some of it") and vocabularies.source.symbols == ("a",)


def test_the_position_vocabulary_has_all_possible_positions() -> None:
    config = make_task_config("point", data={"max_sequence_length": 12})
    vocabularies = learn_task_vocabularies(config, [Example("abc", "2"), Example("abcd", "2")])
    assert (
        vocabularies.target.symbols == tuple(str(number) for number in range(1, 13))
        and vocabularies.target.counts[1] == 2
    )
    target = encode_labels([Example("abcdefghijk", "11")], build_tokenizers(config.data), vocabularies).target
    assert target.values.tolist() == [NUM_SPECIAL + 10]


def list_ids(encoded: EncodedExamples) -> list[list[int]]:
    """Return all ids of the sources, and all of the targets."""
    return [column.values.tolist() for column in encoded.columns().values()]


@pytest.mark.parametrize(
    ("config", "encode", "target"),
    [
        (make_task_config("point"), encode_labels, "2"),
        (build_config({}, "a test"), encode_examples, "2z"),
        (build_config({"decoder": {"pointer_generator": True}}, "a test"), encode_extended, "2z"),
    ],
)
def test_each_task_has_its_encoding(
    config: Config, encode: Callable[[list[Example], Tokenizers, Vocabularies], EncodedExamples], target: str
) -> None:
    """The second pair has a symbol outside the vocabulary, which only the last encoding copies."""
    vocabularies, tokenizers = learn_task_vocabularies(config, [Example("ab", "2")]), build_tokenizers(config.data)
    pairs = [Example("ab", "2"), Example("az", target)]
    encoded = get_task(config.task).encode_examples(pairs, tokenizers, vocabularies, config)
    assert list_ids(encoded) == list_ids(encode(pairs, tokenizers, vocabularies))
    others = {encode_labels, encode_examples, encode_extended} - {encode}
    assert all(list_ids(encoded) != list_ids(other(pairs, tokenizers, vocabularies)) for other in others)
