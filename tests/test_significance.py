"""Comparisons of runs equal enumerations of all swaps, a binomial test, and bootstrap resamples."""

import itertools
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from pellucid.errors import InputError
from pellucid.evaluation.outcomes import OutcomeTable, macro_average
from pellucid.evaluation.significance import compare_means, compare_outcomes, permute_runs, smallest_run_p
from pellucid.tasks.registry import get_task

ROWS = st.tuples(st.booleans(), st.integers(0, 5), st.integers(0, 6)).map(lambda row: (int(row[0]), row[1], row[2]))
ROW_PAIRS = st.lists(st.tuples(ROWS, ROWS), min_size=1, max_size=12)


def make_table(rows: list[tuple[int, int, int]]) -> OutcomeTable:
    return np.array(rows, np.int64).reshape(-1, 3)


def outcome_tables(pairs: list[tuple[tuple[int, int, int], tuple[int, int, int]]]) -> tuple[OutcomeTable, OutcomeTable]:
    return make_table([a for a, _ in pairs]), make_table([b for _, b in pairs])


def compute_rates(rows: OutcomeTable) -> tuple[float, float]:
    wrong, errors, symbols = rows.sum(axis=0).tolist()
    return 100 * (1 - wrong / len(rows)), 100 * errors / max(1, symbols)


def enumerate_swaps(a: OutcomeTable, b: OutcomeTable, metric: int) -> float:
    """Return the fraction of all 2ⁿ swaps whose difference is at least the observed one."""
    observed = abs(compute_rates(a)[metric] - compute_rates(b)[metric])
    hits = 0
    for swap in itertools.product([False, True], repeat=len(a)):
        mask = np.array(swap)[:, None]
        one, other = np.where(mask, b, a), np.where(mask, a, b)
        hits += int(abs(compute_rates(one)[metric] - compute_rates(other)[metric]) >= observed - 1e-9)
    return hits / float(2 ** len(a))


@settings(max_examples=15, deadline=None)
@given(st.lists(st.tuples(ROWS, ROWS), min_size=1, max_size=9))
def test_p_is_close_to_that_of_all_permutations(pairs: list[tuple[tuple[int, int, int], tuple[int, int, int]]]) -> None:
    a, b = outcome_tables(pairs)
    result = compare_outcomes([a], [b])
    # With 10,000 draws, five standard deviations of a fraction are at most 0.025.
    assert result.exact_match.p == pytest.approx(enumerate_swaps(a, b, 0), abs=0.025)
    assert result.symbol_error_rate.p == pytest.approx(enumerate_swaps(a, b, 1), abs=0.025)


@pytest.mark.parametrize(("only_a", "only_b"), [(30, 12), (5, 5), (8, 1), (40, 39), (1, 0)])
def test_p_of_exact_match_equals_the_sign_test(only_a: int, only_b: int) -> None:
    rows = [((0, 0, 3), (1, 1, 3))] * only_a + [((1, 1, 3), (0, 0, 3))] * only_b + [((0, 0, 3), (0, 0, 3))] * 50
    a, b = outcome_tables(rows)
    result = compare_outcomes([a], [b])
    assert result.exact_match.p == pytest.approx(stats.binomtest(only_a, only_a + only_b).pvalue, abs=0.025)
    assert (result.only_a, result.only_b, result.both, result.neither) == (only_a, only_b, 50, 0)
    assert result.exact_match.difference == pytest.approx(100 * (only_a - only_b) / len(rows))


def test_the_interval_equals_that_of_bootstrap_resamples() -> None:
    generator = random.Random(3)
    rows = []
    for _ in range(200):
        errors = (generator.choice([0, 0, 0, 1, 2]), generator.choice([0, 0, 1, 1, 3]))
        length = generator.randint(2, 9)
        rows.append(tuple((int(error > 0), error, length) for error in errors))
    a, b = make_table([one for one, _ in rows]), make_table([other for _, other in rows])
    differences = []
    for _ in range(4000):
        indices = np.array(generator.choices(range(200), k=200))
        differences.append(np.subtract(compute_rates(a[indices]), compute_rates(b[indices])))
    result = compare_outcomes([a], [b])
    for index, each in enumerate((result.exact_match, result.symbol_error_rate)):
        low, high = np.percentile(np.array(differences)[:, index], [2.5, 97.5])
        assert tuple(each.ci95) == pytest.approx((low, high), abs=0.6)
        better = np.array(differences)[:, index] * (1 if index == 0 else -1) > 0
        assert each.a_better == pytest.approx(better.mean(), abs=0.05)


