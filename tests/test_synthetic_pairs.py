"""Pairs of spelled digits are correct, uniform, and determined by the seed."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.data.synthetic import spelled_digits
from pellucid.errors import ArgumentError

DIGIT_VALUES = {
    "zero": 0,
    "one": 1,
    "two": 2,
    "three": 3,
    "four": 4,
    "five": 5,
    "six": 6,
    "seven": 7,
    "eight": 8,
    "nine": 9,
}


@given(st.integers(0, 20), st.integers(1, 5), st.integers(0, 5), st.integers(0, 2**32 - 1))
def test_every_target_is_the_digits_its_source_spells(count: int, minimum: int, length_range: int, seed: int) -> None:
    examples = spelled_digits(count, minimum, minimum + length_range, seed)
    assert len(examples) == count
    for source, target, features in examples:
        assert target == "".join(str(DIGIT_VALUES[word]) for word in source.split(" "))
        assert minimum <= len(target) <= minimum + length_range
        assert features == ""


def test_a_seed_beyond_32_bits_is_refused() -> None:
    with pytest.raises(ArgumentError, match="seed: expected a whole number of at most 4294967295, got 4294967296"):
        spelled_digits(1, 1, 1, 2**32)


def test_the_pairs_are_a_function_of_the_seed() -> None:
    assert spelled_digits(50, 1, 8, 7) == spelled_digits(50, 1, 8, 7)
    assert spelled_digits(50, 1, 8, 7) != spelled_digits(50, 1, 8, 8)


def test_lengths_and_digits_are_uniform() -> None:
    examples = spelled_digits(20_000, 3, 7, 1)
    lengths = Counter(len(example.target) for example in examples)
    digits = Counter("".join(example.target for example in examples))
    assert sorted(lengths) == [3, 4, 5, 6, 7]
    assert sorted(digits) == list("0123456789")
    for counts in (lengths, digits):
        mean_count = sum(counts.values()) / len(counts)
        assert list(counts.values()) == pytest.approx([mean_count] * len(counts), rel=0.06)


def test_equal_limits_give_one_length() -> None:
    assert {len(example.target) for example in spelled_digits(100, 20, 20, 3)} == {20}
