from collections.abc import Callable

import pytest
from tasks import config_of, vocabularies_for

from pellucid.config.settings import Config
from pellucid.config.toml import build_config
from pellucid.data.batches import EncodedExamples, encode_examples
from pellucid.data.examples import Example
from pellucid.data.extended_vocabulary import encode_extended
from pellucid.data.target_encoding import encode_labels
from pellucid.data.tokenizers import Tokenizers, build_tokenizers
from pellucid.data.vocabulary import NUM_SPECIAL, PAD, Vocabularies
from pellucid.tasks.registry import configured_task


def test_tags_that_are_not_scored_are_encoded_as_padding() -> None:
    config, pairs = config_of("tag"), [Example("abc", "V-C"), Example("ab", "CC")]
    known = vocabularies_for(config, pairs)
    assert known.target.symbols == ("C", "V")
    target = encode_labels([*pairs, Example("a", "X")], build_tokenizers(config.data), known).target
    assert target.values.tolist() == [NUM_SPECIAL + 1, PAD, NUM_SPECIAL, NUM_SPECIAL, NUM_SPECIAL, PAD]
    assert target.lengths.tolist() == [3, 2, 1]


def test_rare_classes_are_classes_and_rare_source_symbols_unknown() -> None:
    config = config_of("classify", data={"min_count": 2})
    known = vocabularies_for(config, [Example("aa", "some of it"), Example("b", "none"), Example("a", "none")])
    assert known.target.symbols == ("none", "some of it") and known.source.symbols == ("a",)


def test_the_position_vocabulary_has_all_possible_positions() -> None:
    config = config_of("point", data={"max_sequence_length": 12})
    known = vocabularies_for(config, [Example("abc", "2"), Example("abcd", "2")])
    assert known.target.symbols == tuple(str(number) for number in range(1, 13)) and known.target.counts[1] == 2
    target = encode_labels([Example("abcdefghijk", "11")], build_tokenizers(config.data), known).target
    assert target.values.tolist() == [NUM_SPECIAL + 10]


def ids(encoded: EncodedExamples) -> list[list[int]]:
    """Return all ids of the sources, and all of the targets."""
    return [column.values.tolist() for column in encoded]


@pytest.mark.parametrize(
    ("config", "encode", "target"),
    [
        (config_of("point"), encode_labels, "2"),
        (build_config({}, "a test"), encode_examples, "2z"),
        (build_config({"decoder": {"pointer_generator": True}}, "a test"), encode_extended, "2z"),
    ],
)
def test_each_task_has_its_encoding(
    config: Config, encode: Callable[[list[Example], Tokenizers, Vocabularies], EncodedExamples], target: str
) -> None:
    """The second pair has a symbol outside the vocabulary, which only the last encoding copies."""
    known, tokenizers = vocabularies_for(config, [Example("ab", "2")]), build_tokenizers(config.data)
    pairs = [Example("ab", "2"), Example("az", target)]
    encoded = configured_task(config).convert_examples_to_ids(pairs, tokenizers, known, config)
    assert ids(encoded) == ids(encode(pairs, tokenizers, known))
    others = {encode_labels, encode_examples, encode_extended} - {encode}
    assert all(ids(encoded) != ids(other(pairs, tokenizers, known)) for other in others)
