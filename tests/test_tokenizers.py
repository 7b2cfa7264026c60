"""Tokenizers split a text into symbols and join them to the same text."""

import subprocess
import sys
import tracemalloc
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.config.settings import DataConfig
from pellucid.data import tokenizers
from pellucid.data.tokenizers import MAX_SPLIT_LENGTH, Tokenizer, build_tokenizers, find_spaced_symbols
from pellucid.errors import ConfigError

TEXTS = st.text()


def test_defaults_split_into_characters_and_features_at_semicolons() -> None:
    tokenizers = build_tokenizers(DataConfig())
    assert tokenizers.source == Tokenizer("characters", "nfc")
    assert tokenizers.target == Tokenizer("characters", "none")
    assert tokenizers.features == Tokenizer(";", "nfc")
    assert tokenizers.source.split("ab c") == ["a", "b", " ", "c"]
    assert tokenizers.features.split("V;PST;3") == ["V", "PST", "3"]


def test_each_column_has_its_settings() -> None:
    config = DataConfig(
        source_symbols="words",
        target_symbols="+",
        features_symbols="characters",
        source_normalization="nfd",
        target_normalization="nfc",
    )
    tokenizers = build_tokenizers(config)
    assert tokenizers == (Tokenizer("words", "nfd"), Tokenizer("+", "nfc"), Tokenizer("characters", "nfd"))


@pytest.mark.parametrize(
    "call",
    ["Tokenizer('words', 'none').split", "Tokenizer('characters', 'nfc').count", "SubwordModel((), ()).split"],
)
@pytest.mark.parametrize("text", [b"MC", None])
def test_only_strings_are_split(call: str, text: object) -> None:
    """The code runs without the type checks of the tests."""
    code = f"from pellucid.data.tokenizers import *; {call}({text!r})"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stderr.endswith(f"ArgumentError: text: expected a string, got {text!r}\n")


INVALID_FIELDS = {
    "Tokenizer(0, 'none')": "kind: expected a string, got 0",
    "Tokenizer('', 'none')": "kind: expected a string of length of at least 1, got ''",
    "Tokenizer('words', 'x')": "normalization: expected none, nfc or nfd, got 'x'",
    "Tokenizer('words', 'none', 5)": "subwords: expected a SubwordModel or None, got 5",
    "SubwordModel(None, ())": "alphabet: expected a list of strings, got None",
    "SubwordModel(('a',), 'ab')": "merges: expected a list of tuples of 2 strings, got 'ab'",
    "SubwordModel(('a',), (), -1)": "rare: expected a list of strings, got -1",
    "SubwordModels(5)": "source: expected a SubwordModel or None, got 5",
    "Vocabularies(5, 5, 5, 1, 1)": "source: expected a Vocabulary, got 5",
    "Vocabulary(('a',), (1,)).encode_array(None)": "symbols: expected a list of strings, got None",
    "Vocabulary(('a',), (1,)).encode_array(iter(['a', 5]))": "symbols[1]: expected a string, got 5",
}


def test_fields_and_arguments_of_wrong_types_are_refused() -> None:
    """The code runs without the type checks of the tests."""
    code = (
        "import sys\nfrom pellucid.data.tokenizers import *\nfrom pellucid.data.vocabulary import *\n"
        "for call in sys.argv[1:]:\n try: eval(call)\n except Exception as error: print(type(error).__name__, error)\n"
    )
    result = subprocess.run([sys.executable, "-c", code, *INVALID_FIELDS], capture_output=True, text=True, check=True)
    for line, message in zip(result.stdout.splitlines(), INVALID_FIELDS.values(), strict=True):
        assert line.startswith(f"ArgumentError {message}")


@pytest.mark.parametrize("kind", ["characters", "ipa", "words", ";", " ", "+", "<sep>", "a"])
def test_an_empty_text_has_no_symbols(kind: str) -> None:
    assert Tokenizer(kind, "none").split("") == []
    assert Tokenizer(kind, "none").join([]) == ""


def test_words_are_separated_by_any_white_space() -> None:
    words = Tokenizer("words", "none")
    assert words.split("  aː  b\u3000d͡z\t") == ["aː", "b", "d͡z"]
    assert words.split(" \t ") == []
    assert words.join(["aː", "b"]) == "aː b"


def test_a_separator_splits_at_every_occurrence() -> None:
    assert Tokenizer("+", "none").split("a++b+") == ["a", "", "b", ""]
    assert Tokenizer("::", "none").split("a:b::c") == ["a:b", "c"]
    assert Tokenizer(" ", "none").split("a  b") == ["a", "", "b"]


@pytest.mark.parametrize(
    ("normalization", "symbols"),
    [("none", ["e\u0301"[0], "\u0301", "가"]), ("nfc", ["é", "가"]), ("nfd", ["e", "\u0301", "\u1100", "\u1161"])],
)
def test_normalization_precedes_splitting(normalization: str, symbols: list[str]) -> None:
    config = DataConfig(source_normalization=normalization)  # type: ignore[arg-type]
    assert build_tokenizers(config).source.split("e\u0301가") == symbols


@pytest.mark.parametrize("side", ["source", "target", "features"])
def test_an_empty_kind_is_refused_with_its_key(side: str) -> None:
    with pytest.raises(ConfigError) as caught:
        build_tokenizers(DataConfig(**{f"{side}_symbols": ""}))  # type: ignore[arg-type]
    assert (
        str(caught.value)
        == f"data.{side}_symbols: expected characters, ipa, words, subwords or a separator, got an empty string"
    )


