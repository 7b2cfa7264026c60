"""Calibration, compared with plain loops over examples and with known values."""

import math
import random
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.evaluation.calibration import (
    COVERAGES,
    NUM_BINS,
    NUM_DRAWS,
    calibration_error_by_chance,
    measure_calibration,
)

EXAMPLES = st.lists(st.tuples(st.floats(-8, 0), st.booleans()), min_size=1, max_size=40)


def expected_error_by_loops(scores: list[float], correct: list[bool]) -> float:
    """Return the expected calibration error by plain loops over bins and examples."""
    total = 0.0
    for bin_index in range(NUM_BINS):
        in_bin = []
        for score, is_correct in zip(scores, correct, strict=True):
            p = math.exp(score)
            if bin_index / NUM_BINS < p <= (bin_index + 1) / NUM_BINS or (bin_index == 0 and p == 0):
                in_bin.append((p, is_correct))
        if in_bin:
            accuracy = sum(is_correct for _, is_correct in in_bin) / len(in_bin)
            confidence = sum(p for p, _ in in_bin) / len(in_bin)
            total += len(in_bin) / len(scores) * abs(accuracy - confidence)
    return total


@given(EXAMPLES)
def test_errors_equal_plain_loops(examples: list[tuple[float, bool]]) -> None:
    scores, correct = [score for score, _ in examples], [is_correct for _, is_correct in examples]
    result = measure_calibration(scores, correct)
    assert result.expected_calibration_error == pytest.approx(expected_error_by_loops(scores, correct), abs=1e-12)
    brier = sum((math.exp(score) - is_correct) ** 2 for score, is_correct in examples) / len(examples)
    assert result.brier == pytest.approx(brier)
    assert sum(each.total for each in result.bins) == len(examples)
    assert sum(each.right for each in result.bins) == sum(correct)


@given(EXAMPLES)
def test_calibration_is_independent_of_the_order(examples: list[tuple[float, bool]]) -> None:
    shuffled = random.Random(1).sample(examples, len(examples))
    expected, actual = (
        measure_calibration([score for score, _ in pairs], [is_correct for _, is_correct in pairs]).to_dict()
        for pairs in (examples, shuffled)
    )
    assert expected == actual


@given(EXAMPLES)
def test_the_most_confident_outputs_have_the_highest_scores(examples: list[tuple[float, bool]]) -> None:
    correct_by_score = {score: is_correct for score, is_correct in examples}  # one example per score
    result = measure_calibration(list(correct_by_score), list(correct_by_score.values()))
    correct = [correct_by_score[score] for score in sorted(correct_by_score, reverse=True)]
    for point in result.coverage_points:
        num_kept = max(1, round(point.coverage * len(correct)))
        assert point.accuracy == pytest.approx(sum(correct[:num_kept]) / num_kept)
        num_wrong = len(correct) - sum(correct)
        num_caught = len(correct[num_kept:]) - sum(correct[num_kept:])
        assert point.error_recall == pytest.approx(num_caught / num_wrong if num_wrong else 1.0, abs=1e-9)
    risks = [1 - sum(correct[:num_kept]) / num_kept for num_kept in range(1, len(correct) + 1)]
    assert result.risk_coverage_area == pytest.approx(sum(risks) / len(risks), abs=1e-12)


def test_equal_scores_have_their_mean_accuracy() -> None:
    result = measure_calibration([-1.0] * 4, [True, False, True, False])
    assert [each.accuracy for each in result.coverage_points] == [0.5] * len(COVERAGES)
    assert result.risk_coverage_area == 0.5


@pytest.mark.parametrize(
    ("score", "is_correct", "error"), [(0.0, True, 0.0), (0.0, False, 1.0), (-math.inf, False, 0.0)]
)
def test_single_example_has_the_error_of_its_confidence(score: float, is_correct: bool, error: float) -> None:
    result = measure_calibration([score], [is_correct])
    assert result.expected_calibration_error == result.brier == error and result.accuracy == is_correct
    assert [each.accuracy for each in result.coverage_points] == [float(is_correct)] * len(COVERAGES)
    assert result.coverage_points[-1].error_recall == (1.0 if is_correct else 0.0)


def test_true_probabilities_have_no_calibration_error() -> None:
    result = measure_calibration([math.log(0.75)] * 4, [True, True, True, False])
    assert result.expected_calibration_error == pytest.approx(0) and result.brier == pytest.approx(0.75 * 0.25)


def mean_deviation(n: int, p: float) -> float:
    """Return E |k/n − p| for k correct outputs of n with probability p each (De Moivre's mean absolute deviation)."""
    m = math.floor(n * p) + 1
    return 2 * m * math.comb(n, m) * p**m * (1 - p) ** (n - m + 1) / n if m <= n else 0.0


@pytest.mark.parametrize(("n", "p"), [(1, 0.3), (5, 0.25), (20, 0.55), (100, 0.85), (400, 0.97)])
def test_error_by_chance_of_one_bin_is_the_mean_deviation_of_a_binomial_rate(n: int, p: float) -> None:
    enumerated = sum(math.comb(n, k) * p**k * (1 - p) ** (n - k) * abs(k / n - p) for k in range(n + 1))
    assert mean_deviation(n, p) == pytest.approx(enumerated)
    variance = p * (1 - p) / n - enumerated**2
    four_standard_errors = 4 * math.sqrt(variance / NUM_DRAWS)
    assert calibration_error_by_chance([p] * n) == pytest.approx(enumerated, abs=four_standard_errors)


def test_error_by_chance_of_several_bins_is_their_mean_by_their_shares() -> None:
    shares = {0.15: 60, 0.55: 100, 0.95: 240}
    expected = sum(n * mean_deviation(n, p) for p, n in shares.items()) / 400
    confidences = [p for p, n in shares.items() for _ in range(n)]
    assert calibration_error_by_chance(confidences) == pytest.approx(expected, rel=0.1)
    assert calibration_error_by_chance(confidences[::-1]) == calibration_error_by_chance(confidences)


@pytest.mark.parametrize(("confidences", "expected"), [([0.0, 1.0, 1.0], 0.0), ([0.5], 0.5), ([0.5, 1.0], 0.25)])
def test_errors_by_chance_without_chance_are_exact(confidences: list[float], expected: float) -> None:
    assert calibration_error_by_chance(confidences) == expected


def test_the_error_by_chance_takes_the_memory_of_one_draw() -> None:
    """Regression test: all draws were held at once, 1.6 kB for each output."""
    values = np.linspace(0, 1, 20_000).tolist()
    tracemalloc.start()
    calibration_error_by_chance(values)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 5_000_000
