"""Synthetic data: endless pairs with known answers, spelled digits, words with one wrong letter."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from pathlib import Path
from string import ascii_lowercase
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from pellucid.data.examples import Example
from pellucid.data.lines import RecordError, decode_line, read_lines
from pellucid.errors import DataError, quote
from pellucid.files import write_text

DIGIT_WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


def spell_digits(digits: str) -> str:
    """Digits as words: "98" is "nine eight"."""
    return " ".join(DIGIT_WORDS[int(digit)] for digit in digits)


def spelled_digits(count: int, minimum: int, maximum: int, seed: int) -> list[Example]:
    """Pairs such as ("nine eight", "98"): `minimum` to `maximum` digits each, all uniform, a function of the seed."""
    generator = np.random.default_rng(seed)
    lengths = generator.integers(minimum, maximum + 1, size=count)
    rows = generator.integers(0, 10, size=(count, maximum)).tolist()
    targets = ["".join(map(str, row[:length])) for row, length in zip(rows, lengths.tolist(), strict=True)]
    return [Example(spell_digits(target), target) for target in targets]


def digit_spans(symbols: Sequence[str], digits: str) -> list[tuple[int, int]] | None:
    """The positions [first, stop) of each digit's word, in a source of letters or of words; None elsewhere."""
    if not digits or not digits.isascii() or not digits.isdigit():
        return None
    words = spell_digits(digits).split()
    if list(symbols) == words:
        return [(at, at + 1) for at in range(len(words))]
    if list(symbols) != list(" ".join(words)):
        return None
    stops = np.cumsum([len(word) + 1 for word in words]) - 1
    return [(stop - len(word), stop) for word, stop in zip(words, stops.tolist(), strict=True)]


def write_pairs(path: Path, examples: Sequence[Example]) -> None:
    """Pairs such as these, whose texts hold neither tab nor line break, as TSV."""
    write_text(path, "".join(f"{example.source}\t{example.target}\n" for example in examples))


SYMBOLS = "0123456789# egfihonsrutwvxz"
"""Symbol i has the number i: ten digits, the end of a target, the space, and the letters in the order a set gave."""
NUM_OUTPUTS = 11
"""The numbers that occur in targets: digits and the end."""
STOP = SYMBOLS.index("#")
_MAX_WORD_SIZE = max(map(len, DIGIT_WORDS)) + 1
WORD_SIZES = np.array([len(word) + 1 for word in DIGIT_WORDS])
"""Letters of each word, and the space behind it."""
_WORD_NUMBERS = np.array(
    [[SYMBOLS.index(symbol) for symbol in word.ljust(_MAX_WORD_SIZE)] for word in DIGIT_WORDS], np.int32
)


class DigitSamples(NamedTuple):
    """Samples side by side; a mask is 1 where a symbol stands, the end of a target included."""

    inputs: Int[np.ndarray, "N S"]
    input_masks: Float[np.ndarray, "N S"]
    targets: Int[np.ndarray, "N T"]
    target_masks: Float[np.ndarray, "N T"]
    starts: Int[np.ndarray, "N T"]
    """Where the word of each digit begins in its input; behind the last digit, where the input ends."""

    @property
    def lengths(self) -> Int[np.ndarray, " N"]:
        """Symbols of each input."""
        lengths: np.ndarray = self.input_masks.sum(axis=1).astype(np.int64)
        return lengths

    def texts(self) -> Iterator[tuple[str, str]]:
        """Each sample as text: ("nine eight", "98#")."""
        for row, target, length, mask in zip(self.inputs, self.targets, self.lengths, self.target_masks, strict=True):
            yield numbers_to_text(row[:length]), numbers_to_text(target[: int(mask.sum())])


def numbers_to_text(numbers: Int[np.ndarray, " L"]) -> str:
    """The symbols with these numbers."""
    return "".join(SYMBOLS[number] for number in numbers)


def draw_digits(count: int, minimum: int, maximum: int, generator: np.random.Generator) -> DigitSamples:
    """Samples of `minimum` to `maximum` digits, lengths and digits uniform.

    Inputs are as wide as the longest of them, targets maximum + 1. `ValueError` unless 1 ≤ minimum ≤ maximum.
    """
    if not 1 <= minimum <= maximum:
        raise ValueError(f"expected 1 ≤ minimum ≤ maximum, got {minimum} and {maximum}")
    digits = generator.integers(0, 10, size=(count, maximum))
    amounts = generator.integers(minimum, maximum + 1, size=count)
    inside = np.arange(maximum + 1) < amounts[:, None]
    sizes = np.where(inside[:, :-1], WORD_SIZES[digits], 0)
    starts = np.concatenate([np.zeros((count, 1), np.int64), sizes.cumsum(axis=1)], axis=1)
    lengths = starts[:, -1] - 1
    inputs = _spell_rows(digits, starts, lengths)
    targets = np.concatenate([np.where(inside[:, :-1], digits, 0), np.zeros((count, 1), np.int64)], axis=1)
    targets[np.arange(count), amounts] = STOP
    written = np.arange(maximum + 1) <= amounts[:, None]
    return DigitSamples(
        inputs=inputs,
        input_masks=(np.arange(inputs.shape[1]) < lengths[:, None]).astype(np.float32),
        targets=targets.astype(np.int32),
        target_masks=written.astype(np.float32),
        starts=starts,
    )


