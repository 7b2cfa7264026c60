"""Attention against a known alignment."""

import numpy as np
import pytest

from pellucid.evaluation.alignment import Spans, agreement
from pellucid.recipes.digits.own import word_ends

WEIGHTS = np.array([[[0.7, 0.1, 0.1, 0.1], [0.1, 0.2, 0.3, 0.4], [0.25, 0.25, 0.25, 0.25]]], np.float32)


def spans(first: list[int], stop: list[int], known: list[bool]) -> Spans:
    return Spans(np.array([first]), np.array([stop]), np.array([known]))


def test_error_counts_peaks_outside_and_mass_sums_weights_inside() -> None:
    found = agreement(WEIGHTS, spans([0, 1, 0], [2, 3, 9], [True, True, False]))
    assert found.error == 0.5
    assert found.mass == pytest.approx((0.8 + 0.5) / 2)


def test_a_span_may_reach_beyond_the_source() -> None:
    found = agreement(WEIGHTS, spans([0, 3, 0], [9, 9, 0], [True, True, False]))
    assert found.error == 0 and found.mass == pytest.approx((1 + 0.4) / 2)


def test_no_known_span_is_refused() -> None:
    with pytest.raises(ValueError, match="no symbol's span"):
        agreement(WEIGHTS, spans([0, 0, 0], [1, 1, 1], [False] * 3))


def test_words_end_behind_their_space() -> None:
    assert word_ends("317").tolist() == [6, 10, 16]
