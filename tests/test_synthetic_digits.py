"""Arrays of spelled digits have the right symbols, masks, types and word positions."""

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


def draw_samples(count: int, minimum: int, maximum: int, seed: int = 1) -> DigitSamples:
    return draw_digits(count, minimum, maximum, np.random.default_rng(seed))


def test_the_symbols_are_those_of_the_lesson() -> None:
    expected_ids = {"#": 10, " ": 11, "e": 12, "g": 13, "f": 14, "i": 15, "h": 16, "o": 17, "n": 18, "s": 19}
    expected_ids |= {"r": 20, "u": 21, "t": 22, "w": 23, "v": 24, "x": 25, "z": 26} | {str(n): n for n in range(10)}
    assert {symbol: index for index, symbol in enumerate(SYMBOLS)} == expected_ids
    assert (len(SYMBOLS), NUM_OUTPUTS, STOP) == (27, 11, 10)


@given(st.integers(1, 20), st.integers(1, 8), st.integers(0, 12), SEEDS)
def test_a_sample_matches_its_text(count: int, minimum: int, length_range: int, seed: int) -> None:
    samples = draw_samples(count, minimum, minimum + length_range, seed)
    assert samples.inputs.shape == (count, samples.lengths.max())
    assert samples.targets.shape == (count, minimum + length_range + 1)
    for row, (source, target) in enumerate(samples.texts()):
        digits, end = target[:-1], target[-1]
        assert end == "#" and spell_digits(digits) == source and minimum <= len(digits) <= minimum + length_range
        assert samples.input_masks[row].sum() == len(source) and samples.target_masks[row].sum() == len(target)
        assert not samples.inputs[row, len(source) :].any() and not samples.targets[row, len(target) :].any()
        for position, digit in enumerate(digits):
            start = samples.starts[row, position]
            assert source[start:].startswith(DIGIT_WORDS[int(digit)])
        assert samples.starts[row, len(digits)] == len(source) + 1


def test_the_types_equal_those_of_the_notebook() -> None:
    samples = draw_samples(3, 1, 2)
    dtypes = [getattr(samples, name).dtype for name in ("inputs", "input_masks", "targets", "target_masks")]
    assert dtypes == [np.int32, np.float32, np.int32, np.float32]


def test_twenty_digits_have_the_length_of_the_lesson() -> None:
    lengths = draw_samples(5_000, 20, 20).lengths
    assert lengths.mean() == pytest.approx(99.0, abs=0.2) and lengths.std() == pytest.approx(3.47, abs=0.15)
    assert lengths.min() >= 79 and lengths.max() <= 119


def test_samples_are_a_function_of_the_seed() -> None:
    first, again, other = draw_samples(9, 3, 5, 7), draw_samples(9, 3, 5, 7), draw_samples(9, 3, 5, 8)
    assert all(np.array_equal(one, two) for one, two in zip(first, again, strict=True))
    assert list(first.texts()) != list(other.texts())


def test_digits_and_lengths_are_uniform() -> None:
    samples = draw_samples(20_000, 1, 4)
    length_counts = np.bincount(samples.target_masks.sum(axis=1).astype(int) - 1, minlength=5)[1:]
    digits = np.bincount(samples.targets[:, 0], minlength=10)[:10]
    assert np.abs(length_counts / 5_000 - 1).max() < 0.06 and np.abs(digits / 2_000 - 1).max() < 0.1


@pytest.mark.parametrize(("minimum", "maximum"), [(0, 3), (4, 3)])
def test_invalid_numbers_of_digits_are_refused(minimum: int, maximum: int) -> None:
    with pytest.raises(ValueError, match="expected 1 ≤ minimum ≤ maximum"):
        draw_samples(1, minimum, maximum)


@given(SEEDS)
def test_reverse_inputs_reverses_each_input(seed: int) -> None:
    samples = draw_samples(5, 1, 6, seed)
    reversed_samples = reverse_inputs(samples)
    assert np.array_equal(reversed_samples.targets, samples.targets) and np.array_equal(
        reversed_samples.lengths, samples.lengths
    )
    for row, (length, target) in enumerate(zip(samples.lengths, samples.targets, strict=True)):
        source = numbers_to_text(reversed_samples.inputs[row, :length])
        assert source == numbers_to_text(samples.inputs[row, :length])[::-1]
        for position in range(int(samples.target_masks[row].sum()) - 1):
            start, word = reversed_samples.starts[row, position], DIGIT_WORDS[target[position]]
            assert source[max(start, 0) :].lstrip().startswith(word[::-1])
