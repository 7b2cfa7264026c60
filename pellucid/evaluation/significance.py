"""Significance of the difference between two runs: paired bootstrap and paired permutation test.

n examples of a group; R resamples. The three columns of a table are those of `outcome_table`.
"""

import math
from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from pellucid.argument_checks import check_arguments, check_not_empty
from pellucid.config.settings import Seed
from pellucid.errors import InputError
from pellucid.evaluation.metrics import (
    CHUNK_COUNTS,
    Z95,
    ConfidenceInterval,
    RowCounts,
    count_rows,
    merge_rows,
    resample_counts,
    student_quantile,
)
from pellucid.evaluation.outcomes import OutcomeTable, check_tables, rates_from_sums
from pellucid.evaluation.task_metrics import ERROR_RATE_METRICS, TaskMetrics
from pellucid.row_file import BLOCK_ROWS
from pellucid.shapes import Float, Int

NUM_PERMUTATIONS = 10_000
MAX_ASSIGNMENTS = 200_000
"""Maximum number of assignments of runs to two groups that are all counted."""
MAX_P = 0.05
"""Maximum of the smallest possible p-value of a permutation test over runs that is reported."""


class RateDifference(NamedTuple):
    """One rate of runs A and B in percent, with the significance of their difference."""

    a: float
    b: float
    difference: float
    """a − b."""
    ci95: ConfidenceInterval
    """95 % interval of the difference, by the paired bootstrap."""
    p: float
    """Two-sided p-value of the paired permutation test."""
    a_better: float
    """Fraction of the bootstrap resamples in which A is better: has the higher exact match, or the lower error rate.

    Ties count one half.
    """

    @property
    def complement(self) -> "RateDifference":
        """The difference of 100 − x, for a rate x."""
        # Subtracted from zero, to avoid −0.0 for equal rates.
        difference, low, high = (0.0 - value for value in (self.difference, self.ci95.high, self.ci95.low))
        return RateDifference(
            100 - self.a, 100 - self.b, difference, ConfidenceInterval(low, high), self.p, self.a_better
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {**self._asdict(), "ci95": list(self.ci95)}


class MeanDifference(NamedTuple):
    """Difference of one rate between the means of two groups of runs, in percentage points."""

    a: float
    """Mean rate of the runs of group A, in percent."""
    b: float
    """Mean rate of the runs of group B, in percent."""
    difference: float
    """a − b."""
    ci95: ConfidenceInterval
    """95 % interval of the difference, by a bootstrap over examples and over the runs of each group."""
    p: float | None = None
    """Two-sided p-value of a permutation test over runs (`permute_runs`), on these examples; None if so few runs cannot
    give one of 0.05 or less."""

    @property
    def complement(self) -> "MeanDifference":
        """The difference of 100 − x, for a rate x."""
        difference, low, high = (0.0 - value for value in (self.difference, self.ci95.high, self.ci95.low))
        return MeanDifference(100 - self.a, 100 - self.b, difference, ConfidenceInterval(low, high), self.p)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {**self._asdict(), "ci95": list(self.ci95)}


class RunComparison(NamedTuple):
    """Run A compared with run B: rates over all examples, or macro averages over groups."""

    exact_match: RateDifference
    symbol_error_rate: RateDifference
    only_a: int
    """Number of examples that only A has right."""
    only_b: int
    """Number of examples that only B has right."""
    both: int
    """Number of examples that both have right."""
    neither: int
    """Number of examples that neither has right."""
    metrics: TaskMetrics = ERROR_RATE_METRICS
    """Metrics of the task, which select and name the rates; `compare_runs` sets them."""

    @property
    def differences(self) -> dict[str, RateDifference]:
        """Differences by JSON key: "exact_match", and "symbol_error_rate" or, for labels, "accuracy"."""
        if self.metrics.has_error_rates:
            return {"exact_match": self.exact_match, "symbol_error_rate": self.symbol_error_rate}
        return {"exact_match": self.exact_match, "accuracy": self.symbol_error_rate.complement}

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        counts = {name: getattr(self, name) for name in ("only_a", "only_b", "both", "neither")}
        return {**{name: difference.to_dict() for name, difference in self.differences.items()}, **counts}


@check_arguments
def compare_outcomes(a: Sequence[OutcomeTable], b: Sequence[OutcomeTable], seed: Seed = 1) -> RunComparison:
    """Compare the outcomes of two runs on the same examples, group by group.

    * Interval: each of `RESAMPLES` resamples draws the examples of each group with replacement, the same for both runs;
      the interval is between the 2.5th and the 97.5th percentile of the differences (Koehn 2004, section 4).
    * p-value: in each of R = `NUM_PERMUTATIONS` permutations, the two outputs of every example are swapped with
      probability ½; p = (1 + number of permutations with |difference| at least as large as observed) / (1 + R),
      two-sided (Noreen 1989; Riezler and Maxwell 2005, section 4.2).

    The results depend on the outcomes and the seed, not on the order of the examples.

    Rows are resampled independently. If several rows have the same source, they have the same output, and their
    outcomes depend on each other: intervals and p-values are then approximate, and can be too small or too great. Merge
    the targets of a source into one example with several references to compare by source.

    Args:
        a: Outcome tables of run A, one for each group.
        b: Outcome tables of run B, for the same examples.
        seed: Seed of bootstrap and permutations.

    Raises:
        InputError: The runs have different numbers of groups, or of examples in a group.
        ArgumentError: There is no group, a group is empty, or a value is not an outcome table.

    References:
        P. Koehn (2004), "Statistical significance tests for machine translation evaluation", EMNLP.
        E. W. Noreen (1989), "Computer-intensive methods for testing hypotheses".
        S. Riezler and J. T. Maxwell (2005), "On some pitfalls in automatic evaluation and significance testing for MT".
    """
    check_tables("a", a)
    check_tables("b", b)
    _check_same_sizes([a, b])
    return compare_groups_of_pairs([_count_joined(tables) for tables in zip(a, b, strict=True)], seed)


def compare_groups_of_pairs(groups: Sequence[RowCounts], seed: int = 1) -> RunComparison:
    """Compare the outcomes of two runs, as `compare_outcomes` does.

    Args:
        groups: For each group, the distinct rows of the outcome tables of both runs side by side, six columns; at least
            one group, and a row in each.
        seed: Seed of bootstrap and permutations.
    """
    generator = np.random.default_rng(seed)
    observed = _mean_rates(groups, lambda group: group.sums)
    resamples = _mean_rates(groups, lambda group: resample_counts(group, generator))
    permuted = _mean_rates(groups, lambda group: _permute_sums(group, generator))
    # Numbers of examples that are right in both runs, only in A, only in B, and in neither.
    places = np.concatenate([2 * group.rows[:, 0] + group.rows[:, 3] for group in groups])
    weights = np.concatenate([group.counts for group in groups])
    both, only_a, only_b, neither = map(int, np.bincount(places, weights=weights, minlength=4))
    exact, errors = (
        _rate_difference(observed[:, rate], resamples[..., rate], permuted[..., rate], sign)
        for rate, sign in ((0, 1), (1, -1))
    )
    return RunComparison(exact, errors, only_a, only_b, both, neither)


@check_arguments
def compare_means(
    a: Sequence[Sequence[OutcomeTable]], b: Sequence[Sequence[OutcomeTable]], seed: Seed = 1
) -> tuple[MeanDifference, MeanDifference]:
    """Compare the mean rates of two groups of runs, such as several seeds of two configurations.

    Each of `RESAMPLES` resamples draws the examples with replacement, the same for all runs, and the runs of each group
    with replacement; a single run is not resampled. The deviation of a mean of m drawn runs from the mean of all is
    multiplied by √(m / (m − 1)) · t(0.975; ν) / 1.96: a bootstrap of m values underestimates their variance by
    m / (m − 1), and few values know their own variance badly, as in Student's t. ν are Welch's degrees of freedom of
    the difference. The interval is between the 2.5th and the 97.5th percentile of the differences. It is too wide where
    runs err on different examples, because the choice of examples then counts in the differences between runs as well.
    Rows with the same source are resampled independently, as in `compare_outcomes`.

    Args:
        a: For each run of group A, its outcome tables, one for each group of examples.
        b: For each run of group B, those for the same examples.
        seed: Seed of the bootstrap.

    Returns:
        The differences of the exact match and of the symbol error rate.

    Raises:
        InputError: The runs have different numbers of groups of examples, or of examples in one.
        ArgumentError: There is no run, no group of examples, an empty group, or a value is not an outcome table.

    References:
        B. Efron and R. J. Tibshirani (1993), "An Introduction to the Bootstrap", chapter 6.
        T. C. Hesterberg (2015), "What Teachers Should Know About the Bootstrap", on expanded percentile intervals.
        B. L. Welch (1947), "The Generalization of 'Student's' Problem when Several Different Population Variances are
        Involved".
    """
    for name, runs in (("a", a), ("b", b)):
        check_not_empty(name, runs, "run")
        for tables in runs:
            check_tables(name, tables)
    runs = [*a, *b]
    _check_same_sizes(runs)
    return compare_groups_of_runs([_count_joined(tables) for tables in zip(*runs, strict=True)], len(a), seed)


def compare_groups_of_runs(
    groups: Sequence[RowCounts], num_a: int, seed: int = 1
) -> tuple[MeanDifference, MeanDifference]:
    """Compare the mean rates of two groups of runs, as `compare_means` does.

    Args:
        groups: For each group of examples, the distinct rows of the outcome tables of all runs side by side, three
            columns for each run; at least one group, and a row in each.
        num_a: Number of runs of group A, which are the first ones.
        seed: Seed of the bootstrap.
    """
    generator = np.random.default_rng(seed)
    observed, resampled = (
        np.mean([_rates_of_runs(sums(group), group.total) for group in groups], axis=0)
        for sums in (lambda group: group.sums, lambda group: resample_counts(group, generator))
    )
    parts = (slice(num_a), slice(num_a, None))
    expansion = np.array([_expansion(rates[:num_a], rates[num_a:]) for rates in observed])
    means = [_resampled_means(resampled[..., part], expansion, generator) for part in parts]
    exact, errors = (
        _mean_difference(rates[:num_a], rates[num_a:], spread)
        for rates, spread in zip(observed, means[0] - means[1], strict=True)
    )
    return exact, errors


def smallest_run_p(num_a: int, num_b: int) -> float:
    """Return the smallest p-value of `permute_runs` for groups of these sizes.

    An assignment of the runs to groups of equal size and its mirror image have the same absolute difference, so two
    assignments at least are as extreme as the most extreme one.

    Args:
        num_a: Number of runs of group A.
        num_b: Number of runs of group B.
    """
    return (2 if num_a == num_b else 1) / math.comb(num_a + num_b, num_a)


def permute_runs(a: Sequence[float], b: Sequence[float]) -> float | None:
    """Return the two-sided p-value of a permutation test for the difference between the means of two groups of runs.

    The null hypothesis is that the rates of all runs, such as seeds of two configurations, have one distribution on
    these examples. No other assumption is made. The p-value is the share of the assignments of the runs to the groups
    with at least the observed absolute difference: of all of them, or of `NUM_PERMUTATIONS` random ones and the
    observed one if there are more than `MAX_ASSIGNMENTS`.

    Args:
        a: Rate of each run of group A.
        b: Rate of each run of group B.

    Returns:
        The p-value; None if the smallest possible one is above 0.05, as for three runs and three.

    References:
        B. Phipson and G. K. Smyth (2010), "Permutation P-values should never be zero".
    """
    if smallest_run_p(len(a), len(b)) > MAX_P:
        return None
    values = np.array([*a, *b], dtype=np.float64)
    total, size = values.sum(), len(a)
    observed = abs(np.mean(a) - np.mean(b)) - 1e-9

    def differences(sums: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        """Return the absolute difference of the means for each sum of the rates of group A."""
        difference: Float[np.ndarray, " n"] = np.abs(sums / size - (total - sums) / (len(values) - size))
        return difference

    if math.comb(len(values), size) <= MAX_ASSIGNMENTS:
        sums = np.array([sum(chosen) for chosen in combinations(values.tolist(), size)])
        return float((differences(sums) >= observed).mean())
    generator = np.random.default_rng(1)
    drawn = np.array([generator.permutation(values)[:size].sum() for _ in range(NUM_PERMUTATIONS)])
    return float(((differences(drawn) >= observed).sum() + 1) / (NUM_PERMUTATIONS + 1))


def _rates_of_runs(sums: Int[np.ndarray, "*r c"], examples: int) -> Float[np.ndarray, "2 *r runs"]:
    """Return both rates of each run from the column sums of the stacked outcome tables of all runs."""
    rates = [rates_from_sums(sums[..., first : first + 3], examples) for first in range(0, sums.shape[-1], 3)]
    return np.moveaxis(np.stack(rates, axis=-1), -2, 0)


def _expansion(a: Float[np.ndarray, " m"], b: Float[np.ndarray, " k"]) -> float:
    """Return t(0.975; ν) / 1.96 with Welch's degrees of freedom ν of the difference between two means of runs."""
    groups = [group for group in (a, b) if len(group) > 1]
    if not groups:
        return 1.0
    variances = [float(group.var(ddof=1)) / len(group) for group in groups]
    weights = [variance**2 / (len(group) - 1) for variance, group in zip(variances, groups, strict=True)]
    freedom = sum(variances) ** 2 / sum(weights) if sum(weights) else sum(len(group) - 1 for group in groups)
    return student_quantile(freedom) / Z95


def _resampled_means(
    rates: Float[np.ndarray, "2 r m"], expansion: Float[np.ndarray, "2"], generator: np.random.Generator
) -> Float[np.ndarray, "2 r"]:
    """Return the mean over m runs in each resample, with runs drawn with replacement; see `compare_means`."""
    count = rates.shape[-1]
    mean: Float[np.ndarray, "2 r"] = rates.mean(axis=-1)
    if count == 1:
        return mean
    drawn = generator.integers(count, size=(rates.shape[1], count))
    drawn_mean = np.take_along_axis(rates, np.broadcast_to(drawn, rates.shape), axis=-1).mean(axis=-1)
    factors = expansion[:, None] * np.sqrt(count / (count - 1))
    scaled: Float[np.ndarray, "2 r"] = mean + factors * (drawn_mean - mean)
    return scaled


def _mean_difference(
    a: Float[np.ndarray, " m"], b: Float[np.ndarray, " k"], spread: Float[np.ndarray, " r"]
) -> MeanDifference:
    """Return the difference of the means of two groups with its interval from resampled differences, and its p."""
    mean_a, mean_b = float(a.mean()), float(b.mean())
    p = permute_runs(a.tolist(), b.tolist())
    return MeanDifference(mean_a, mean_b, mean_a - mean_b, _percentile_interval(spread), p)


def _percentile_interval(values: Float[np.ndarray, " r"]) -> ConfidenceInterval:
    """Return the interval between the 2.5th and the 97.5th percentile."""
    low, high = np.percentile(values, [2.5, 97.5]).tolist()
    return ConfidenceInterval(low, high)


def _check_same_sizes(runs: Sequence[Sequence[OutcomeTable]]) -> None:
    """Raise `InputError` if runs differ in the numbers of examples of their groups."""
    sizes = [[len(table) for table in tables] for tables in runs]
    if any(size != sizes[0] for size in sizes):
        raise InputError("runs must be compared on the same examples, but they have different numbers of examples")


def _count_joined(tables: Sequence[OutcomeTable]) -> RowCounts:
    """Return the distinct rows of outcome tables of the same examples side by side."""
    starts = range(0, len(tables[0]), BLOCK_ROWS)
    return count_rows(np.hstack([table[start : start + BLOCK_ROWS] for table in tables]) for start in starts)


def _mean_rates(
    groups: Sequence[RowCounts], sums: Callable[[RowCounts], Int[np.ndarray, "*r 6"]]
) -> Float[np.ndarray, "2 *r 2"]:
    """Return both rates of A and of B, averaged over groups, from column sums of each group."""
    rates = []
    for group in groups:
        group_sums, total = sums(group), group.total
        rates.append(np.stack([rates_from_sums(group_sums[..., side], total) for side in (slice(3), slice(3, None))]))
    mean: Float[np.ndarray, "2 *r 2"] = np.mean(rates, axis=0)
    return mean


def _permute_sums(pairs: RowCounts, generator: np.random.Generator) -> Int[np.ndarray, "R 6"]:
    """Return the column sums after swapping the two outputs of every example with probability ½.

    With s = a + b and d = a − b summed, d with random signs, the sums are (s + d) / 2 and (s − d) / 2. Examples with
    equal d are interchangeable, so the number of swapped ones is a binomial draw.
    """
    differences = pairs.rows[:, :3] - pairs.rows[:, 3:]
    total = pairs.sums[:3] + pairs.sums[3:]
    differs = differences.any(axis=1)
    values, counts = merge_rows(differences[differs], pairs.counts[differs])
    # The numbers drawn do not depend on how many are drawn in one call.
    chunk = max(1, CHUNK_COUNTS // max(1, len(values)))
    sizes = [min(chunk, NUM_PERMUTATIONS - first) for first in range(0, NUM_PERMUTATIONS, chunk)]
    signed = np.concatenate(
        [(2 * generator.binomial(counts, 0.5, size=(size, len(counts))) - counts) @ values for size in sizes]
    )
    return np.hstack([(total + signed) // 2, (total - signed) // 2])


def _rate_difference(
    observed: Float[np.ndarray, " 2"],
    resamples: Float[np.ndarray, "2 r"],
    permuted: Float[np.ndarray, "2 R"],
    sign: int,
) -> RateDifference:
    """Return the difference of one rate.

    Args:
        observed: Observed rates of A and B.
        resamples: Rates of A and B in each resample.
        permuted: Rates of A and B in each permutation.
        sign: 1 if higher is better, −1 if lower is better.
    """
    a, b = observed.tolist()
    spread = resamples[0] - resamples[1]
    # The tolerance counts differences that are equal except for rounding.
    extreme = np.abs(permuted[0] - permuted[1]) >= abs(a - b) - 1e-9
    wins = (sign * spread > 0).mean() + (spread == 0).mean() / 2
    return RateDifference(
        a, b, a - b, _percentile_interval(spread), float((1 + extreme.sum()) / (1 + extreme.size)), float(wins)
    )