@settings(max_examples=20, deadline=None)
@given(ROW_PAIRS)
def test_a_run_does_not_differ_from_itself(
    pairs: list[tuple[tuple[int, int, int], tuple[int, int, int]]],
) -> None:
    a, _ = outcome_tables(pairs)
    result = compare_outcomes([a], [a])
    for each in (result.exact_match, result.symbol_error_rate):
        assert each.difference == 0 and tuple(each.ci95) == (0, 0) and each.p == 1 and each.a_better == 0.5


@settings(max_examples=20, deadline=None)
@given(ROW_PAIRS)
def test_order_changes_nothing_and_swapped_runs_change_the_sign(
    pairs: list[tuple[tuple[int, int, int], tuple[int, int, int]]],
) -> None:
    a, b = outcome_tables(pairs)
    order = random.Random(1).sample(range(len(a)), len(a))
    result = compare_outcomes([a], [b])
    assert compare_outcomes([a[order]], [b[order]]) == result
    swapped = compare_outcomes([b], [a])
    assert swapped.exact_match.difference == -result.exact_match.difference
    assert (swapped.only_a, swapped.only_b) == (result.only_b, result.only_a)
    assert swapped.exact_match.p == pytest.approx(result.exact_match.p, abs=0.03)


def test_groups_have_equal_weights() -> None:
    small = make_table([(1, 2, 4)] * 2), make_table([(0, 0, 4)] * 2)
    large = make_table([(0, 0, 4)] * 98), make_table([(0, 0, 4)] * 98)
    result = compare_outcomes([small[0], large[0]], [small[1], large[1]])
    assert (result.exact_match.a, result.exact_match.b) == (50, 100)
    assert (result.symbol_error_rate.a, result.symbol_error_rate.b) == (25, 0)
    mean = macro_average([small[0], large[0]])
    assert (mean.exact_match, mean.symbol_error_rate, mean.sequence_error_rate) == (50, 25, 50)
    assert tuple(mean.sequence_error_rate_ci95) == (50, 50), "each group alone shows no spread"


def test_a_clear_difference_has_the_smallest_possible_p() -> None:
    result = compare_outcomes([make_table([(0, 0, 5)] * 60)], [make_table([(1, 1, 5)] * 60)])
    assert result.exact_match.p == result.symbol_error_rate.p == 1 / 10_001
    assert result.exact_match.a_better == result.symbol_error_rate.a_better == 1


def test_runs_on_different_examples_are_not_compared() -> None:
    with pytest.raises(InputError, match="same examples"):
        compare_outcomes([make_table([(0, 0, 1)])], [make_table([(0, 0, 1)] * 2)])


def test_labels_are_compared_by_accuracy() -> None:
    """Accuracy is 100 minus the error rate: the difference changes its sign, and p stays the same."""
    a, b = np.array([[1, 2, 5], [0, 0, 5]]), np.array([[1, 1, 5], [1, 2, 5]])
    result = compare_outcomes([a], [b])
    errors, accuracy = (
        result.symbol_error_rate,
        result._replace(metrics=get_task("tag").metrics).differences["accuracy"],
    )
    assert (accuracy.a, accuracy.b) == (80.0, 70.0) and accuracy.difference == pytest.approx(10.0)
    assert (accuracy.ci95.low, accuracy.ci95.high) == (-errors.ci95.high, -errors.ci95.low)
    assert (accuracy.p, accuracy.a_better) == (errors.p, errors.a_better)
    assert list(result.to_dict())[:2] == ["exact_match", "symbol_error_rate"]
    assert list(result._replace(metrics=get_task("classify").metrics).to_dict())[:2] == ["exact_match", "accuracy"]


def test_the_complement_of_no_difference_is_positive_zero() -> None:
    same = make_table([(0, 0, 3), (1, 2, 3)])
    complement = compare_outcomes([same], [same]).exact_match.complement
    assert f"{complement.difference} {complement.ci95.low} {complement.ci95.high}" == "0.0 0.0 0.0"
    worse = compare_outcomes([same], [make_table([(1, 1, 3), (1, 2, 3)])]).exact_match
    assert (worse.complement.difference, worse.complement.ci95) == (
        -worse.difference,
        (-worse.ci95.high, -worse.ci95.low),
    )


