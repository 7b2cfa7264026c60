"""Attention statistics, compared with plain loops; and attention compared with a known alignment."""

import dataclasses
import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sample_traces import make_trace
from small_networks import SEEDS

from pellucid.decoding.trace import END, Trace
from pellucid.errors import ArgumentError
from pellucid.evaluation.alignment import (
    STATISTICS,
    AlignmentSpans,
    absentmindedness_in,
    absentmindedness_out,
    alignment_agreement,
    attending_rows,
    attention_confidence,
    attention_jumps,
    count_jumps,
    coverage_deviation,
    diagonality,
    mean_attention_map,
    row_entropy,
    summarize_attention,
    trace_statistics,
)
from pellucid.recipes.digits.attention_models import word_ends

WEIGHTS = np.array([[[0.7, 0.1, 0.1, 0.1], [0.1, 0.2, 0.3, 0.4], [0.25, 0.25, 0.25, 0.25]]], np.float32)


def make_spans(first: list[int], stop: list[int], known: list[bool]) -> AlignmentSpans:
    return AlignmentSpans(np.array([first]), np.array([stop]), np.array([known]))


def test_alignment_error_counts_maxima_outside_and_mass_sums_weights_inside() -> None:
    result = alignment_agreement(WEIGHTS, make_spans([0, 1, 0], [2, 3, 9], [True, True, False]))
    assert result.error == 0.5
    assert result.mass == pytest.approx((0.8 + 0.5) / 2)


def test_span_may_exceed_the_source() -> None:
    result = alignment_agreement(WEIGHTS, make_spans([0, 3, 0], [9, 9, 0], [True, True, False]))
    assert result.error == 0 and result.mass == pytest.approx((1 + 0.4) / 2)


def test_spans_without_a_known_one_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^spans: expected at least one symbol whose span is known"):
        alignment_agreement(WEIGHTS, make_spans([0, 0, 0], [1, 1, 1], [False] * 3))


def test_spans_of_words_include_the_following_space() -> None:
    assert word_ends("317").tolist() == [6, 10, 16]


ROWS = [[0.5, 0.5, 0.0], [0.0, 1.0, 0.0], [0.0, 0.25, 0.75], [1.0, 0.0, 0.0]]
TRACE = make_trace("abc", ["x", "y", "z", END], ROWS)
"""The maximum weights are at positions 0, 1, 2 and, for the end symbol, 0."""
ENTROPIES = [1.0, 0.0, 2 - 0.75 * math.log2(3), 0.0]


def expected_coverage(column_sums: list[float]) -> float:
    return float(np.mean([math.log(1 / (1 + abs(1 - column_sum) ** 6)) for column_sum in column_sums]))


def mean_negative_entropy(rows: Sequence[Sequence[float]]) -> float:
    """Return the mean of Σ α ln α over the rows, each normalized to sum 1, by plain loops."""
    totals = []
    for row in rows:
        normalized = [weight / sum(row) for weight in row] if sum(row) else []
        totals.append(sum(weight * math.log(weight) for weight in normalized if weight))
    return sum(totals) / len(totals)


def test_entropies_are_in_bits() -> None:
    np.testing.assert_allclose(row_entropy(TRACE.attention), ENTROPIES, atol=1e-6)
    assert row_entropy(np.full((1, 8), 1 / 8)).tolist() == pytest.approx([3])


def test_penalties_and_confidence_equal_their_definitions() -> None:
    weights = TRACE.attention
    column_sums = [1.5, 1.75, 0.75]
    assert coverage_deviation(weights) == pytest.approx(expected_coverage(column_sums))
    assert absentmindedness_out(weights) == pytest.approx(mean_negative_entropy(ROWS))
    assert absentmindedness_in(weights) == pytest.approx(mean_negative_entropy(list(zip(*ROWS, strict=True))))
    total = (
        expected_coverage(column_sums)
        + mean_negative_entropy(ROWS)
        + mean_negative_entropy(list(zip(*ROWS, strict=True)))
    )
    assert attention_confidence(weights) == pytest.approx(math.exp(-0.05 * total**2))