def reverse_inputs(samples: DigitSamples) -> DigitSamples:
    """The same samples, each input read from its last letter to its first; the targets stay."""
    lengths = samples.lengths[:, None]
    mirrored = lengths - 1 - np.arange(samples.inputs.shape[1])
    inputs = np.take_along_axis(samples.inputs, np.maximum(mirrored, 0), axis=1)
    inputs[mirrored < 0] = 0
    # A word that ended before the space at stop − 1 now begins behind it.
    starts = lengths + 1 - np.concatenate([samples.starts[:, 1:], samples.starts[:, -1:]], axis=1)
    return samples._replace(inputs=inputs, starts=starts)


def _spell_rows(
    digits: Int[np.ndarray, "N D"], starts: Int[np.ndarray, "N T"], lengths: Int[np.ndarray, " N"]
) -> Int[np.ndarray, "N S"]:
    """The words' letters in their places, a space between words, zeros behind the last."""
    count, width = len(digits), int(lengths.max())
    # A short word writes spaces too far, and the next word writes over them.
    room = np.zeros((count, width + _MAX_WORD_SIZE), np.int32)
    rows = np.arange(count)[:, None]
    for place in range(digits.shape[1]):
        columns = starts[:, place, None] + np.arange(_MAX_WORD_SIZE)
        room[rows, np.minimum(columns, width + _MAX_WORD_SIZE - 1)] = _WORD_NUMBERS[digits[:, place]]
    inputs = room[:, :width]
    inputs[np.arange(width) >= lengths[:, None]] = 0
    return inputs


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


class Correction(NamedTuple):
    """A word that a form may have been meant as, by one other letter at a position counted from 1."""

    position: int
    word: str


class WordSplit(NamedTuple):
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
            for gap in _deletions(word):
                self._gaps[gap].append(word)

    def corrections(self, form: str) -> list[Correction]:
        """The words that differ from a form in exactly one letter, by position, then by the alphabet."""
        return [
            Correction(gap[0] + 1, word)
            for gap in _deletions(form)
            if gap in self._gaps
            for word in self._gaps[gap]
            if word != form
        ]


def read_words(path: Path, min_length: int = 3, max_length: int = 16) -> WordList:
    """The words of a file, one a line, that are made of a to z and '-' and have so many letters; other lines are left.

    Names and abbreviations, which begin in upper case, are so left out. `DataError` for a missing file, with how to
    get one; for a line that is no text; where less than two words are left.
    """
    if not path.exists():
        raise DataError(
            f"{path} is not there: install a list of words (Debian: apt-get install wamerican), or give a file with "
            "one word a line with --words"
        )
    words = [
        word for word in _read_text_lines(path) if min_length <= len(word) <= max_length and set(word) <= set(LETTERS)
    ]
    if len(set(words)) < 2:
        raise DataError(
            f"{path} has {len(set(words))} words of {min_length} to {max_length} letters a to z: expected more"
        )
    return WordList(words)


def split_words(words: Sequence[str], dev: int, test: int, seed: int) -> WordSplit:
    """Words drawn by a seed: so many to develop on, so many to test on, the others to train on.

    `DataError` where none would be left to train on.
    """
    if dev + test >= len(words):
        raise DataError(f"{len(words)} words are too few for {dev} to develop on, {test} to test on, and some to train")
    order = np.random.default_rng(seed).permutation(len(words)).tolist()
    mixed = [words[at] for at in order]
    return WordSplit(mixed[dev + test :], mixed[:dev], mixed[dev : dev + test])


def make_typos(words: Sequence[str], each: int, known: Set[str], seed: int) -> list[Typo]:
    """So many typos of each word, in the order of the words, a function of the seed.

    The position is uniform over the word; the letter put there uniform over those of a to z that are not the right
    one and do not make another word of `known`, which nobody could tell from a word spelt rightly. Where all do,
    another position is drawn. `DataError` where there is none.
    """
    generator = np.random.default_rng(seed)
    return [_make_typo(word, known, generator) for word in words for _ in range(each)]


def _make_typo(word: str, known: Set[str], generator: np.random.Generator) -> Typo:
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


def _deletions(word: str) -> Iterator[tuple[int, str]]:
    """A word without each of its letters in turn."""
    return ((place, word[:place] + word[place + 1 :]) for place in range(len(word)))


def _read_text_lines(path: Path) -> Iterator[str]:
    """The lines of a file as text, without space around them."""
    for number, line in enumerate(read_lines(path), 1):
        try:
            yield decode_line(line).strip()
        except RecordError as error:
            raise DataError(f"{path}, line {number}: {error}") from error
