"""Computations at the end of an evaluation: equal to those over whole arrays, with memory that does not grow."""

import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.evaluation_memory import evaluation_steps, fill_counts
from pellucid import row_file
from pellucid.evaluation import calibration, metrics, significance
from pellucid.evaluation.assessment import Assessment, compare_groups, compare_runs
from pellucid.evaluation.calibration import (
    COVERAGES,
    NUM_BINS,
    NUM_DRAWS,
    Calibration,
    CoveragePoint,
    calibration_error_by_chance,
    compute_calibration,
    compute_error_by_chance,
    measure_calibration,
)
from pellucid.evaluation.metrics import OUTCOME_TYPE, OutcomeCounts, exclusively_right, worst_errors
from pellucid.evaluation.output_counts import OutputCounts
from pellucid.evaluation.task_metrics import ERROR_RATE_METRICS

MAX_BYTES = 3 * 2**20
"""Bound of the memory of all computations with small blocks and few draws."""
SCORES = st.lists(st.tuples(st.floats(-8, 0) | st.sampled_from([-1.5, -0.0, -np.inf]), st.booleans()), min_size=1)
OUTCOMES = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 5), st.integers(0, 4)), min_size=1, max_size=40)
MODULES = (row_file, metrics, calibration, significance)


@contextmanager
def small_blocks(block_rows: int, max_bytes: int = 0) -> Iterator[pytest.MonkeyPatch]:
    """Read so many rows at a time within the block, from files beyond some bytes."""
    with pytest.MonkeyPatch.context() as patch:
        for module in MODULES:
            patch.setattr(module, "BLOCK_ROWS", block_rows)
        patch.setattr(row_file, "MAX_BYTES_IN_MEMORY", max_bytes)
        yield patch


