"""The lessons' samples: the table to the letter, masks, kinds of numbers, and where each word stands."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.data.synthetic import (
    DIGIT_WORDS,
    NUM_OUTPUTS,
    STOP,
    SYMBOLS,
    DigitSamples,
    draw_digits,
    numbers_to_text,
    reverse_inputs,
    spell_digits,
)

SEEDS = st.integers(0, 2**32 - 1)


def drawn(count: int, minimum: int, maximum: int, seed: int = 1) -> DigitSamples:
    return draw_digits(count, minimum, maximum, np.random.default_rng(seed))


def test_the_table_is_the_lessons_own() -> None:
    stored = {"#": 10, " ": 11, "e": 12, "g": 13, "f": 14, "i": 15, "h": 16, "o": 17, "n": 18, "s": 19}
    stored |= {"r": 20, "u": 21, "t": 22, "w": 23, "v": 24, "x": 25, "z": 26} | {str(n): n for n in range(10)}
    assert {symbol: at for at, symbol in enumerate(SYMBOLS)} == stored
    assert (len(SYMBOLS), NUM_OUTPUTS, STOP) == (27, 11, 10)


@given(st.integers(1, 20), st.integers(1, 8), st.integers(0, 12), SEEDS)
def test_a_sample_is_what_it_says(count: int, minimum: int, more: int, seed: int) -> None:
    samples = drawn(count, minimum, minimum + more, seed)
    assert samples.inputs.shape == (count, samples.lengths.max())
    assert samples.targets.shape == (count, minimum + more + 1)
    for row, (source, target) in enumerate(samples.texts()):
        digits, end = target[:-1], target[-1]
        assert end == "#" and spell_digits(digits) == source and minimum <= len(digits) <= minimum + more
        assert samples.input_masks[row].sum() == len(source) and samples.target_masks[row].sum() == len(target)
        assert not samples.inputs[row, len(source) :].any() and not samples.targets[row, len(target) :].any()
        for place, digit in enumerate(digits):
            start = samples.starts[row, place]
            assert source[start:].startswith(DIGIT_WORDS[int(digit)])
        assert samples.starts[row, len(digits)] == len(source) + 1


def test_the_kinds_of_numbers_are_those_that_the_notebook_prints() -> None:
    samples = drawn(3, 1, 2)
    kinds = [getattr(samples, name).dtype for name in ("inputs", "input_masks", "targets", "target_masks")]
    assert kinds == [np.int32, np.float32, np.int32, np.float32]


def test_twenty_digits_are_as_long_as_the_lessons_say() -> None:
    lengths = drawn(5_000, 20, 20).lengths
    assert lengths.mean() == pytest.approx(99.0, abs=0.2) and lengths.std() == pytest.approx(3.47, abs=0.15)
    assert lengths.min() >= 79 and lengths.max() <= 119


def test_a_seed_gives_the_same_samples_and_another_others() -> None:
    first, again, other = drawn(9, 3, 5, 7), drawn(9, 3, 5, 7), drawn(9, 3, 5, 8)
    assert all(np.array_equal(one, two) for one, two in zip(first, again, strict=True))
    assert list(first.texts()) != list(other.texts())


def test_all_digits_and_lengths_are_as_likely() -> None:
    samples = drawn(20_000, 1, 4)
    amounts = np.bincount(samples.target_masks.sum(axis=1).astype(int) - 1, minlength=5)[1:]
    digits = np.bincount(samples.targets[:, 0], minlength=10)[:10]
    assert np.abs(amounts / 5_000 - 1).max() < 0.06 and np.abs(digits / 2_000 - 1).max() < 0.1


@pytest.mark.parametrize(("minimum", "maximum"), [(0, 3), (4, 3)])
def test_impossible_numbers_of_digits_are_refused(minimum: int, maximum: int) -> None:
    with pytest.raises(ValueError, match="expected 1 ≤ minimum ≤ maximum"):
        drawn(1, minimum, maximum)


@given(SEEDS)
def test_backwards_turns_each_input_round(seed: int) -> None:
    samples = drawn(5, 1, 6, seed)
    turned = reverse_inputs(samples)
    assert np.array_equal(turned.targets, samples.targets) and np.array_equal(turned.lengths, samples.lengths)
    for row, (length, target) in enumerate(zip(samples.lengths, samples.targets, strict=True)):
        source = numbers_to_text(turned.inputs[row, :length])
        assert source == numbers_to_text(samples.inputs[row, :length])[::-1]
        for place in range(int(samples.target_masks[row].sum()) - 1):
            start, word = turned.starts[row, place], DIGIT_WORDS[target[place]]
            assert source[max(start, 0) :].lstrip().startswith(word[::-1])
