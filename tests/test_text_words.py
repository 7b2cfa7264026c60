"""data/text_words.py: the words of running text, by the word boundaries of Unicode or by a pattern."""

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from pellucid.data import text_words
from pellucid.data.text_words import WordRule
from pellucid.errors import ArgumentError, ConfigError


def words_of(text: str, pattern: str | None = None) -> list[str]:
    """Return the words of a text."""
    return [text[start:end] for start, end in WordRule(pattern).find(text)]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Don't stop, it's 3.14!", ["Don't", "stop", "it's"]),
        ("a well-known e-mail", ["a", "well", "known", "e", "mail"]),
        ("l’homme du café", ["l’homme", "du", "café"]),
        ("cafe\u0301 u\u0308ber", ["cafe\u0301", "u\u0308ber"]),
        ("मैंने हिन्दी में", ["मैंने", "हिन्दी", "में"]),
        ("3rd, 1066: no-one", ["3rd", "no", "one"]),
        ("שלום עולם", ["שלום", "עולם"]),
        ("", []),
        (" \t.,!?\r\n", []),
    ],
)
def test_unicode_words(text: str, words: list[str]) -> None:
    assert words_of(text) == words


def test_a_pattern_finds_its_matches_and_ignores_empty_ones() -> None:
    assert words_of("in 1066 and 12", "[0-9]+") == ["1066", "12"]
    assert words_of("abc 12", "[0-9]*") == ["12"]
    assert words_of("don't-stop it", r"\S+") == ["don't-stop", "it"]


@given(st.text(max_size=40))
def test_words_are_in_order_and_every_letter_is_in_a_word(text: str) -> None:
    spans = WordRule().find(text)
    ends = [0, *(end for _, end in spans)]
    assert all(end <= start for end, start in zip(ends, (start for start, _ in spans), strict=False))
    assert all(regex.search(r"\p{Alphabetic}", text[start:end]) for start, end in spans)
    between = [text[end:start] for end, start in zip(ends, [*(start for start, _ in spans), len(text)], strict=True)]
    assert not any(regex.search(r"\p{Alphabetic}", part) for part in between)


def test_an_invalid_pattern_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match=r"the word pattern '\(a' is not a regular expression: missing \)"):
        WordRule("(a")


@pytest.mark.parametrize("pattern", [r"(?r)\w+", r"(?r:b)a"])
def test_matches_from_right_to_left_are_refused(pattern: str) -> None:
    """Regression test: the words of (?r) came from right to left, and their outputs were written in this order."""
    with pytest.raises(ConfigError, match="has the flag r, with which matches come from right to left"):
        WordRule(pattern)


@pytest.mark.parametrize("pattern", [r"(?=(a\Kb))", r"(?<=(\Ka)b)c?", r"(?<=\Ka.*)b"])
def test_matches_that_overlap_are_refused(pattern: str) -> None:
    """Regression test: with some of these patterns, the package finds the same match without end."""
    with pytest.raises(ConfigError, match="overlap: use a pattern without"):
        WordRule(pattern).find("ababc aabbb", 20)


@pytest.mark.parametrize("pattern", [5, b"x", ["x"]])
def test_a_pattern_is_a_string(pattern: object) -> None:
    with pytest.raises(ArgumentError, match="pattern: expected a string"):
        WordRule(pattern)  # type: ignore[arg-type]


def test_a_pattern_that_takes_exponential_time_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_words, "MATCH_SECONDS", 0.05)
    with pytest.raises(ConfigError, match=r"took longer than 0\.05 seconds: use a pattern"):
        WordRule(r"(?:\w+\w+\w+)+\d$").find("a" * 200 + "!")
