from task_cases import learn_task_vocabularies, make_task_config

from pellucid.config.settings import Config
from pellucid.config.toml import build_config
from pellucid.data.batches import encode_examples
from pellucid.data.examples import Example
from pellucid.data.extended_vocabulary import encode_extended
from pellucid.data.target_encoding import ExampleEncoder, encode_labels
from pellucid.data.tokenizers import build_tokenizers
from pellucid.data.vocabulary import NUM_SPECIAL, PAD
from pellucid.tasks.registry import configured_task


def test_tags_that_are_not_scored_are_encoded_as_padding() -> None:
    config, pairs = make_task_config("tag"), [Example("abc", "V-C"), Example("ab", "CC")]
    known = learn_task_vocabularies(config, pairs)
    assert known.target.symbols == ("C", "V")
    target = encode_labels([*pairs, Example("a", "X")], build_tokenizers(config.data), known).target
    assert target.values.tolist() == [NUM_SPECIAL + 1, PAD, NUM_SPECIAL, NUM_SPECIAL, NUM_SPECIAL, PAD]
    assert target.lengths.tolist() == [3, 2, 1]


def test_rare_classes_are_classes_and_rare_source_symbols_unknown() -> None:
    config = make_task_config("classify", data={"min_count": 2})
    known = learn_task_vocabularies(config, [Example("aa", "some of it"), Example("b", "none"), Example("a", "none")])
    assert known.target.symbols == ("none", "some of it") and known.source.symbols == ("a",)


def test_the_position_vocabulary_has_all_possible_positions() -> None:
    config = make_task_config("point", data={"max_sequence_length": 12})
    known = learn_task_vocabularies(config, [Example("abc", "2"), Example("abcd", "2")])
    assert known.target.symbols == tuple(str(number) for number in range(1, 13)) and known.target.counts[1] == 2
    target = encode_labels([Example("abcdefghijk", "11")], build_tokenizers(config.data), known).target
    assert target.values.tolist() == [NUM_SPECIAL + 10]


def encoding(config: Config) -> ExampleEncoder:
    return configured_task(config).example_encoder(config)


def test_each_task_has_its_encoding() -> None:
    assert encoding(make_task_config("point")) is encode_labels
    assert encoding(build_config({}, "a test")) is encode_examples
    assert encoding(build_config({"decoder": {"pointer_generator": True}}, "a test")) is encode_extended
