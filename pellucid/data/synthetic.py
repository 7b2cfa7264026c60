"""Endless pairs whose right answer is known: digits spelled out, as in the lessons Pellucid began with."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from pellucid.data.examples import Example
from pellucid.files import write_text

DIGIT_WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


def spell(digits: str) -> str:
    """Digits as words: "98" is "nine eight"."""
    return " ".join(DIGIT_WORDS[int(digit)] for digit in digits)


def spelled_digits(count: int, minimum: int, maximum: int, seed: int) -> list[Example]:
    """Pairs such as ("nine eight", "98"): `minimum` to `maximum` digits each, all uniform, a function of the seed."""
    generator = np.random.default_rng(seed)
    lengths = generator.integers(minimum, maximum + 1, size=count)
    rows = generator.integers(0, 10, size=(count, maximum)).tolist()
    targets = ["".join(map(str, row[:length])) for row, length in zip(rows, lengths.tolist(), strict=True)]
    return [Example(spell(target), target) for target in targets]


def digit_spans(symbols: Sequence[str], digits: str) -> list[tuple[int, int]] | None:
    """The positions [first, stop) of each digit's word, in a source of letters or of words; None elsewhere."""
    if not digits or not digits.isascii() or not digits.isdigit():
        return None
    words = spell(digits).split()
    if list(symbols) == words:
        return [(at, at + 1) for at in range(len(words))]
    if list(symbols) != list(" ".join(words)):
        return None
    stops = np.cumsum([len(word) + 1 for word in words]) - 1
    return [(stop - len(word), stop) for word, stop in zip(words, stops.tolist(), strict=True)]


def write_pairs(path: Path, examples: Sequence[Example]) -> None:
    """Pairs such as these, whose texts hold neither tab nor line break, as TSV."""
    write_text(path, "".join(f"{example.source}\t{example.target}\n" for example in examples))