@pytest.mark.parametrize(
    ("kind", "hint"),
    [
        ("charcters", "; did you mean 'characters'?"),
        ("word", "; did you mean 'words'?"),
        ("IPA", "; did you mean 'ipa'?"),
        ("bpe", ""),
    ],
)
def test_a_misspelled_kind_is_no_separator(kind: str, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        build_tokenizers(DataConfig(target_symbols=kind))
    expected = f"data.target_symbols: expected characters, ipa, words, subwords or a separator, got {kind!r}{hint}"
    assert str(caught.value) == expected


def test_phones_are_letters_with_their_marks() -> None:
    phones = Tokenizer("ipa", "nfc")
    assert phones.split("t͡ʃˈaːco\u0303") == ["t͡ʃ", "ˈ", "aː", "c", "õ"]
    assert phones.count("t͡ʃaː") == 2
    assert [phones.can_produce(symbol) for symbol in ("t͡ʃ", "aː", "ˈ", "ː", "tʃ", "ˈa", "")] == [True] * 4 + [False] * 3


@given(TEXTS, st.sampled_from(["none", "nfc", "nfd"]))
def test_phones_join_to_the_same_text(text: str, form: str) -> None:
    phones = Tokenizer("ipa", form)  # type: ignore[arg-type]
    assert phones.join(phones.split(text)) == phones.normalize(text)
    assert all(map(phones.can_produce, phones.split(text)))


@given(TEXTS)
def test_characters_join_to_the_same_text(text: str) -> None:
    characters = Tokenizer("characters", "none")
    assert characters.split(text) == list(text)
    assert characters.join(characters.split(text)) == text


@given(TEXTS, st.sampled_from([" ", ";", "+", "::", "\u2028", "a"]))
def test_separated_parts_join_to_the_same_text(text: str, separator: str) -> None:
    tokenizer = Tokenizer(separator, "none")
    assert tokenizer.join(tokenizer.split(text)) == text


@given(TEXTS)
def test_splitting_joined_words_returns_the_words(text: str) -> None:
    words = Tokenizer("words", "none")
    assert words.split(words.join(words.split(text))) == words.split(text)
    assert "" not in words.split(text)


@given(TEXTS, st.sampled_from(["nfc", "nfd"]))
def test_a_normalized_text_joins_to_its_normal_form(text: str, form: str) -> None:
    characters = Tokenizer("characters", form)  # type: ignore[arg-type]
    assert characters.join(characters.split(text)) == unicodedata.normalize(form.upper(), text)  # type: ignore[arg-type]


@given(TEXTS, st.sampled_from(["none", "nfc", "nfd"]), st.sampled_from(["characters", "ipa", "words", ";"]))
def test_a_text_has_at_most_four_times_its_length_plus_one_symbols(text: str, form: str, kind: str) -> None:
    """The quick check of lengths in examples.py relies on this bound."""
    count = len(Tokenizer(kind, form).split(text))  # type: ignore[arg-type]
    assert count <= 4 * len(text) + 1
    assert count > 0 or not text.strip()


def test_normalization_gives_at_most_four_characters() -> None:
    code_point = max(range(0x110000), key=lambda code: len(unicodedata.normalize("NFD", chr(code))))
    assert len(unicodedata.normalize("NFD", chr(code_point))) == 4
    max_composed = max(len(unicodedata.normalize("NFC", chr(code))) for code in range(0x110000))
    assert max_composed <= 4


@pytest.mark.parametrize("kind", ["characters", "ipa", "words", ";", "aba", "whole", "position"])
@given(text=st.text(st.sampled_from("ab;; \t\u0301\u0361ˈʰ\x1f\u2003é"), min_size=1), lowercase=st.booleans())
def test_the_count_of_a_long_text_is_the_number_of_its_symbols(kind: str, text: str, lowercase: bool) -> None:
    tokenizer = Tokenizer(kind, "nfd", lowercase=lowercase)
    assert tokenizer.count(text) == len(tokenizer.split(text))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tokenizers, "MAX_SPLIT_LENGTH", 3)
        assert tokenizer.count(text) == len(tokenizer.split(text))


def test_every_white_space_character_separates_words_of_a_long_text() -> None:
    text = "a".join(map(chr, range(sys.maxunicode + 1)))
    assert Tokenizer("words", "none").count(text) == len(text.split())


@pytest.mark.parametrize("kind", ["ipa", "words", " "])
def test_a_long_text_is_counted_without_its_symbols(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression test: a line of 11 MiB of short words took 297 MiB before it was reported as too long."""
    text, tokenizer = "ab " * 100_000, Tokenizer(kind, "none")
    monkeypatch.setattr(tokenizers, "MAX_SPLIT_LENGTH", 2**10)
    tokenizer.count(text)  # classes of characters are stored
    tracemalloc.start()
    try:
        assert tokenizer.count(text) >= 100_000
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2 * len(text)


def test_spaced_symbols_of_long_texts_are_found_without_all_symbols() -> None:
    """Regression test: `split` held the words of all texts twice."""
    texts = ["ab c " * 20_000] * 20
    tracemalloc.start()
    try:
        assert find_spaced_symbols(texts) == texts[0] and find_spaced_symbols(["abcdef " * 9, "ab"]) == ""
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 60 * MAX_SPLIT_LENGTH