@given(st.integers(1, 6), st.integers(1, 6), SEEDS)
def test_one_to_one_attention_has_the_maximum_scores(steps: int, positions: int, seed: int) -> None:
    perfect = np.eye(positions)
    assert coverage_deviation(perfect) == absentmindedness_out(perfect) == absentmindedness_in(perfect) == 0
    assert attention_confidence(perfect) == 1 and diagonality(perfect) == pytest.approx(1)
    weights = np.random.default_rng(seed).dirichlet(np.ones(positions), steps)
    assert max(coverage_deviation(weights), absentmindedness_out(weights), absentmindedness_in(weights)) <= 1e-12
    assert 0 < attention_confidence(weights) <= 1 and 0 < diagonality(weights) <= 1 + 1e-12


def test_jumps_exclude_the_end_symbol() -> None:
    assert attention_jumps(TRACE).tolist() == [1, 1]
    unfinished = make_trace("abc", ["x", "y", "z", "x"], ROWS)
    assert attention_jumps(unfinished).tolist() == [1, 1, -2]
    assert (
        count_jumps([TRACE, unfinished]) == {-2: 1, 1: 4}
        and attention_jumps(make_trace("a", [END], [[1.0]])).tolist() == []
    )
    tagged = dataclasses.replace(make_trace("abc", ["x", "y", "z"], np.eye(3).tolist()), task="tag", finished=True)
    assert attention_jumps(tagged).tolist() == [1, 1]


def test_diagonality_equals_plain_loops() -> None:
    total = 0.0
    for t, row in enumerate(ROWS):
        for s, weight in enumerate(row):
            total += weight * math.exp(-(((s + 0.5) / 3 - (t + 0.5) / 4) ** 2) / (2 * 0.2**2)) / 4
    assert diagonality(TRACE.attention) == pytest.approx(total)


def test_mean_map_equals_the_mean_over_fine_grids() -> None:
    """Each cell of the T × S matrix is repeated 10 S × 10 T times; the repeated cells are averaged over each tenth."""
    traces = [TRACE, make_trace("ab", ["x", END], [[0.9, 0.1], [0.2, 0.8]])]
    actual, expected = mean_attention_map(traces), np.zeros((10, 10))
    for trace in traces:
        T, S = trace.attention.shape
        fine_grid = np.repeat(np.repeat(trace.attention, 10, axis=0), 10, axis=1) / 10
        expected += fine_grid.reshape(10, T, 10, S).sum(axis=3).mean(axis=1) / len(traces)
    assert actual is not None
    np.testing.assert_allclose(actual, expected, atol=1e-6)
    np.testing.assert_allclose(actual.sum(axis=1), 1, atol=1e-6)
    assert mean_attention_map([]) is None and mean_attention_map([make_trace("a", ["x"], [[0.0]])]) is None


def test_summary_equals_the_definitions() -> None:
    short = make_trace("ab", ["x", END], [[0.1, 0.9], [0.9, 0.1]])
    gold = [[(0, 1), (2, 3), (0, 0), (1, 2)], None]
    statistics = {statistic.name: statistic for statistic in summarize_attention([TRACE, short], gold)}
    short_entropy = float(row_entropy(short.attention).sum())
    assert statistics["entropy"].value == pytest.approx((sum(ENTROPIES) + short_entropy) / 6)
    assert statistics["relative entropy"].value == pytest.approx((sum(ENTROPIES) / math.log2(3) + short_entropy) / 6)
    assert statistics["alignment score"].value == pytest.approx(
        (attention_confidence(TRACE.attention) + attention_confidence(short.attention)) / 2
    )
    assert statistics["monotonicity"].value == 1 and statistics["alignment error"].value == pytest.approx(2 / 3)
    for statistic in statistics.values():
        assert statistic.low <= statistic.value <= statistic.high and statistic.definition.endswith(".")
    assert [statistic.name for statistic in summarize_attention([TRACE, short])] == [
        name for name, *_ in STATISTICS[:-1]
    ]


