import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.evaluation import metrics
from pellucid.evaluation.metrics import (
    RESAMPLES,
    Z95,
    ConfidenceInterval,
    bootstrap_ratio,
    count_distinct_rows,
    resample_counts,
    wilson_interval,
)


@st.composite
def counts_and_totals(draw: st.DrawFn) -> tuple[int, int]:
    total = draw(st.integers(1, 100_000))
    return draw(st.integers(0, total)), total


@given(counts_and_totals())
def test_wilson_bounds_solve_the_equation_of_the_score_test(counts: tuple[int, int]) -> None:
    """Both ends p satisfy |p̂ − p| = z √(p(1 − p)/n), the score test that the interval inverts."""
    right, total = counts
    observed, interval = right / total, wilson_interval(right, total)
    assert 0 <= interval.low <= observed <= interval.high <= 1
    for end in interval:
        if 0 < end < 1:
            assert abs(observed - end) == pytest.approx(Z95 * math.sqrt(end * (1 - end) / total), rel=1e-6)


def test_wilson_intervals_equal_a_published_example() -> None:
    """The values are those of R. G. Newcombe (1998), Statistics in Medicine 17, table I, method 3."""
    assert wilson_interval(81, 263) == pytest.approx((0.2553, 0.3662), abs=5e-5)
    assert wilson_interval(0, 20) == pytest.approx((0.0, 0.1611), abs=5e-5)


@given(counts_and_totals())
def test_wilson_is_symmetric_in_correct_and_wrong(counts: tuple[int, int]) -> None:
    right, total = counts
    low, high = wilson_interval(total - right, total)
    assert wilson_interval(right, total) == pytest.approx((1 - high, 1 - low), abs=1e-12)


def test_wilson_keeps_its_width_if_all_or_none_are_correct() -> None:
    assert wilson_interval(10, 10).high == 1.0 and wilson_interval(10, 10).low < 0.75
    assert wilson_interval(0, 10).low == 0.0 and wilson_interval(0, 10).high > 0.25
    assert wilson_interval(0, 0) == (0.0, 1.0)


def naive_bootstrap(errors: list[int], lengths: list[int]) -> tuple[float, float]:
    """Return the bootstrap interval, computed by drawing examples one at a time."""
    generator = np.random.default_rng(7)
    ratios = []
    for _ in range(RESAMPLES):
        indices = generator.integers(len(errors), size=len(errors))
        ratios.append(sum(errors[i] for i in indices) / max(1, sum(lengths[i] for i in indices)))
    low, high = np.percentile(ratios, [2.5, 97.5])
    return float(low), float(high)


def test_bootstrap_equals_drawing_examples_one_by_one() -> None:
    generator = np.random.default_rng(3)
    lengths = generator.integers(1, 20, size=300).tolist()
    errors = generator.binomial(lengths, 0.1).tolist()
    assert bootstrap_ratio(errors, lengths) == pytest.approx(naive_bootstrap(errors, lengths), rel=0.08)


def test_bootstrap_covers_the_true_rate_about_95_times_in_100() -> None:
    generator = np.random.default_rng(11)
    covered = 0
    for _ in range(200):
        lengths = generator.integers(1, 12, size=150)
        low, high = bootstrap_ratio(generator.binomial(lengths, 0.2).tolist(), lengths.tolist())
        covered += low <= 0.2 <= high
    assert 180 <= covered <= 199


def test_bootstrap_depends_on_values_and_seed_alone() -> None:
    errors, lengths = [0, 2, 1, 0, 5, 1], [3, 4, 9, 1, 6, 0]
    assert bootstrap_ratio(errors, lengths) == bootstrap_ratio(errors, lengths)
    assert bootstrap_ratio(errors, lengths) == bootstrap_ratio(errors[::-1], lengths[::-1])
    assert bootstrap_ratio(errors, lengths) != bootstrap_ratio(errors, lengths, seed=2)


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=20))
def test_bootstrap_is_ordered_and_within_the_extremes(pairs: list[tuple[int, int]]) -> None:
    errors, lengths = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    low, high = bootstrap_ratio(errors, lengths)
    ratios = [error / max(1, length) for error, length in pairs]
    assert 0 <= low <= high
    if min(lengths) > 0:
        assert min(ratios) - 1e-12 <= low and high <= max(ratios) + 1e-12


def test_bootstrap_without_variance_has_no_width() -> None:
    assert bootstrap_ratio([0, 0, 0], [4, 5, 6]) == (0.0, 0.0)
    assert bootstrap_ratio([2], [8]) == (0.25, 0.25)
    assert bootstrap_ratio([1], [0]) == (1.0, 1.0)


def test_percent_multiplies_an_interval_by_100() -> None:
    assert ConfidenceInterval(0.25, 0.5).percent == ConfidenceInterval(25.0, 50.0)


def test_resamples_without_a_ratio_are_excluded() -> None:
    """If one of 20 sentences has chunks, a third of the resamples has none, and then F1 is undefined, not 0."""
    assert bootstrap_ratio([0] * 19 + [4], [0] * 19 + [4]) == (1.0, 1.0)
    low, high = bootstrap_ratio([0] * 17 + [4, 2, 4], [0] * 17 + [4, 4, 4])
    assert 0.5 <= low < 10 / 12 < high == 1
    assert bootstrap_ratio([0, 0], [0, 0]) == (0.0, 0.0) and bootstrap_ratio([3, 3], [0, 0]) == (6.0, 6.0)


def test_few_examples_have_intervals() -> None:
    assert bootstrap_ratio([4], [4]) == (1.0, 1.0), "one example has no variance"
    assert bootstrap_ratio([4, 0], [4, 4]) == (0.0, 1.0), (
        "a quarter of the resamples has only the first, and a quarter only the second"
    )
    assert bootstrap_ratio([4] * 4 + [0], [4] * 5) == (0.4, 1.0)


@pytest.mark.parametrize("chunk", [1, 250, 2**20])
def test_resamples_do_not_depend_on_the_chunk_size(monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    """Resamples are drawn in sequence, so intervals that were reported earlier do not change."""
    monkeypatch.setattr(metrics, "CHUNK_COUNTS", chunk)
    table = np.random.default_rng(5).integers(0, 4, size=(200, 2))
    rows, counts = np.unique(table, axis=0, return_counts=True)
    generator = np.random.default_rng(1)
    expected = [generator.multinomial(200, counts / 200) @ rows for _ in range(RESAMPLES)]
    np.testing.assert_array_equal(resample_counts(count_distinct_rows(table), np.random.default_rng(1)), expected)
