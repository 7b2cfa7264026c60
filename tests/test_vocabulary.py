"""A vocabulary maps symbols to ids by frequency and back; invalid files are refused."""

import inspect
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_networks import EXAMPLES, RANDOM_TOKENIZERS

from pellucid.config.settings import DataConfig
from pellucid.data import vocabulary as vocabulary_module
from pellucid.data.examples import Example
from pellucid.data.tokenizers import Tokenizers, build_tokenizers
from pellucid.data.vocabulary import (
    BOS,
    EOS,
    MAX_SYMBOL_LENGTH,
    NUM_SPECIAL,
    PAD,
    SPECIAL_NAMES,
    UNK,
    Vocabularies,
    Vocabulary,
    build_vocabulary,
    learn_vocabularies,
    load_vocabularies,
)
from pellucid.errors import ArgumentError, DataError, RunError

SYMBOLS = st.one_of(st.text(max_size=2), st.sampled_from(["<pad>", "<s>", "⟨copy⟩", "PAD", "0", "2"]))
SEQUENCES = st.lists(st.lists(SYMBOLS, max_size=6), max_size=6)


def make_vocabularies(sequences: list[list[str]]) -> Vocabularies:
    vocabulary = build_vocabulary(sequences, 1)
    return Vocabularies(vocabulary, build_vocabulary([["a"]], 1), build_vocabulary([], 1), 3, 4)


def test_the_special_ids_come_before_all_symbols() -> None:
    assert {PAD, BOS, EOS, UNK} == set(range(NUM_SPECIAL))
    assert PAD == 0
    assert len(SPECIAL_NAMES) == NUM_SPECIAL


@given(SEQUENCES, st.integers(1, 4))
def test_symbols_are_sorted_by_frequency_then_code_point(sequences: list[list[str]], minimum: int) -> None:
    counts = Counter(symbol for sequence in sequences for symbol in sequence)
    vocabulary = build_vocabulary(sequences, minimum)
    assert dict(zip(vocabulary.symbols, vocabulary.counts, strict=True)) == {
        s: n for s, n in counts.items() if n >= minimum
    }
    order = [(-n, [ord(c) for c in s]) for s, n in zip(vocabulary.symbols, vocabulary.counts, strict=True)]
    assert order == sorted(order)
    assert len(vocabulary) == NUM_SPECIAL + len(vocabulary.symbols)


def test_ties_are_broken_by_code_point() -> None:
    assert build_vocabulary(["zaZé", "🙂", "b", "b"], 1).symbols == ("b", "Z", "a", "z", "é", "🙂")


@pytest.mark.parametrize(
    ("sequences", "message"),
    [
        (iter([1]), "sequences[0]: expected a list of strings, got 1"),
        (iter([["a"], [1, 2]]), "sequences[1][0]: expected a string, got 1"),
        (iter([["a"], "bc", b"ab"]), "sequences[2]: expected a list of strings, got b'ab'"),
        (iter([[None]]), "sequences[0][0]: expected a string, got None"),
        ("ab", "sequences: expected an iterable of sequences of symbols, got 'ab'"),
        ({"a": 1}, "sequences: expected an iterable of sequences of symbols, got "),
    ],
)
def test_invalid_sequences_are_refused(sequences: Any, message: str) -> None:  # noqa: ANN401
    with pytest.raises(ArgumentError, match="^" + re.escape(message)):
        build_vocabulary(sequences, 1)