def outcomes_of(probability: float | np.ndarray, count: int, generator: np.random.Generator) -> OutcomeTable:
    """Return the outcomes of a run that is right with this probability, or with one for each example."""
    wrong = (generator.random(count) >= probability).astype(np.int64)
    return np.stack([wrong, wrong, np.ones_like(wrong)], axis=1)


def test_means_of_single_runs_are_compared_as_the_runs_are() -> None:
    generator = np.random.default_rng(3)
    one, other = (outcomes_of(probability, 400, generator) for probability in (0.8, 0.7))
    comparison, (exact, errors) = compare_outcomes([one], [other]), compare_means([[one]], [[other]])
    for mean, single in ((exact, comparison.exact_match), (errors, comparison.symbol_error_rate)):
        assert (mean.a, mean.b, mean.difference) == pytest.approx((single.a, single.b, single.difference))
        assert list(mean.ci95) == pytest.approx(list(single.ci95), abs=0.6)
    assert exact.complement.difference == pytest.approx(errors.difference)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("num_runs", "deviations", "width"), [(5, (0.03, 0.03), 1.6), (3, (0.15, 0.15), 1.8), (3, (0.15, 0.02), 2.2)]
)
def test_the_interval_of_a_difference_of_means_holds(
    num_runs: int, deviations: tuple[float, float], width: float
) -> None:
    """Of 200 simulated studies, at least 93 % have an interval with the true difference, 0, which is not much too wide.

    The runs of a study differ by chance in their probability to be right, as seeds do, and find the same examples hard.
    """
    generator, differences, widths, contained = np.random.default_rng(1), list[float](), list[float](), 0
    for study in range(200):
        hardness = generator.normal(0, 0.2, 300)
        groups = [
            [
                [outcomes_of(np.clip(probability - hardness, 0, 1), 300, generator)]
                for probability in generator.normal(0.6, deviation, size=num_runs)
            ]
            for deviation in deviations
        ]
        exact = compare_means(groups[0], groups[1], seed=study)[0]
        differences.append(exact.difference)
        widths.append(exact.ci95.high - exact.ci95.low)
        contained += exact.ci95.low <= 0 <= exact.ci95.high
    assert contained / 200 >= 0.93
    assert np.mean(widths) < width * 2 * 1.96 * np.std(differences)


@pytest.mark.parametrize(("num_a", "num_b"), [(4, 4), (3, 4), (6, 5)])
def test_the_p_value_over_runs_is_that_of_scipy(num_a: int, num_b: int) -> None:
    generator = np.random.default_rng(num_a)
    for shift in (0.0, 1.0, 5.0):
        a, b = generator.normal(70 + shift, 1, num_a), generator.normal(70, 1, num_b)
        expected = stats.permutation_test(
            (a, b),
            lambda x, y, axis: abs(x.mean(axis=axis) - y.mean(axis=axis)),
            vectorized=True,
            alternative="greater",
        )
        assert permute_runs(a.tolist(), b.tolist()) == pytest.approx(expected.pvalue)
    separate = permute_runs([90.0 + index for index in range(num_a)], [10.0 + index for index in range(num_b)])
    assert separate == pytest.approx(smallest_run_p(num_a, num_b))


def test_few_runs_have_no_p_value() -> None:
    """Of three and three runs, the most extreme assignment and its mirror image are 2 of 20."""
    assert smallest_run_p(3, 3) == pytest.approx(0.1) and permute_runs([3.0, 4.0, 5.0], [0.0, 1.0, 2.0]) is None
    assert permute_runs([1.0], [2.0]) is None


def test_the_p_value_of_many_runs_is_estimated() -> None:
    generator = np.random.default_rng(2)
    a, b = generator.normal(70, 1, 15), generator.normal(70.5, 1, 15)
    expected = stats.ttest_ind(a, b).pvalue
    assert permute_runs(a.tolist(), b.tolist()) == pytest.approx(expected, abs=0.03)
    assert permute_runs(a.tolist(), (b + 50).tolist()) == pytest.approx(1 / 10_001)


def test_the_p_value_over_runs_is_rarely_small_without_a_difference() -> None:
    generator = np.random.default_rng(5)
    p_values = [permute_runs(*generator.normal(70, 1, (2, 5)).tolist()) for _ in range(400)]
    assert np.mean([p is not None and p <= 0.05 for p in p_values]) <= 0.075


def test_means_of_groups_need_the_same_examples() -> None:
    generator = np.random.default_rng(1)
    with pytest.raises(InputError, match="same examples"):
        compare_means([[outcomes_of(0.5, 3, generator)]], [[outcomes_of(0.5, 4, generator)]])
