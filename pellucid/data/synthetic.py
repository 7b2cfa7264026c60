"""Synthetic data sets with known answers: spelled-out digits, and words with one wrong letter.

N samples, S source positions, T target positions, L symbols of a text.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from pathlib import Path
from string import ascii_lowercase
from typing import Annotated, NamedTuple

import numpy as np
from msgspec import Meta

from pellucid.argument_checks import argument_error, check_arguments
from pellucid.config.settings import Seed
from pellucid.data.examples import Example
from pellucid.data.lines import RecordError, decode_line, read_lines
from pellucid.errors import DataError, quote
from pellucid.files import write_text
from pellucid.shapes import Float, Int

DIGIT_WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


PairCount = Annotated[int, Meta(ge=0, le=2**24)]
DigitCount = Annotated[int, Meta(ge=1, le=10_000)]
"""Number of digits of a pair."""
WordCount = Annotated[int, Meta(ge=0, le=2**24)]


@check_arguments
def spell_digits(digits: str) -> str:
    """Return digits as words: "98" becomes "nine eight".

    Args:
        digits: Decimal digits.
    """
    if digits and not (digits.isascii() and digits.isdigit()):
        raise argument_error("digits", "decimal digits", digits)
    return " ".join(DIGIT_WORDS[int(digit)] for digit in digits)


@check_arguments
def spelled_digits(count: PairCount, minimum: DigitCount, maximum: DigitCount, seed: Seed) -> list[Example]:
    """Return pairs such as ("nine eight", "98") with uniformly distributed lengths and digits.

    Args:
        count: Number of pairs.
        minimum: Minimum number of digits of a pair.
        maximum: Maximum number of digits of a pair, included.
        seed: Seed, which determines the pairs.
    """
    if minimum > maximum:
        raise argument_error("minimum", f"at most maximum ({maximum})", minimum)
    generator = np.random.default_rng(seed)
    lengths = generator.integers(minimum, maximum + 1, size=count)
    rows = generator.integers(0, 10, size=(count, maximum)).tolist()
    targets = ["".join(map(str, row[:length])) for row, length in zip(rows, lengths.tolist(), strict=True)]
    return [Example(spell_digits(target), target) for target in targets]


@check_arguments
def digit_spans(symbols: Sequence[str], digits: str) -> list[tuple[int, int]] | None:
    """Return the source positions [first, stop) of the word of each digit.

    Args:
        symbols: Source symbols: characters or words.
        digits: The digits.

    Returns:
        One span for each digit; None if there is no digit, or the source does not spell exactly these digits.
    """
    if not digits or not digits.isascii() or not digits.isdigit():
        return None
    words = spell_digits(digits).split()
    if list(symbols) == words:
        return [(index, index + 1) for index in range(len(words))]
    if list(symbols) != list(" ".join(words)):
        return None
    stops = np.cumsum([len(word) + 1 for word in words]) - 1
    return [(stop - len(word), stop) for word, stop in zip(words, stops.tolist(), strict=True)]


@check_arguments
def write_pairs(path: str | Path, examples: Sequence[Example]) -> None:
    """Write source and target of pairs as TSV, atomically. Their texts must contain no tab and no line break.

    Args:
        path: The file.
        examples: The pairs; features are not written.

    Raises:
        RunError: The file cannot be written.
    """
    path = Path(path)
    write_text(path, "".join(f"{example.source}\t{example.target}\n" for example in examples))


SYMBOLS = "0123456789# egfihonsrutwvxz"
"""Symbol i has number i: ten digits, the end of a target, the space, and the letters in the order of a Python set."""
NUM_OUTPUTS = 11
"""Number of target symbols: the digits and the end."""
STOP = SYMBOLS.index("#")
_MAX_WORD_SIZE = max(map(len, DIGIT_WORDS)) + 1
WORD_SIZES = np.array([len(word) + 1 for word in DIGIT_WORDS])
"""Length of each word, including the space after it."""
_WORD_NUMBERS = np.array(
    [[SYMBOLS.index(symbol) for symbol in word.ljust(_MAX_WORD_SIZE)] for word in DIGIT_WORDS], np.int32
)


class DigitSamples(NamedTuple):
    """N samples of spelled-out digits as arrays of S input and T target positions.

    Symbols are numbers of `SYMBOLS`, 0 beyond the end; a target ends with `STOP`. A mask is 1 at each symbol, including
    the end of a target, and 0 beyond.
    """

    inputs: Int[np.ndarray, "N S"]
    input_masks: Float[np.ndarray, "N S"]
    targets: Int[np.ndarray, "N T"]
    target_masks: Float[np.ndarray, "N T"]
    starts: Int[np.ndarray, "N T"]
    """Position at which the word of each digit begins in the input; after the last digit, the position after the input.
    """

    @property
    def lengths(self) -> Int[np.ndarray, " N"]:
        """Number of symbols of each input."""
        lengths: np.ndarray = self.input_masks.sum(axis=1).astype(np.int64)
        return lengths

    def texts(self) -> Iterator[tuple[str, str]]:
        """Yield each sample as text: ("nine eight", "98#")."""
        for row, target, length, mask in zip(self.inputs, self.targets, self.lengths, self.target_masks, strict=True):
            yield numbers_to_text(row[:length]), numbers_to_text(target[: int(mask.sum())])


def numbers_to_text(numbers: Int[np.ndarray, " L"]) -> str:
    """Return the symbols with these numbers.

    Args:
        numbers: Numbers of symbols in `SYMBOLS`.
    """
    return "".join(SYMBOLS[number] for number in numbers)


def draw_digits(count: int, minimum: int, maximum: int, generator: np.random.Generator) -> DigitSamples:
    """Draw samples with uniformly distributed lengths and digits.

    Args:
        count: Number of samples, N.
        minimum: Minimum number of digits.
        maximum: Maximum number of digits, included.
        generator: Random generator.

    Returns:
        The samples; S is the length of the longest input, T is maximum + 1.

    Raises:
        ValueError: Not 1 ≤ minimum ≤ maximum.
    """
    if not 1 <= minimum <= maximum:
        raise ValueError(f"expected 1 ≤ minimum ≤ maximum, got {minimum} and {maximum}")
    digits = generator.integers(0, 10, size=(count, maximum))
    num_digits = generator.integers(minimum, maximum + 1, size=count)
    is_digit = np.arange(maximum + 1) < num_digits[:, None]
    sizes = np.where(is_digit[:, :-1], WORD_SIZES[digits], 0)
    starts = np.concatenate([np.zeros((count, 1), np.int64), sizes.cumsum(axis=1)], axis=1)
    lengths = starts[:, -1] - 1
    inputs = _spell_rows(digits, starts, lengths)
    targets = np.concatenate([np.where(is_digit[:, :-1], digits, 0), np.zeros((count, 1), np.int64)], axis=1)
    targets[np.arange(count), num_digits] = STOP
    is_output = np.arange(maximum + 1) <= num_digits[:, None]
    return DigitSamples(
        inputs=inputs,
        input_masks=(np.arange(inputs.shape[1]) < lengths[:, None]).astype(np.float32),
        targets=targets.astype(np.int32),
        target_masks=is_output.astype(np.float32),
        starts=starts,
    )


def reverse_inputs(samples: DigitSamples) -> DigitSamples:
    """Return samples with reversed inputs and unchanged targets; `starts` are those of the reversed words.

    Args:
        samples: The samples.
    """
    lengths = samples.lengths[:, None]
    reversed_positions = lengths - 1 - np.arange(samples.inputs.shape[1])
    inputs = np.take_along_axis(samples.inputs, np.maximum(reversed_positions, 0), axis=1)
    inputs[reversed_positions < 0] = 0
    # A word that ended before the space at stop − 1 now begins after it.
    starts = lengths + 1 - np.concatenate([samples.starts[:, 1:], samples.starts[:, -1:]], axis=1)
    return samples._replace(inputs=inputs, starts=starts)


def _spell_rows(
    digits: Int[np.ndarray, "N D"], starts: Int[np.ndarray, "N T"], lengths: Int[np.ndarray, " N"]
) -> Int[np.ndarray, "N S"]:
    """Return the letters of the words of each row, with a space between words and zeros after the last."""
    count = len(digits)
    width = int(lengths.max())
    # Words are padded with spaces to equal length; the next word overwrites the padding.
    padded = np.zeros((count, width + _MAX_WORD_SIZE), np.int32)
    rows = np.arange(count)[:, None]
    for index in range(digits.shape[1]):
        columns = starts[:, index, None] + np.arange(_MAX_WORD_SIZE)
        padded[rows, np.minimum(columns, width + _MAX_WORD_SIZE - 1)] = _WORD_NUMBERS[digits[:, index]]
    inputs = padded[:, :width]
    inputs[np.arange(width) >= lengths[:, None]] = 0
    return inputs


WORD_LIST = Path("/usr/share/dict/words")
"""Word list of Debian and other systems."""
LETTERS = f"{ascii_lowercase}-"
"""Letters of words; a wrong letter is one of a to z."""
VOWELS = frozenset("aeiou")


class Typo(NamedTuple):
    """A misspelled word, the position of the wrong letter, and the correct word."""

    wrong: str
    position: int
    """Position of the wrong letter, from 1."""
    right: str


class Correction(NamedTuple):
    """A word that differs from a given form in one letter."""

    position: int
    """Position of that letter, from 1."""
    word: str


class WordSplit(NamedTuple):
    """Disjoint words for training, validation and test."""

    train: list[str]
    validation: list[str]
    test: list[str]


class WordList:
    """Word list with an index of the words that differ in one letter."""

    def __init__(self, words: Sequence[str]) -> None:
        """Index distinct words in alphabetical order.

        Args:
            words: The words; duplicates are dropped.
        """
        self.words = sorted(set(words))
        """The distinct words in alphabetical order."""
        self.known: Set[str] = frozenset(self.words)
        """The words as a set."""
        self._gaps: Mapping[tuple[int, str], list[str]] = defaultdict(list)
        for word in self.words:
            for gap in _deletions(word):
                self._gaps[gap].append(word)

    def corrections(self, form: str) -> list[Correction]:
        """Return the words that differ from a form in exactly one letter, by position and then alphabetically.

        Args:
            form: The form, usually a typo.
        """
        return [
            Correction(gap[0] + 1, word)
            for gap in _deletions(form)
            if gap in self._gaps
            for word in self._gaps[gap]
            if word != form
        ]


@check_arguments
def read_words(path: str | Path, min_length: WordCount = 3, max_length: WordCount = 16) -> WordList:
    """Read the words of a file with one word per line.

    Words of other lengths, or with other characters than a to z and "-", are skipped, such as names and abbreviations,
    which contain capitals.

    Args:
        path: The file.
        min_length: Minimum length of a word, 3 by default.
        max_length: Maximum length of a word, 16 by default.

    Raises:
        DataError: The file is missing, unreadable or no text, or it contains fewer than two different such words.
    """
    path = Path(path)
    if not path.exists():
        raise DataError(
            f"{path} does not exist: install a word list (Debian: apt-get install wamerican), or give a file with "
            "one word per line with --words"
        )
    words = [
        word for word in _read_text_lines(path) if min_length <= len(word) <= max_length and set(word) <= set(LETTERS)
    ]
    if len(set(words)) < 2:
        raise DataError(
            f"{path} has {len(set(words))} words of {min_length} to {max_length} letters a to z: expected at least 2"
        )
    return WordList(words)


@check_arguments
def split_words(words: Sequence[str], validation: WordCount, test: WordCount, seed: Seed) -> WordSplit:
    """Split words at random into training, validation and test words.

    Args:
        words: The words, which should be distinct.
        validation: Number of validation words.
        test: Number of test words.
        seed: Seed of the split.

    Raises:
        DataError: No word would remain for training.
    """
    if validation + test >= len(words):
        raise DataError(
            f"{len(words)} words are too few for {validation} validation words, {test} test words and some training "
            "words"
        )
    order = np.random.default_rng(seed).permutation(len(words)).tolist()
    shuffled = [words[index] for index in order]
    return WordSplit(shuffled[validation + test :], shuffled[:validation], shuffled[validation : validation + test])


def make_typos(words: Sequence[str], per_word: int, known: Set[str], seed: int) -> list[Typo]:
    """Return typos of words: one wrong letter at a random position.

    The position is uniform over the word. The letter is uniform over a to z, except the correct letter and those that
    give another word, which would not be recognizable as a typo. If no letter remains, another position is drawn.

    Args:
        words: The words.
        per_word: Number of typos of each word.
        known: Words that a typo must not equal.
        seed: Seed, which determines the typos.

    Returns:
        The typos, in the order of the words; those of a word may repeat.

    Raises:
        DataError: Every form of a word that differs in one letter is a known word.
    """
    generator = np.random.default_rng(seed)
    return [_make_typo(word, known, generator) for word in words for _ in range(per_word)]


def _make_typo(word: str, known: Set[str], generator: np.random.Generator) -> Typo:
    """Return a word with one wrong letter."""
    for position in [int(generator.integers(len(word))), *generator.permutation(len(word)).tolist()]:
        # The first draw is nearly always valid. If not, a draw among the valid letters keeps them equally probable.
        candidate = word[:position] + ascii_lowercase[generator.integers(26)] + word[position + 1 :]
        if candidate not in known and candidate != word:
            return Typo(candidate, position + 1, word)
        forms = [f"{word[:position]}{letter}{word[position + 1 :]}" for letter in ascii_lowercase]
        valid = [form for form in forms if form not in known and form != word]
        if valid:
            return Typo(valid[generator.integers(len(valid))], position + 1, word)
    raise DataError(f"every form that differs from {quote(word)} in one letter is a word of the list")


def _deletions(word: str) -> Iterator[tuple[int, str]]:
    """Yield each position of a word, with the word without that letter."""
    return ((position, word[:position] + word[position + 1 :]) for position in range(len(word)))


def _read_text_lines(path: Path) -> Iterator[str]:
    """Yield the lines of a file as text, stripped."""
    for number, line in enumerate(read_lines(path), 1):
        try:
            yield decode_line(line).strip()
        except RecordError as error:
            raise DataError(f"{path}, line {number}: {error}") from error