def test_exceptions_of_an_iterator_of_sequences_are_passed_on() -> None:
    with pytest.raises(ZeroDivisionError):
        build_vocabulary(([str(1 // number)] for number in (1, 0)), 1)


class FailingContainer:
    """A container whose iterator cannot be created."""

    def __iter__(self) -> Iterator[list[str]]:
        raise KeyError("no iterator")


class FailingClass(FailingContainer):
    """A container whose class cannot be asked for, either."""

    @property  # type: ignore[misc]
    def __class__(self) -> Any:  # noqa: ANN401
        raise KeyError("no class")


@pytest.mark.parametrize("kind", [FailingContainer, FailingClass])
def test_a_container_whose_methods_raise_is_refused(kind: type[FailingContainer]) -> None:
    """Regression test: the exception of the container was passed on."""
    with pytest.raises(ArgumentError, match=r"^sequences: expected an iterable of sequences of symbols, got "):
        inspect.unwrap(build_vocabulary)(kind(), 1)  # without the checks of the tests, which ask for the class


@pytest.mark.parametrize(
    ("symbols", "counts", "message"),
    [
        ("abc", (1, 2, 3), "symbols: expected a list of strings, got 'abc'"),
        ((1,), (1,), "symbols[0]: expected a string, got 1"),
        (("a",), ("x",), "counts[0]: expected a whole number, got 'x'"),
        (("a",), (-1,), "counts[0]: expected a whole number of at least 0, got -1"),
        (("a",), (True,), "counts[0]: expected a whole number, got True"),
        (("a",), 5, "counts: expected a list of whole numbers, got 5"),
    ],
)
def test_invalid_fields_of_a_vocabulary_are_refused(symbols: Any, counts: Any, message: str) -> None:  # noqa: ANN401
    with pytest.raises(ArgumentError, match="^" + re.escape(message)):
        Vocabulary(symbols, counts)


def test_lists_become_the_tuples_of_a_vocabulary() -> None:
    assert Vocabulary(["a"], [1]) == Vocabulary(("a",), (1,))  # type: ignore[arg-type]


@pytest.mark.parametrize("symbol_id", [-1, 5, 999, True])
def test_ids_outside_the_vocabulary_are_refused(symbol_id: Any) -> None:  # noqa: ANN401
    with pytest.raises(ArgumentError, match=r"^symbol_id: expected "):
        Vocabulary(("a",), (1,)).symbol(symbol_id, SPECIAL_NAMES)


def test_special_ids_without_names_are_refused() -> None:
    assert Vocabulary(("a",), (1,)).symbol(NUM_SPECIAL, ()) == "a"
    with pytest.raises(ArgumentError, match=r"^special_names: expected 4 texts, one for each special id, got \[\]"):
        Vocabulary(("a",), (1,)).symbol(UNK, ())


def test_vocabularies_are_saved_under_any_path(tmp_path: Path) -> None:
    vocabularies = make_vocabularies([["a", "b"]])
    vocabularies.save(str(tmp_path / "v.json"))
    assert load_vocabularies(tmp_path / "v.json", DataConfig()) == vocabularies
    with pytest.raises(ArgumentError, match=r"^path: expected a path, got None"):
        vocabularies.save(None)  # type: ignore[arg-type]


def test_minimum_count_is_at_least_one() -> None:
    with pytest.raises(ArgumentError, match=r"^min_count: expected "):
        build_vocabulary([["a"]], -5)
    with pytest.raises(ArgumentError, match=r"^min_count: expected "):
        learn_vocabularies([], build_tokenizers(DataConfig()), 0)


@given(SEQUENCES)
def test_ids_round_trip_and_no_spelling_is_special(sequences: list[list[str]]) -> None:
    vocabulary = build_vocabulary(sequences, 1)
    for sequence in sequences:
        ids = vocabulary.encode(sequence)
        assert vocabulary.encode_array(sequence).tolist() == vocabulary.encode_array(iter(sequence)).tolist() == ids
        assert all(NUM_SPECIAL <= identity < len(vocabulary) for identity in ids)
        assert [vocabulary.symbol(identity, SPECIAL_NAMES) for identity in ids] == sequence
    assert len(set(vocabulary.ids.values())) == len(vocabulary.symbols)


@pytest.mark.parametrize("spelling", ["<pad>", "<unk>", "⟨copy⟩", "⟨END⟩", "", "2"])
def test_special_spellings_are_ordinary_symbols_or_unknown(spelling: str) -> None:
    assert build_vocabulary([[spelling]], 1).encode([spelling]) == [NUM_SPECIAL]
    assert build_vocabulary([["a"]], 1).encode([spelling]) == [UNK]


def test_special_ids_have_the_requested_names() -> None:
    vocabulary = build_vocabulary([["a"]], 1)
    assert [vocabulary.symbol(identity, ("p", "b", "e", "u")) for identity in range(5)] == ["p", "b", "e", "u", "a"]


@given(SEQUENCES)
def test_rare_symbols_become_unknown(sequences: list[list[str]]) -> None:
    counts = Counter(symbol for sequence in sequences for symbol in sequence)
    vocabulary = build_vocabulary(sequences, 2)
    for symbol, count in counts.items():
        assert (vocabulary.encode([symbol]) == [UNK]) == (count < 2)


def test_each_column_has_its_own_vocabulary() -> None:
    tokenizers = build_tokenizers(DataConfig(target_symbols="words"))
    learned = learn_vocabularies(
        [Example("ab", "x y x", "V;PST"), Example("bcd", "y", "V"), Example("b", "y")], tokenizers, 1
    )
    assert learned.source.symbols == ("b", "a", "c", "d")
    assert learned.source.counts == (3, 1, 1, 1)
    assert learned.target.symbols == ("y", "x")
    assert learned.features.symbols == ("V", "PST")
    assert (learned.longest_source, learned.longest_target) == (3, 3)
    frequent = learn_vocabularies([Example("aab", "c c", "V;V"), Example("b", "d")], tokenizers, 2)
    assert (frequent.source.symbols, frequent.target.symbols, frequent.features.symbols) == (("a", "b"), ("c",), ("V",))


@given(EXAMPLES, RANDOM_TOKENIZERS, st.integers(1, 3), st.integers(1, 9))
def test_counting_by_column_equals_counting_by_text(
    examples: list[Example], tokenizers: Tokenizers, min_count: int, texts: int
) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(vocabulary_module, "TEXTS_PER_BLOCK", texts)
        learned = learn_vocabularies(examples, tokenizers, min_count)
    columns = [[tokenizer.split(example[index]) for example in examples] for index, tokenizer in enumerate(tokenizers)]
    result = (learned.source, learned.target, learned.features)
    assert result == tuple(build_vocabulary(column, min_count) for column in columns)
    max_lengths = tuple(max(map(len, column), default=0) for column in columns)
    assert (learned.longest_source, learned.longest_target) == max_lengths[:2]


@given(SEQUENCES)
def test_vocabularies_round_trip_through_their_file(
    tmp_path_factory: pytest.TempPathFactory, sequences: list[list[str]]
) -> None:
    path, learned = tmp_path_factory.mktemp("vocabulary") / "vocabulary.json", make_vocabularies(sequences)
    learned.save(path)
    loaded = load_vocabularies(path, DataConfig(source_symbols="|||"))
    assert loaded == learned
    assert loaded.source.ids == learned.source.ids
    learned.save(path.with_name("again.json"))
    assert path.with_name("again.json").read_bytes() == path.read_bytes()


VALID_CONTENT = (
    b'{"source":{"symbols":["a","b"],"counts":[2,1]},"target":{"symbols":["a"],"counts":[1]},'
    b'"features":{"symbols":[],"counts":[]},"longest_source":3,"longest_target":3,"format":1}'
)


def write_and_load(path: Path, content: bytes) -> Vocabularies:
    path.write_bytes(content)
    return load_vocabularies(path, DataConfig())


def test_a_valid_file_is_loaded(tmp_path: Path) -> None:
    assert write_and_load(tmp_path / "vocabulary.json", VALID_CONTENT).source == Vocabulary(("a", "b"), (2, 1))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"{}",
        VALID_CONTENT[:-9],
        b"\x93NUMPY" + VALID_CONTENT,
        VALID_CONTENT.replace(b'"a"', b'"\xff"', 1),
        VALID_CONTENT.replace(b'"a"', b'"\\ud800"', 1),
        VALID_CONTENT.replace(b'"a"', b"7", 1),
        VALID_CONTENT.replace(b"[2,1]", b'["2",1]'),
        VALID_CONTENT.replace(b'"longest_target"', b'"longest"'),
        VALID_CONTENT.replace(b'"longest_target":3', b'"longest_target":32769'),
    ],
)
def test_an_invalid_file_is_refused_with_its_name(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(RunError, match=r"vocabulary\.json is not a vocabulary: "):
        write_and_load(tmp_path / "vocabulary.json", content)


@pytest.mark.parametrize(
    "content",
    [
        VALID_CONTENT.replace(b"[2,1]", b"[2]"),
        VALID_CONTENT.replace(b'["a","b"]', b'["a","a"]'),
        VALID_CONTENT.replace(b'"format":1', b'"format":0'),
    ],
)
def test_inconsistent_vocabularies_are_refused(tmp_path: Path, content: bytes) -> None:
    """A missing count, a repeated symbol or another format would silently give wrong symbols."""
    with pytest.raises(RunError, match=r"vocabulary\.json is not a vocabulary: "):
        write_and_load(tmp_path / "vocabulary.json", content)


LONG_SYMBOL = "x" * (MAX_SYMBOL_LENGTH + 1)


@pytest.mark.parametrize("symbol", [*SPECIAL_NAMES, LONG_SYMBOL])
def test_reserved_and_long_symbols_are_refused_when_loaded_and_learned(tmp_path: Path, symbol: str) -> None:
    """The name of a special symbol is reserved; a message quotes the beginning of a long symbol."""
    reason = "has 65,537 characters" if symbol == LONG_SYMBOL else f"{symbol} is the name of a special symbol"
    with pytest.raises(RunError, match=rf"vocabulary\.json is not a vocabulary: .*{reason}") as load_error:
        write_and_load(tmp_path / "vocabulary.json", VALID_CONTENT.replace(b'"b"', f'"{symbol}"'.encode()))
    with pytest.raises(DataError, match=rf"the training data: .*{reason}") as learn_error:
        learn_vocabularies([Example("a", f"b {symbol}")], build_tokenizers(DataConfig(target_symbols="words")), 1)
    assert max(len(str(load_error.value)), len(str(learn_error.value))) < 400


@pytest.mark.parametrize(
    ("kind", "valid", "invalid"),
    [
        ("characters", ["a", " ", "\n"], ["", "ab"]),
        ("words", ["a", "ab", "⟨copy⟩"], ["", " ", "a b", "a\t", "a\n"]),
        ("whole", ["a", "a b"], [""]),
        ("|", ["", "a b"], ["|", "a|b"]),
    ],
)
def test_a_symbol_that_no_tokenizer_produces_is_refused(
    tmp_path: Path, kind: str, valid: list[str], invalid: list[str]
) -> None:
    path, config = tmp_path / "vocabulary.json", DataConfig(target_symbols=kind)
    for symbol in [*valid, *invalid]:
        vocabularies = make_vocabularies([])
        msgspec.structs.replace(vocabularies, target=Vocabulary((symbol,), (1,))).save(path)
        if symbol in valid:
            assert load_vocabularies(path, config).target.symbols == (symbol,)
        else:
            with pytest.raises(RunError) as caught:
                load_vocabularies(path, config)
            kinds = "parts between '|'" if kind == "|" else kind
            assert str(caught.value) == (f"{path}: target.symbols: {symbol!r} is not a symbol if symbols are {kinds}")


def test_a_missing_vocabulary_is_a_run_error(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"vocabulary\.json"):
        load_vocabularies(tmp_path / "vocabulary.json", DataConfig())
