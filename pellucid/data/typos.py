"""Words with exactly one wrong letter, from a list of real words."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from pathlib import Path
from string import ascii_lowercase
from typing import NamedTuple

import numpy as np

from pellucid.data.lines import RecordError, decoded, file_lines
from pellucid.errors import DataError, quote

WORD_LIST = Path("/usr/share/dict/words")
"""Where Debian and others keep a list of words."""
LETTERS = f"{ascii_lowercase}-"
"""What words are made of; a letter that is put in for another is one of a to z."""
VOWELS = frozenset("aeiou")


class Typo(NamedTuple):
    """A word as it was typed, where it is wrong, and what was meant."""

    wrong: str
    position: int
    """Of the wrong letter, counted from 1."""
    right: str


class Fit(NamedTuple):
    """A word that a form may have been meant as, by one other letter at a position counted from 1."""

    position: int
    word: str


class Parts(NamedTuple):
    """Words to train on, to develop on and to test on; no word is in two of them."""

    train: list[str]
    dev: list[str]
    test: list[str]


class WordList:
    """A list of words that knows, for any form, which of them are one letter away."""

    def __init__(self, words: Sequence[str]) -> None:
        """Words are kept once each, in alphabetical order."""
        self.words = sorted(set(words))
        self.known: Set[str] = frozenset(self.words)
        self._gaps: Mapping[tuple[int, str], list[str]] = defaultdict(list)
        for word in self.words:
            for gap in _gaps(word):
                self._gaps[gap].append(word)

    def fits(self, form: str) -> list[Fit]:
        """The words that differ from a form in exactly one letter, by position, then by the alphabet."""
        return [
            Fit(gap[0] + 1, word)
            for gap in _gaps(form)
            if gap in self._gaps
            for word in self._gaps[gap]
            if word != form
        ]


def read_words(path: Path, shortest: int = 3, longest: int = 16) -> WordList:
    """The words of a file, one a line, that are made of a to z and '-' and have so many letters; other lines are left.

    Names and abbreviations, which begin in upper case, are so left out. `DataError` for a missing file, with how to
    get one; for a line that is no text; where less than two words are left.
    """
    if not path.exists():
        raise DataError(
            f"{path} is not there: install a list of words (Debian: apt-get install wamerican), or give a file with "
            "one word a line with --words"
        )
    words = [word for word in _lines(path) if shortest <= len(word) <= longest and set(word) <= set(LETTERS)]
    if len(set(words)) < 2:
        raise DataError(f"{path} has {len(set(words))} words of {shortest} to {longest} letters a to z: expected more")
    return WordList(words)


def parted(words: Sequence[str], dev: int, test: int, seed: int) -> Parts:
    """Words drawn by a seed: so many to develop on, so many to test on, the others to train on.

    `DataError` where none would be left to train on.
    """
    if dev + test >= len(words):
        raise DataError(f"{len(words)} words are too few for {dev} to develop on, {test} to test on, and some to train")
    order = np.random.default_rng(seed).permutation(len(words)).tolist()
    mixed = [words[at] for at in order]
    return Parts(mixed[dev + test :], mixed[:dev], mixed[dev : dev + test])


def typos(words: Sequence[str], each: int, known: Set[str], seed: int) -> list[Typo]:
    """So many typos of each word, in the order of the words, a function of the seed.

    The position is uniform over the word; the letter put there uniform over those of a to z that are not the right
    one and do not make another word of `known`, which nobody could tell from a word spelt rightly. Where all do,
    another position is drawn. `DataError` where there is none.
    """
    generator = np.random.default_rng(seed)
    return [_typo(word, known, generator) for word in words for _ in range(each)]


def _typo(word: str, known: Set[str], generator: np.random.Generator) -> Typo:
    """A word with one letter wrong."""
    for place in [int(generator.integers(len(word))), *generator.permutation(len(word)).tolist()]:
        # The first draw is nearly always good; where it is not, drawing among the good ones leaves all equally likely.
        first = word[:place] + ascii_lowercase[generator.integers(26)] + word[place + 1 :]
        if first not in known and first != word:
            return Typo(first, place + 1, word)
        forms = [f"{word[:place]}{letter}{word[place + 1 :]}" for letter in ascii_lowercase]
        good = [form for form in forms if form not in known and form != word]
        if good:
            return Typo(good[generator.integers(len(good))], place + 1, word)
    raise DataError(f"every form one letter away from {quote(word)} is a word of the list")


def _gaps(word: str) -> Iterator[tuple[int, str]]:
    """A word without each of its letters in turn."""
    return ((place, word[:place] + word[place + 1 :]) for place in range(len(word)))


def _lines(path: Path) -> Iterator[str]:
    """The lines of a file as text, without space around them."""
    for number, line in enumerate(file_lines(path), 1):
        try:
            yield decoded(line).strip()
        except RecordError as error:
            raise DataError(f"{path}, line {number}: {error}") from error
