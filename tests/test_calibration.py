"""Calibration: against plain loops over examples, and by hand."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.evaluation.calibration import COVERAGES, NUM_BINS, measure_calibration

EXAMPLES = st.lists(st.tuples(st.floats(-8, 0), st.booleans()), min_size=1, max_size=40)


def plain_expected_error(scores: list[float], right: list[bool]) -> float:
    """ECE by its definition, one bin and one example at a time."""
    total = 0.0
    for at in range(NUM_BINS):
        inside = []
        for score, hit in zip(scores, right, strict=True):
            p = math.exp(score)
            if at / NUM_BINS < p <= (at + 1) / NUM_BINS or (at == 0 and p == 0):
                inside.append((p, hit))
        if inside:
            accuracy = sum(hit for _, hit in inside) / len(inside)
            confidence = sum(p for p, _ in inside) / len(inside)
            total += len(inside) / len(scores) * abs(accuracy - confidence)
    return total


@given(EXAMPLES)
def test_errors_equal_plain_loops(examples: list[tuple[float, bool]]) -> None:
    scores, right = [score for score, _ in examples], [hit for _, hit in examples]
    found = measure_calibration(scores, right)
    assert found.expected_error == pytest.approx(plain_expected_error(scores, right), abs=1e-12)
    brier = sum((math.exp(score) - hit) ** 2 for score, hit in examples) / len(examples)
    assert found.brier == pytest.approx(brier)
    assert sum(each.total for each in found.bins) == len(examples)
    assert sum(each.right for each in found.bins) == sum(right)


@given(EXAMPLES)
def test_order_changes_nothing(examples: list[tuple[float, bool]]) -> None:
    mixed = random.Random(1).sample(examples, len(examples))
    one, other = (
        measure_calibration([score for score, _ in each], [hit for _, hit in each]).to_dict()
        for each in (examples, mixed)
    )
    assert one == other


@given(EXAMPLES)
def test_the_most_confident_outputs_have_the_highest_scores(examples: list[tuple[float, bool]]) -> None:
    apart = {score: hit for score, hit in examples}  # no two of one score
    found = measure_calibration(list(apart), list(apart.values()))
    hits = [apart[score] for score in sorted(apart, reverse=True)]
    for each in found.coverage_points:
        kept = max(1, round(each.share * len(hits)))
        assert each.accuracy == pytest.approx(sum(hits[:kept]) / kept)
        wrong = len(hits) - sum(hits)
        left = len(hits[kept:]) - sum(hits[kept:])
        assert each.caught == pytest.approx(left / wrong if wrong else 1.0, abs=1e-9)
    risks = [1 - sum(hits[:kept]) / kept for kept in range(1, len(hits) + 1)]
    assert found.risk_area == pytest.approx(sum(risks) / len(risks), abs=1e-12)


def test_equal_scores_count_as_their_mean() -> None:
    found = measure_calibration([-1.0] * 4, [True, False, True, False])
    assert [each.accuracy for each in found.coverage_points] == [0.5] * len(COVERAGES) and found.risk_area == 0.5


@pytest.mark.parametrize(("score", "hit", "error"), [(0.0, True, 0.0), (0.0, False, 1.0), (-math.inf, False, 0.0)])
def test_one_example(score: float, hit: bool, error: float) -> None:
    found = measure_calibration([score], [hit])
    assert found.expected_error == found.brier == error and found.accuracy == hit
    assert [each.accuracy for each in found.coverage_points] == [float(hit)] * len(COVERAGES)
    assert found.coverage_points[-1].caught == (1.0 if hit else 0.0)


def test_true_probabilities_have_no_calibration_error() -> None:
    found = measure_calibration([math.log(0.75)] * 4, [True, True, True, False])
    assert found.expected_error == pytest.approx(0) and found.brier == pytest.approx(0.75 * 0.25)
