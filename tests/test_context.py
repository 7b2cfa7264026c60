"""data/context.py: the words around each word of running text, and files that are read with them."""

import tempfile
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from small_networks import make_config, make_vocabularies

from pellucid.config.settings import DataConfig
from pellucid.config.task_settings import uses_pair_ngram
from pellucid.config.validation import reject_unused, unused_settings
from pellucid.data.context import (
    EDGE,
    SENTENCE_END,
    UNKNOWN_WORD,
    add_contexts,
    begins_sentence,
    context_word,
    sentence_contexts,
    unknown_context,
)
from pellucid.data.corpus import ReadingReport
from pellucid.data.encoding import encode_sources
from pellucid.data.examples import (
    Example,
    parse_pairs,
    parse_sources,
    read_example_blocks,
    read_examples,
    read_sources,
    read_table_examples,
    training_columns,
)
from pellucid.data.in_memory import read_table
from pellucid.data.readers import BadLine
from pellucid.data.tokenizers import build_tokenizers
from pellucid.data.validation_split import format_validation_file, split_by_sentence, validation_file_config
from pellucid.data.vocabulary import NUM_SPECIAL, UNK, learn_vocabularies
from pellucid.decoding import member_ids
from pellucid.errors import BadLineError, ConfigError, DataError
from pellucid.export import support
from pellucid.model.network import build_parts
from pellucid.pair_ngram.predictor import _without_contexts
from pellucid.training.events import FileRead
from pellucid.training.mix_in import mix_in_pairs
from pellucid.training.training_data import TrainingData

WORDS = st.lists(st.sampled_from(["a", "B", "über", "new York", SENTENCE_END]), max_size=12)
COUNTS = st.integers(1, 3)


def data_config(count: int = 1, **settings: object) -> DataConfig:
    """Return data settings with contexts."""
    return msgspec.convert({"context_words": count, **settings}, DataConfig)


def naive_contexts(words: list[str], count: int) -> list[str]:
    """Return the context of each word by its definition, one place at a time."""
    contexts = []
    for index, word in enumerate(words):
        places = [*range(index - count, index), *range(index + 1, index + count + 1)]
        found = []
        for place in places:
            between = words[min(place, index) if place > 0 else 0 : max(place, index) + 1]
            inside = 0 <= place < len(words) and SENTENCE_END not in between
            found.append(context_word(words[place]) if inside else EDGE)
        contexts.append(" ".join(found) if word else "")
    return contexts


@given(WORDS, COUNTS)
def test_the_context_of_a_word_is_the_words_around_it_in_its_sentence(words: list[str], count: int) -> None:
    added = list(add_contexts(((number, word) for number, word in enumerate(words)), count))
    assert [number for number, _ in added] == list(range(len(words)))
    assert [context for _, context in added] == naive_contexts(words, count)
    sentences = [list(group) for is_end, group in groupby(words, key=lambda word: word == SENTENCE_END) if not is_end]
    assert [context for _, context in added if context] == [
        context for sentence in sentences for context in sentence_contexts(sentence, count)
    ]


@given(WORDS, COUNTS)
def test_each_context_is_as_many_symbols_and_marks_the_first_word(words: list[str], count: int) -> None:
    split = build_tokenizers(data_config(count)).features.split
    for index, context in add_contexts(enumerate(words), count):
        if context:
            assert len(split(context)) == 2 * count
            assert begins_sentence(context, count) == (index == 0 or words[index - 1] == SENTENCE_END)


def test_an_item_is_yielded_once_its_next_words_are_read() -> None:
    read: list[str] = []

    def words() -> Iterator[tuple[str, str]]:
        for word in ("a", "b", "c", SENTENCE_END, "d"):
            read.append(word)
            yield word, word

    progress = [(item, len(read)) for item, _ in add_contexts(words(), 1)]
    assert progress == [("a", 2), ("b", 3), ("c", 4), (SENTENCE_END, 4), ("d", 5)]


