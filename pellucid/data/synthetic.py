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


def write_pairs(path: Path, examples: Sequence[Example]) -> None:
    """Pairs such as these, whose texts hold neither tab nor line break, as TSV."""
    write_text(path, "".join(f"{example.source}\t{example.target}\n" for example in examples))