@pytest.fixture
def few_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw few numbers in bootstraps and permutation tests."""
    monkeypatch.setattr(metrics, "RESAMPLES", 50)
    monkeypatch.setattr(significance, "NUM_PERMUTATIONS", 100)
    monkeypatch.setattr(calibration, "NUM_DRAWS", 2)


def calibrate_arrays(scores: np.ndarray, hits: np.ndarray) -> Calibration:
    """Return calibration metrics from whole arrays."""
    order = np.lexsort((hits, -scores))
    scores, hits = scores[order], hits[order]
    probabilities, total = np.exp(scores), len(hits)
    bins = np.clip(np.ceil(probabilities * NUM_BINS).astype(int) - 1, 0, NUM_BINS - 1)
    counts, right, confidence = (
        np.bincount(bins, weights=weights, minlength=NUM_BINS) for weights in (np.ones(total), hits, probabilities)
    )
    numbers = np.cumsum(np.append([False], scores[1:] != scores[:-1]))
    means = np.bincount(numbers, weights=hits) / np.bincount(numbers)
    accuracies = (np.cumsum(means[numbers]) / np.arange(1, total + 1)).clip(0.0, 1.0)
    points = []
    for coverage in COVERAGES:
        accepted = max(1, round(coverage * total))
        errors, missed = total * (1 - accuracies[-1]), accepted * (1 - accuracies[accepted - 1])
        recall = float(np.clip(1 - missed / errors, 0, 1)) if errors > 1e-9 else 1.0
        points.append(CoveragePoint(coverage, accuracies[accepted - 1], recall, probabilities[accepted - 1]))
    error = np.abs(right - confidence).sum() / total
    brier, probability = ((probabilities - hits) ** 2).mean(), probabilities.mean()
    assert counts.sum() == total
    return Calibration([], error, brier, probability, hits.mean(), points, 1 - accuracies.mean())


@given(SCORES, st.integers(1, 9))
def test_calibration_in_blocks_equals_that_of_arrays(examples: list[tuple[float, bool]], block_rows: int) -> None:
    scores, hits = np.array([score for score, _ in examples]), np.array([hit for _, hit in examples])
    expected, whole = calibrate_arrays(scores, hits), measure_calibration(scores.tolist(), hits.tolist())
    with small_blocks(block_rows):
        middle = len(hits) // 2
        parts = compute_calibration([(scores[:middle], hits[:middle]), (scores[middle:], hits[middle:])])
    assert parts == whole
    for name in ("expected_calibration_error", "brier", "mean_probability", "accuracy", "risk_coverage_area"):
        assert getattr(whole, name) == pytest.approx(getattr(expected, name), rel=1e-12, abs=1e-12)
    np.testing.assert_array_equal(whole.coverage_points, expected.coverage_points)


def test_sums_of_many_outputs_are_those_of_arrays_to_the_bit() -> None:
    generator = np.random.default_rng(1)
    scores, hits = -generator.exponential(0.3, 5001).round(3), generator.random(5001) < 0.7
    expected = calibrate_arrays(scores, hits)
    for block_rows in (1, 130, 1000, 2**16):
        with small_blocks(block_rows):
            actual = compute_calibration([(scores, hits)])
        assert (actual.brier, actual.mean_probability) == (expected.brier, expected.mean_probability)
        assert actual.risk_coverage_area == expected.risk_coverage_area
        assert actual.coverage_points == expected.coverage_points


@given(st.lists(st.floats(0, 1) | st.sampled_from([0.25, 0.3]), min_size=1), st.integers(1, 9))
def test_the_error_by_chance_is_independent_of_blocks(confidences: list[float], block_rows: int) -> None:
    values = np.sort(confidences)
    bins = np.clip(np.ceil(values * NUM_BINS).astype(int) - 1, 0, NUM_BINS - 1)
    generator, errors = np.random.default_rng(0), []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(calibration, "NUM_DRAWS", NUM_DRAWS // 20)
        for _ in range(NUM_DRAWS // 20):
            differences = (generator.random(len(values)) < values) - values
            errors.append(np.abs(np.bincount(bins, weights=differences)).sum())
        assert calibration_error_by_chance(confidences) == float(np.mean(errors) / len(values))
        with small_blocks(block_rows):
            parts = [np.array(confidences[first::3]) for first in range(3)]
            assert compute_error_by_chance(parts) == float(np.mean(errors) / len(values))


def count_outcomes(outcomes: list[tuple[int, int, int]]) -> tuple[OutcomeCounts, np.ndarray]:
    """Return counts of outcomes, and the outcomes as an array; the column is the errors of a run."""
    rows = np.array([(errors, length, length) for errors, length, _ in outcomes], OUTCOME_TYPE)
    counts = OutcomeCounts()
    counts._rows.extend_rows(rows)
    return counts, rows


@given(OUTCOMES, st.integers(1, 9), st.integers(0, 8))
def test_lists_of_outputs_are_those_of_whole_arrays(
    outcomes: list[tuple[int, int, int]], block_rows: int, count: int
) -> None:
    others = [(other, length, other) for _, length, other in outcomes]
    with small_blocks(block_rows):
        (counts, rows), (other_counts, other_rows) = count_outcomes(outcomes), count_outcomes(others)
        order = worst_errors(rows["errors"], rows["length"])
        assert counts.worst(count) == order[:count].tolist()
        numbers = np.cumsum(rows["errors"] > 0) - 1
        assert list(counts.wrong_by_rate()) == numbers[order].tolist()
        expected = exclusively_right(rows["errors"], other_rows["errors"])
        assert metrics.first_exclusively_right(counts, other_counts, count) == expected[:count].tolist()
        assert counts.count_wrong() == np.count_nonzero(rows["errors"]) and len(counts) == len(rows)
        distinct, numbers_of_each = counts.count_errors()
        columns = np.column_stack([rows["errors"], rows["length"]])
    expected_rows, expected_counts = np.unique(columns, axis=0, return_counts=True)
    np.testing.assert_array_equal(distinct, expected_rows)
    np.testing.assert_array_equal(numbers_of_each, expected_counts)


def assess(num_outputs: int) -> list[Assessment]:
    """Return assessments of three runs with random outcomes."""
    runs = [Assessment(name, OutputCounts(None, False), {}, ERROR_RATE_METRICS) for name in "abc"]
    fill_counts([run.counts for run in runs], num_outputs)
    return runs


@pytest.mark.usefixtures("few_draws")
def test_assessments_do_not_depend_on_blocks() -> None:
    a, b, c = assess(2000)
    expected = [run.to_dict() for run in (a, b)], compare_runs(a, b), compare_groups([a, b], [c])
    for block_rows in (70, 300):
        with small_blocks(block_rows, 5000) as patch:
            patch.setattr(significance, "CHUNK_COUNTS", 500)
            a, b, c = assess(2000)
            assert ([run.to_dict() for run in (a, b)], compare_runs(a, b), compare_groups([a, b], [c])) == expected


@pytest.mark.usefixtures("few_draws")
def test_the_memory_of_an_evaluation_does_not_grow_with_the_outputs() -> None:
    """Regression test: counts took 48 bytes for each output, and calibration and intervals 65 at the end."""

    def measure(num_outputs: int) -> int:
        """Return the most bytes that the computations of an evaluation took."""
        tracemalloc.start()
        for step in evaluation_steps(num_outputs).values():
            step()
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return peak

    with small_blocks(2**12, 2**16) as patch:
        for module in (metrics, significance):
            patch.setattr(module, "CHUNK_COUNTS", 2**12)
        patch.setattr("benchmarks.evaluation_memory.BLOCK", 5000)
        measure(1000)  # imports and caches
        assert measure(200_000) < MAX_BYTES
