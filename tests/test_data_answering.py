from tasks import config_of, vocabularies_for

from pellucid.config.settings import Config
from pellucid.config.toml import from_settings
from pellucid.data.answering import Encoding, encode_answers
from pellucid.data.batches import encode
from pellucid.data.copies import encode_with_copies
from pellucid.data.examples import Example
from pellucid.data.tokenizers import segmenters
from pellucid.data.vocabulary import PAD, SPECIAL
from pellucid.tasks.registry import task_of


def test_tags_that_are_not_scored_are_padding_and_no_tag() -> None:
    config, pairs = config_of("tag"), [Example("abc", "V-C"), Example("ab", "CC")]
    known = vocabularies_for(config, pairs)
    assert known.target.symbols == ("C", "V")
    target = encode_answers([*pairs, Example("a", "X")], segmenters(config.data), known).target
    assert target.values.tolist() == [SPECIAL + 1, PAD, SPECIAL, SPECIAL, SPECIAL, PAD]
    assert target.lengths.tolist() == [3, 2, 1]


def test_rare_classes_are_classes_and_rare_source_symbols_unknown() -> None:
    config = config_of("classify", data={"min_count": 2})
    known = vocabularies_for(config, [Example("aa", "some of it"), Example("b", "none"), Example("a", "none")])
    assert known.target.symbols == ("none", "some of it") and known.source.symbols == ("a",)


def test_positions_are_all_that_a_source_may_have() -> None:
    config = config_of("point", data={"max_length": 12})
    known = vocabularies_for(config, [Example("abc", "2"), Example("abcd", "2")])
    assert known.target.symbols == tuple(str(number) for number in range(1, 13)) and known.target.counts[1] == 2
    target = encode_answers([Example("abcdefghijk", "11")], segmenters(config.data), known).target
    assert target.values.tolist() == [SPECIAL + 10]


def encoding(config: Config) -> Encoding:
    return task_of(config).encoding(config)


def test_each_task_has_its_encoding() -> None:
    assert encoding(config_of("point")) is encode_answers
    assert encoding(from_settings({}, "a test")) is encode
    assert encoding(from_settings({"decoder": {"pointer_generator": True}}, "a test")) is encode_with_copies
