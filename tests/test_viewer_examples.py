"""Spelled digits have a gold alignment, and the page has the names of the Python interface."""

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sample_traces import make_trace

from pellucid.data.examples import Example
from pellucid.data.synthetic import digit_spans, spell_digits
from pellucid.decoding.trace import END
from pellucid.inspection.attribution import Attribution
from pellucid.viewer.examples import (
    are_spelled_digits,
    attribution_arrays,
    gold_alignment,
    page_alignment,
    page_trace_without_model,
)


@given(st.text("0123456789", min_size=1, max_size=12))
def test_gold_spans_contain_the_words_of_the_digits(digits: str) -> None:
    text = spell_digits(digits)
    letters, words = digit_spans(list(text), digits), digit_spans(text.split(), digits)
    assert letters is not None and [text[first:stop] for first, stop in letters] == text.split()
    assert words == [(index, index + 1) for index in range(len(digits))]


@pytest.mark.parametrize(("source", "digits"), [("one two", "13"), ("one", ""), ("one", "x"), ("one ", "1"), ("", "²")])
def test_sources_that_do_not_spell_the_digits_have_no_gold_alignment(source: str, digits: str) -> None:
    assert digit_spans(list(source), digits) is None


def test_file_has_spelled_digits_if_every_pair_has() -> None:
    assert are_spelled_digits([Example("one two", "12"), Example("six", "6")])
    assert not are_spelled_digits([Example("one two", "12"), Example("sex", "6")]) and not are_spelled_digits([])


def test_wrong_symbol_has_the_positions_of_the_expected_one() -> None:
    trace = make_trace("one two", [*"13", END], [[0.0] * 7] * 3)
    assert gold_alignment(trace, ["1", "3"], ["1", "2"]) == [(0, 3), (4, 7), (0, 0)]
    assert gold_alignment(trace, ["2"], ["1", "2"]) == [(4, 7), (0, 0), (0, 0)]
    assert gold_alignment(trace, ["1", "3"], ["12"]) is None


def test_the_alignment_of_the_page_has_positions_with_features_and_no_end() -> None:
    weights = [[0.0, 0.9, 0.1], [0.0, 0.1, 0.9], [1.0, 0.0, 0.0]]
    trace = make_trace(["PLURAL", "a", "b"], ["A", "B", END], weights, features=1)
    assert page_alignment(trace) == [(1, 2, 0, 1), (2, 3, 1, 2)]
    assert page_trace_without_model(trace).alignment == page_alignment(trace)
    assert page_alignment(make_trace(["a"], ["A", END], [[0.0], [0.0]])) == []


def test_long_outputs_have_no_alignment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pellucid.viewer.examples.MAX_ALIGNED_CELLS", 3)
    assert page_alignment(make_trace(["a", "b"], ["A", END], [[1.0, 0.0], [0.0, 1.0]])) == []


def test_attribution_of_the_page_has_the_names_and_numbers_of_python() -> None:
    attribution = Attribution(
        np.zeros((1, 2)), np.ones((1, 2)), occlusion_correlation=0.25, input_x_gradient_correlation=0.5
    )
    arrays = msgspec.to_builtins(attribution_arrays(attribution))
    assert list(arrays) == list(Attribution._fields)
    assert (arrays["occlusion_correlation"], arrays["input_x_gradient_correlation"]) == (0.25, 0.5)