def test_items_before_a_damaged_place_are_yielded() -> None:
    def words() -> Iterator[tuple[int, str]]:
        yield from ((1, "a"), (2, "b"))
        raise DataError("damaged")

    items = add_contexts(words(), 2)
    assert [next(items), next(items)] == [(1, f"{EDGE} {EDGE} b {EDGE}"), (2, f"{EDGE} a {EDGE} {EDGE}")]
    with pytest.raises(DataError, match="damaged"):
        next(items)


TEXT = "The\tx\nRed\ty\n\nfox\tz\nruns\tz\n"
CONTEXTS = [f"{EDGE} red", f"the {EDGE}", f"{EDGE} runs", f"fox {EDGE}"]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.tsv", TEXT),
        ("a.csv", TEXT.replace("\t", ",")),
        ("b.csv", TEXT.replace("\t", ",").replace("\n\n", "\n,\n")),
        (
            "a.jsonl",
            "".join(
                msgspec.json.encode(dict(zip(("source", "target"), line.split("\t"), strict=False))).decode() + "\n"
                if line
                else "\n"
                for line in TEXT.splitlines()
            ),
        ),
    ],
)
def test_neighbors_of_training_files_are_the_lines_around_a_source(tmp_path: Path, name: str, content: str) -> None:
    path = tmp_path / name
    path.write_text(content, encoding="utf-8")
    reading = read_examples(path, data_config())
    assert [example.features for example in reading.examples] == CONTEXTS
    assert [example.source for example in reading.examples] == ["The", "Red", "fox", "runs"]
    assert (reading.line_numbers, reading.num_blank_lines) == ([1, 2, 4, 5], 1)
    blocks = [example for block in read_example_blocks(path, data_config(), 1) for example in block.examples]
    assert blocks == reading.examples


