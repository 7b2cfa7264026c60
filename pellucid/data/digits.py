"""Spelled digits as arrays, the way the lessons of 2015 and 2016 drew them: one table of 27 symbols for both sides.

N samples, S input positions, T target positions. Inputs and targets are padded with 0, which is also the digit 0; the
masks tell them apart.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from pellucid.data.synthetic import DIGIT_WORDS

SYMBOLS = "0123456789# egfihonsrutwvxz"
"""Symbol i has the number i: ten digits, the end of a target, the space, and the letters in the order a set gave."""
OUTPUTS = 11
"""The numbers that occur in targets: digits and the end."""
STOP = SYMBOLS.index("#")
_WIDEST = max(map(len, DIGIT_WORDS)) + 1
WORD_SIZES = np.array([len(word) + 1 for word in DIGIT_WORDS])
"""Letters of each word, and the space behind it."""
_SPELLED = np.array([[SYMBOLS.index(symbol) for symbol in word.ljust(_WIDEST)] for word in DIGIT_WORDS], np.int32)


class Digits(NamedTuple):
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
            yield text_of(row[:length]), text_of(target[: int(mask.sum())])


def text_of(numbers: Int[np.ndarray, " L"]) -> str:
    """The symbols with these numbers."""
    return "".join(SYMBOLS[number] for number in numbers)


def draw(count: int, minimum: int, maximum: int, generator: np.random.Generator) -> Digits:
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
    inputs = _spelled(digits, starts, lengths)
    targets = np.concatenate([np.where(inside[:, :-1], digits, 0), np.zeros((count, 1), np.int64)], axis=1)
    targets[np.arange(count), amounts] = STOP
    written = np.arange(maximum + 1) <= amounts[:, None]
    return Digits(
        inputs=inputs,
        input_masks=(np.arange(inputs.shape[1]) < lengths[:, None]).astype(np.float32),
        targets=targets.astype(np.int32),
        target_masks=written.astype(np.float32),
        starts=starts,
    )


def backwards(samples: Digits) -> Digits:
    """The same samples, each input read from its last letter to its first; the targets stay."""
    lengths = samples.lengths[:, None]
    mirrored = lengths - 1 - np.arange(samples.inputs.shape[1])
    inputs = np.take_along_axis(samples.inputs, np.maximum(mirrored, 0), axis=1)
    inputs[mirrored < 0] = 0
    # A word that ended before the space at stop − 1 now begins behind it.
    starts = lengths + 1 - np.concatenate([samples.starts[:, 1:], samples.starts[:, -1:]], axis=1)
    return samples._replace(inputs=inputs, starts=starts)


def _spelled(
    digits: Int[np.ndarray, "N D"], starts: Int[np.ndarray, "N T"], lengths: Int[np.ndarray, " N"]
) -> Int[np.ndarray, "N S"]:
    """The words' letters in their places, a space between words, zeros behind the last."""
    count, width = len(digits), int(lengths.max())
    # A short word writes spaces too far, and the next word writes over them.
    room = np.zeros((count, width + _WIDEST), np.int32)
    rows = np.arange(count)[:, None]
    for place in range(digits.shape[1]):
        columns = starts[:, place, None] + np.arange(_WIDEST)
        room[rows, np.minimum(columns, width + _WIDEST - 1)] = _SPELLED[digits[:, place]]
    inputs = room[:, :width]
    inputs[np.arange(width) >= lengths[:, None]] = 0
    return inputs
