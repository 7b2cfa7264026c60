"""Typos differ from a word in one letter, and a word list finds all corrections."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.data.synthetic import WordList, make_typos, read_words, split_words
from pellucid.errors import DataError

WORDS = ["back", "bake", "bark", "cake", "co-op", "parental", "poke", "table", "tally", "wants"]
WORD_LISTS = st.lists(st.text("abc-", min_size=2, max_size=6), min_size=1, max_size=20, unique=True)


@given(WORD_LISTS, st.integers(0, 99))
def test_a_typo_differs_in_one_letter_and_is_no_word(words: list[str], seed: int) -> None:
    known = frozenset(words)
    for typo in make_typos(words, 3, known, seed):
        differing = [
            index for index, (wrong, right) in enumerate(zip(typo.wrong, typo.right, strict=True), 1) if wrong != right
        ]
        assert differing == [typo.position] and typo.wrong not in known and typo.right in known
        assert typo.wrong[typo.position - 1].isalpha()


def test_typos_are_a_function_of_the_seed() -> None:
    assert make_typos(WORDS, 4, frozenset(WORDS), 1) == make_typos(WORDS, 4, frozenset(WORDS), 1)
    assert make_typos(WORDS, 4, frozenset(WORDS), 1) != make_typos(WORDS, 4, frozenset(WORDS), 2)
    assert [typo.right for typo in make_typos(WORDS, 2, frozenset(WORDS), 1)] == [
        word for word in WORDS for _ in range(2)
    ]


def test_positions_and_letters_are_uniform() -> None:
    typos = make_typos(["zzzz"], 10_400, frozenset(["zzzz"]), 1)
    for position in range(1, 5):
        assert sum(typo.position == position for typo in typos) == pytest.approx(2600, abs=200)
    for letter in "abcdefghijklmnopqrstuvwxy":
        assert sum(typo.wrong[typo.position - 1] == letter for typo in typos) == pytest.approx(416, abs=90)


def test_a_letter_that_makes_a_word_is_not_drawn() -> None:
    known = frozenset(["a", *(letter for letter in "bcdefghijklmnopqrstuvwxy")])
    assert {typo.wrong for typo in make_typos(["a"], 20, known, 1)} == {"z"}
    with pytest.raises(DataError, match="every form that differs from 'a' in one letter is a word of the list"):
        make_typos(["a"], 1, known | {"z"}, 1)


@given(WORD_LISTS, st.text("abc-", min_size=2, max_size=6))
def test_corrections_are_the_words_that_differ_in_one_letter(words: list[str], form: str) -> None:
    actual = {(fit.position, fit.word) for fit in WordList(words).corrections(form)}
    expected = set()
    for word in words:
        if len(word) == len(form):
            differing = [index for index, (one, two) in enumerate(zip(word, form, strict=True), 1) if one != two]
            if len(differing) == 1:
                expected.add((differing[0], word))
    assert actual == expected


def test_the_split_is_disjoint() -> None:
    parts = split_words(WORDS, 2, 3, 1)
    assert [len(part) for part in parts] == [5, 2, 3]
    assert sorted([*parts.train, *parts.validation, *parts.test]) == WORDS
    assert split_words(WORDS, 2, 3, 1) == parts != split_words(WORDS, 2, 3, 2)
    with pytest.raises(DataError, match="10 words are too few for 5 validation words, 5 test words"):
        split_words(WORDS, 5, 5, 1)


def test_only_words_in_lower_case_are_read(tmp_path: Path) -> None:
    path = tmp_path / "words"
    path.write_text("Aachen\naardvark\naardvark's\nab\nco-op\nétude\ntable\r\ntable\nelectroencephalograms\n", "utf-8")
    assert read_words(path).words == ["aardvark", "co-op", "table"]
    assert read_words(path, min_length=2, max_length=5).words == ["ab", "co-op", "table"]


def test_the_error_for_a_missing_list_says_how_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"words does not exist: .*apt-get install wamerican.*--words"):
        read_words(tmp_path / "words")
    (tmp_path / "empty").write_text("Aachen\n")
    with pytest.raises(DataError, match="empty has 0 words of 3 to 16 letters a to z"):
        read_words(tmp_path / "empty")
    (tmp_path / "latin").write_bytes(b"table\n\xe9tude\n")
    with pytest.raises(DataError, match="latin, line 2: invalid UTF-8"):
        read_words(tmp_path / "latin")
