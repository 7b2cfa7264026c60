"""Significance of the difference between two runs: paired bootstrap and paired permutation test.

n examples of a group; R resamples. The three columns of a table are those of `outcome_table`.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from pellucid.argument_checks import check_arguments
from pellucid.config.settings import Seed
from pellucid.errors import InputError
from pellucid.evaluation.metrics import ConfidenceInterval, resample_sums
from pellucid.evaluation.outcomes import OutcomeTable, check_tables, rates_from_sums
from pellucid.evaluation.task_metrics import ERROR_RATE_METRICS, TaskMetrics

NUM_PERMUTATIONS = 10_000


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
    if [len(table) for table in a] != [len(table) for table in b]:
        raise InputError("runs must be compared on the same examples, but they have different numbers of examples")
    pairs = [np.hstack(tables) for tables in zip(a, b, strict=True)]
    generator = np.random.default_rng(seed)
    observed = _mean_rates(pairs, lambda pair: pair.sum(axis=0))
    resamples = _mean_rates(pairs, lambda pair: resample_sums(pair, generator))
    permuted = _mean_rates(pairs, lambda pair: _permute_sums(pair, generator))
    wrong = np.concatenate([pair[:, [0, 3]] for pair in pairs])
    both, only_a, only_b, neither = np.bincount(2 * wrong[:, 0] + wrong[:, 1], minlength=4).tolist()
    exact, errors = (
        _rate_difference(observed[:, rate], resamples[..., rate], permuted[..., rate], sign)
        for rate, sign in ((0, 1), (1, -1))
    )
    return RunComparison(exact, errors, only_a, only_b, both, neither)


def _mean_rates(
    pairs: Sequence[Int[np.ndarray, "_ 6"]], sums: Callable[[Int[np.ndarray, "_ 6"]], Int[np.ndarray, "*r 6"]]
) -> Float[np.ndarray, "2 *r 2"]:
    """Return both rates of A and of B, averaged over groups, from column sums of each group."""
    rates = []
    for pair in pairs:
        group_sums = sums(pair)
        rates.append(
            np.stack([rates_from_sums(group_sums[..., side], len(pair)) for side in (slice(3), slice(3, None))])
        )
    mean: Float[np.ndarray, "2 *r 2"] = np.mean(rates, axis=0)
    return mean


def _permute_sums(pair: Int[np.ndarray, "n 6"], generator: np.random.Generator) -> Int[np.ndarray, "R 6"]:
    """Return the column sums after swapping the two outputs of every example with probability ½.

    With s = a + b and d = a − b summed, d with random signs, the sums are (s + d) / 2 and (s − d) / 2. Examples with
    equal d are interchangeable, so the number of swapped ones is a binomial draw.
    """
    differences = pair[:, :3] - pair[:, 3:]
    total = pair[:, :3].sum(axis=0) + pair[:, 3:].sum(axis=0)
    values, counts = np.unique(differences[differences.any(axis=1)], axis=0, return_counts=True)
    num_unchanged = generator.binomial(counts, 0.5, size=(NUM_PERMUTATIONS, len(counts)))
    signed = (2 * num_unchanged - counts) @ values.reshape(-1, 3)
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
    low, high = np.percentile(spread, [2.5, 97.5]).tolist()
    # The tolerance counts differences that are equal except for rounding.
    extreme = np.abs(permuted[0] - permuted[1]) >= abs(a - b) - 1e-9
    wins = (sign * spread > 0).mean() + (spread == 0).mean() / 2
    return RateDifference(
        a, b, a - b, ConfidenceInterval(low, high), float((1 + extreme.sum()) / (1 + extreme.size)), float(wins)
    )
