"""training/validation_sample.py: a fixed sample of the validation set, decoded within a time limit."""

import math
from collections.abc import Sequence
from types import SimpleNamespace

import pytest

from pellucid.data.examples import Example
from pellucid.training import validation_sample
from pellucid.training.validation_sample import decode_in_time, sample_evenly, shuffled_sample

EXAMPLES = [Example(str(number), "") for number in range(10)]


def test_a_sample_is_spaced_evenly_and_shuffled_in_a_fixed_order() -> None:
    sample = shuffled_sample(range(1000), 100)
    assert sorted(sample) == list(range(0, 1000, 10)) and sample != sorted(sample)
    assert shuffled_sample(range(1000), 100) == sample and shuffled_sample(range(1000), 3) == [666, 0, 333]
    assert sorted(shuffled_sample("abc", 100)) == ["a", "b", "c"] and shuffled_sample([], 5) == []
    assert sample_evenly(range(100), 3) == [0, 33, 66] and sample_evenly("ab", 9) == ["a", "b"]
    assert sample_evenly([], 5) == sample_evenly("abc", 0) == []


@pytest.mark.parametrize(
    ("seconds", "minimum", "expected"), [(math.inf, 1, 10), (0.0, 1, 3), (0.0, 4, 6), (2.0, 1, 6), (0.0, 100, 10)]
)
def test_decoding_ends_after_the_time_but_not_before_the_minimum(
    monkeypatch: pytest.MonkeyPatch, seconds: float, minimum: int, expected: int
) -> None:
    monkeypatch.setattr(validation_sample, "BLOCK_SIZE", 3)
    monkeypatch.setattr(validation_sample, "time", SimpleNamespace(monotonic=iter(range(0, 100, 2)).__next__))

    def decode(examples: Sequence[Example]) -> list[str]:
        assert 1 <= len(examples) <= 3
        return [example.source for example in examples]

    assert decode_in_time(EXAMPLES, decode, seconds, minimum) == [example.source for example in EXAMPLES[:expected]]


@pytest.mark.parametrize(("seconds", "expected"), [(0.0, [1]), (2.0, [1, 2]), (math.inf, [1, 2, 4, 3])])
def test_few_sources_are_decoded_first(
    monkeypatch: pytest.MonkeyPatch, seconds: float, expected: Sequence[int]
) -> None:
    """Regression test: 100 long sources were decoded, however short the time."""
    monkeypatch.setattr(validation_sample, "time", SimpleNamespace(monotonic=iter(range(0, 100, 2)).__next__))
    counts = list[int]()

    def decode(examples: Sequence[Example]) -> Sequence[Example]:
        counts.append(len(examples))
        return examples

    decode_in_time(EXAMPLES, decode, seconds, 1, num_first=1)
    assert counts == expected