@pytest.mark.slow
def test_intervals_contain_the_mean_in_95_percent_of_samples() -> None:
    """The 40 corpora have 40 traces each; the mean entropy of their distribution is known."""
    generator, num_covered = np.random.default_rng(1), 0
    for seed in range(40):
        weights = generator.random(40)
        traces = [make_trace("ab", ["x", "y"], [[1 - p / 2, p / 2]] * 2) for p in weights]
        entropy = summarize_attention(traces, seed=seed)[0]
        p = np.linspace(1e-9, 1, 10_001) / 2
        true_mean = float((-p * np.log2(p) - (1 - p) * np.log2(1 - p)).mean())
        num_covered += entropy.low <= true_mean <= entropy.high
    assert num_covered >= 34


def test_rows_without_weights_are_omitted() -> None:
    without_weights = make_trace("abc", ["x", END], [[0.0] * 3] * 2)
    with_empty_row = make_trace("ab", ["x", "y", END], [[1.0, 0.0], [0.0, 0.0], [0.0, 1.0]])
    assert (
        not trace_statistics(without_weights).any()
        and summarize_attention([without_weights]) == []
        and summarize_attention([]) == []
    )
    assert [each.value for each in summarize_attention([without_weights, TRACE])] == [
        each.value for each in summarize_attention([TRACE])
    ]
    assert attention_jumps(with_empty_row).tolist() == [] and trace_statistics(with_empty_row)[0].tolist() == [0, 2]
    single_step_names = {each.name for each in summarize_attention([make_trace("a", ["x"], [[1.0]])])}
    assert "relative entropy" not in single_step_names and "monotonicity" not in single_step_names


MEASURES: list[Callable[[np.ndarray], object]] = [
    *(row_entropy, attending_rows, coverage_deviation, absentmindedness_out, absentmindedness_in),
    *(attention_confidence, diagonality),
]


@pytest.mark.parametrize("measure", MEASURES)
def test_rows_that_sum_to_more_than_one_are_refused(measure: Callable[[np.ndarray], object]) -> None:
    message = r"^weights\[1\]: expected a row of weights that sums to at most 1, got a sum of 1\.5; divide "
    with pytest.raises(ArgumentError, match=message):
        measure(np.array([[0.5, 0.5, 0], [0.5, 0.5, 0.5]]))


def test_alignment_agreement_and_traces_refuse_rows_that_sum_to_more_than_one() -> None:
    with pytest.raises(ArgumentError, match=r"^weights\[0, 2\]: expected a row of weights .* got a sum of 2"):
        alignment_agreement(np.array([[*ROWS[:2], [1, 1, 0]]]), make_spans([0, 0, 0], [1, 1, 1], [True] * 3))
    trace = make_trace("abc", ["x", END], [[1, 0, 0], [0.5, 0.5, 0.5]])
    trace_measures: list[Callable[[Trace], object]] = [attention_jumps, trace_statistics]
    for trace_measure in trace_measures:
        with pytest.raises(ArgumentError, match=r"^trace\.attention\[1\]: expected a row of weights "):
            trace_measure(trace)
    corpus_measures: list[Callable[[list[Trace]], object]] = [count_jumps, mean_attention_map, summarize_attention]
    for corpus_measure in corpus_measures:
        with pytest.raises(ArgumentError, match=r"^traces\[1\]\.attention\[1\]: expected a row of weights "):
            corpus_measure([TRACE, trace])


@pytest.mark.parametrize("positions", [3, 1000, 150_000])
def test_rounded_rows_are_accepted(positions: int) -> None:
    """Rows may be rounded to six decimals, as in JSON, or to half precision."""
    weights = np.full((1, positions), 1 / positions)
    for rounded in (weights.astype(np.float32), weights.round(6), weights.astype(np.float16).astype(np.float32)):
        assert row_entropy(rounded)[0] == pytest.approx(math.log2(positions), rel=0.06)


def test_a_row_may_sum_to_less_than_one_after_a_monotonic_scan() -> None:
    assert row_entropy(np.array([[0.5, 0.0], [0.0, 0.0]])).tolist() == [0.5, 0]
    assert absentmindedness_out(np.array([[0.5, 0.0], [0.0, 0.0]])) == 0


def test_no_statistic_is_a_negative_zero() -> None:
    perfect = np.eye(3)
    for value in [coverage_deviation(perfect), absentmindedness_out(perfect), absentmindedness_in(perfect)]:
        assert value == 0 and math.copysign(1, value) == 1
    assert not np.signbit(row_entropy(perfect)).any()