def test_parallel_files_and_tables_have_neighbors_as_well(tmp_path: Path) -> None:
    for name, column in (("a.src", 0), ("a.trg", 1)):
        lines = [[*line.split("\t"), ""][column] for line in TEXT.splitlines()]
        (tmp_path / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    reading = read_examples(tmp_path / "a.src", data_config(), tmp_path / "a.trg")
    assert [example.features for example in reading.examples] == CONTEXTS
    rows = [tuple([*line.split("\t"), ""][:2]) for line in TEXT.splitlines()]
    table = read_table("train", rows, "", training_columns(data_config()))
    assert read_table_examples(table, data_config())[0].examples == reading.examples


def test_sources_and_pairs_have_the_neighbors_of_the_training_file(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text(TEXT, encoding="utf-8")
    expected = [*CONTEXTS[:2], "", *CONTEXTS[2:]]
    items = [*read_sources(path, data_config())]
    assert [item.features for item in items if isinstance(item, Example)] == expected
    lines = [line.encode() for line in TEXT.splitlines(keepends=True)]
    for items in ([*parse_sources(lines, "input", data_config())], [*parse_pairs(lines, "input", data_config())]):
        assert [item.features for item in items if isinstance(item, Example)] == expected


def test_a_bad_line_is_an_unknown_word_and_keeps_its_place() -> None:
    lines = [b"a\n", b"\xff\n", b"b\n"]
    first, bad, last = parse_sources(lines, "input", data_config())
    assert isinstance(bad, BadLine)
    assert [item.features for item in (first, last) if isinstance(item, Example)] == [
        f"{EDGE} {UNKNOWN_WORD}",
        f"{UNKNOWN_WORD} {EDGE}",
    ]


def test_a_bad_line_of_a_training_file_is_reported_with_its_number(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text("a\tb\nb\n\nc\td\n", encoding="utf-8")
    with pytest.raises(BadLineError, match=r"a\.tsv:2: "):
        read_examples(path, data_config())
    reading = read_examples(path, data_config(on_bad_line="skip"))
    assert [example.features for example in reading.examples] == [f"{EDGE} {UNKNOWN_WORD}", f"{EDGE} {EDGE}"]


def test_a_column_of_contexts_is_read_in_place_of_the_neighbors(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text("a\tb\tx y\n", encoding="utf-8")
    assert read_examples(path, data_config(features_column="3")).examples == [Example("a", "b", "x y")]


def test_given_contexts_are_compared_in_lower_case_and_have_all_words(tmp_path: Path) -> None:
    config = data_config(features_column="3")
    assert build_tokenizers(config).features.split("Had IT") == ["had", "it"]
    assert build_tokenizers(data_config(0, features_column="3", features_symbols="words")).features.split("A b") == [
        "A",
        "b",
    ]
    path = tmp_path / "text.tsv"
    path.write_text("read\trɛd\tHad it\nread\trid\twill\n")
    with pytest.raises(BadLineError, match=r"text.tsv:2: the context has 1 word; expected 2, the 1 before and the 1 "):
        read_examples(path, config)
    source = next(iter(parse_sources([b"read\tx\thad it now\n"], "input", config)))
    assert isinstance(source, BadLine) and "the context has 3 words; expected 2" in source.reason
    assert context_word(EDGE) == UNKNOWN_WORD


def test_the_validation_file_keeps_the_contexts(tmp_path: Path) -> None:
    examples = [Example("a", "b", f"{EDGE} c"), Example("c", "d", f"a {EDGE}")]
    path = tmp_path / "validation.jsonl"
    path.write_bytes(format_validation_file(examples))
    assert read_examples(path, validation_file_config(data_config())).examples == examples


def test_whole_sentences_are_held_out() -> None:
    sentences = [[f"w{number}", "x", "y"] for number in range(40)]
    examples = [
        Example(word, word, context)
        for words in sentences
        for word, context in zip(words, sentence_contexts(words, 1), strict=True)
    ]
    split, description = split_by_sentence(examples, 1, "train.tsv")
    assert description == "4 of 40 sentences chosen at random"
    assert len(split.validation_examples) == 12
    assert [example.source for example in split.validation_examples[1::3]] == ["x"] * 4
    assert sorted(split.training_examples + split.validation_examples) == sorted(examples)
    with pytest.raises(DataError, match=r"train\.tsv has a single sentence"):
        split_by_sentence(examples[:3], 1, "train.tsv")


def test_earlier_text_is_left_out_only_if_the_validation_set_has_a_word_in_its_context(tmp_path: Path) -> None:
    """Regression test: every occurrence of a word of the validation set was left out."""
    path = tmp_path / "old.tsv"
    path.write_text(TEXT + "\nthe\tx\nfox\tz\n", encoding="utf-8")
    validation = [Example("The", "x", f"{EDGE} red"), Example("fox", "z", f"a {EDGE}")]
    report, reads = ReadingReport((), 0, 0), (FileRead(path, 0, [], 0, ""), FileRead(path, 0, [], 0, ""))
    data = TrainingData("", report, [Example("a", "b", f"{EDGE} {EDGE}")], None, validation, reads, 2)
    config = make_config({"data": {"context_words": 1}, "training": {"mix_in": str(path)}})
    mixed, event = mix_in_pairs(data, config, config.data)
    assert [example.source for example in mixed.training_examples] == ["a", "Red", "fox", "runs", "the", "fox"]
    assert (event.num_examples, event.num_validation, mixed.num_mixed_in) == (5, 1, 5)
    config = make_config({"training": {"mix_in": str(path)}})
    assert mix_in_pairs(data, config, config.data)[1].num_validation == 3  # "The" and "fox", as sources


def test_rare_words_and_unknown_ones_are_no_symbols_of_contexts() -> None:
    contexts = ["a b", "b a", "a c", f"c {UNKNOWN_WORD}", *[f"{UNKNOWN_WORD} {EDGE}"] * 3]
    examples = [Example("x", "y", context) for context in contexts]
    tokenizers = build_tokenizers(data_config())
    assert set(learn_vocabularies(examples, tokenizers, 1, 1).features.symbols) == {"a", EDGE}, "b and c may occur once"
    assert unknown_context(2).split() == [UNKNOWN_WORD] * 4


@given(WORDS)
def test_a_file_with_contexts_has_the_lines_of_one_without(words: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.tsv"
        path.write_text("".join(f"{word}\n" for word in words), encoding="utf-8")
        plain, with_contexts = (
            [item.source for item in read_sources(path, config) if isinstance(item, Example)]
            for config in (DataConfig(), data_config(2))
        )
    assert plain == with_contexts


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"task": "tag"}, "data.context_words = 1 needs task = 'transduce'"),
        ({"task": "classify"}, "data.context_words = 1 needs task = 'transduce'"),
        ({"encoder": {"feature_merge": "sum"}}, "data.context_words = 1 needs encoder.feature_merge = 'prefix'"),
    ],
)
def test_settings_that_contexts_exclude_are_named(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_config({"data": {"context_words": 1}, **settings})


def test_settings_without_effect_on_contexts_are_named() -> None:
    config = make_config({"encoder": {"context_dropout": 0.5}})
    with pytest.raises(ConfigError, match=r"encoder\.context_dropout = 0\.5 needs data\.context_words above 0"):
        reject_unused(config)
    config = make_config({"data": {"context_words": 1, "features_symbols": "+"}})
    assert {requirement.key for requirement in unused_settings(config)} == {"data.features_symbols"}


def test_members_of_an_ensemble_have_as_many_words_of_context() -> None:
    one, two = (make_config({"data": {"context_words": count}}) for count in (1, 2))
    assert member_ids._difference(one, two) == "data.context_words"


def test_words_of_the_context_are_dropped_in_training_alone() -> None:
    config = make_config({"data": {"context_words": 1}, "encoder": {"context_dropout": 0.5}})
    vocabularies = make_vocabularies("abc", "xyz", ("a", "b", EDGE))
    encoder = build_parts(config, vocabularies).encoder
    num_symbols = len(vocabularies.source)
    source = torch.tensor([[num_symbols + NUM_SPECIAL, num_symbols + NUM_SPECIAL + 2, NUM_SPECIAL, NUM_SPECIAL + 1]])
    batch = source.repeat(2000, 1)
    assert encoder.eval()._drop_contexts(batch) is batch
    dropped = encoder.train()._drop_contexts(batch)
    is_dropped = dropped == num_symbols + UNK
    assert torch.equal(dropped[~is_dropped], batch[~is_dropped])
    assert not is_dropped[:, 2:].any() and 0.45 < float(is_dropped[:, :2].float().mean()) < 0.55
    plain = build_parts(make_config({"data": {"features_column": "3"}}), vocabularies).encoder.train()
    assert plain._drop_contexts(batch) is batch


def test_a_pair_ngram_model_does_not_read_contexts_and_leaves_out_copies() -> None:
    config = data_config()
    contexts = [f"{EDGE} b", "a b", "", "⟨copy⟩"]
    examples = [Example("ab", "xy", context) for context in contexts]
    tokenizers = build_tokenizers(config)
    vocabularies = learn_vocabularies(examples, tokenizers, 1)
    sources = encode_sources(examples, tokenizers, vocabularies)
    stripped = _without_contexts(sources, 2, len(vocabularies.source))
    assert stripped.lengths.tolist() == [2, 2, 2, 3]
    plain = encode_sources([example._replace(features="") for example in examples[:3]], tokenizers, vocabularies)
    assert stripped.values[:6].tolist() == plain.values.tolist()
    assert uses_pair_ngram(make_config({"data": {"context_words": 1}}))
    assert not uses_pair_ngram(make_config({"data": {"features_column": "3"}}))


def test_exports_refuse_contexts() -> None:
    reasons = support._unsupported_settings(make_config({"data": {"context_words": 1}}))
    assert reasons == {"data.context_words": "its beam search decodes words without the words around them"}


def test_estimators_need_a_column_of_contexts() -> None:
    pytest.importorskip("sklearn")
    from pellucid.sklearn import SequenceTransducer

    estimator = SequenceTransducer(settings={"data": {"context_words": 1}})
    assert estimator._all_settings(has_features=True)["data"]["features_column"] == "3"
    with pytest.raises(ConfigError, match="rows of X have no order"):
        estimator._all_settings(has_features=False)
