"""Outcome tables for resampling: per example, whether its output is wrong, its errors, and its reference length.

n examples; the three columns are those of `outcome_table`.
"""

from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple

import numpy as np
from msgspec import Meta

from pellucid.argument_checks import argument_error, check_arguments, check_not_empty
from pellucid.config.settings import Seed
from pellucid.evaluation.metrics import (
    ConfidenceInterval,
    OutcomeCounts,
    RowCounts,
    ScoredExample,
    count_distinct_rows,
    resample_counts,
)
from pellucid.shapes import Float, Int

OutcomeTable = Annotated[Int[np.ndarray, "_ 3"], Meta(ge=0, le=2**31)]
"""One row for each example, as `outcome_table` returns it."""


class MeanRates(NamedTuple):
    """Macro average over groups of exact match and symbol error rate, in percent, with 95 % bootstrap intervals."""

    exact_match: float
    exact_match_ci95: ConfidenceInterval
    symbol_error_rate: float
    symbol_error_rate_ci95: ConfidenceInterval

    @property
    def sequence_error_rate(self) -> float:
        """Percentage of wrong outputs, 100 − exact match."""
        return 100 - self.exact_match

    @property
    def sequence_error_rate_ci95(self) -> ConfidenceInterval:
        """Interval of the percentage of wrong outputs."""
        return self.exact_match_ci95.complement

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        names = ("exact_match_ci95", "symbol_error_rate_ci95", "sequence_error_rate_ci95")
        return {
            **self._asdict(),
            "sequence_error_rate": self.sequence_error_rate,
            **{name: list(getattr(self, name)) for name in names},
        }


@check_arguments
def outcome_table(scored: Sequence[ScoredExample]) -> Int[np.ndarray, "n 3"]:
    """Return one row for each example: 1 if its output is wrong, its errors, and the length of the nearest reference.

    Errors are the edit distance to that reference; for labels, the number of wrong labels.

    Args:
        scored: Outputs with references.

    Raises:
        InputError: An example has no reference.
    """
    outcomes = OutcomeCounts()
    outcomes.add(scored)
    return outcomes.table()


@check_arguments
def rates_from_sums(
    sums: Annotated[Int[np.ndarray, "*r 3"], Meta(ge=0)], total: Annotated[int, Meta(ge=1, le=2**31)]
) -> Float[np.ndarray, "*r 2"]:
    """Return exact match and symbol error rate in percent, on the last axis; a reference length of 0 counts as 1.

    Args:
        sums: Column sums of an outcome table, or of several tables of `total` rows; shape (..., 3).
        total: Number of rows of the table, at least 1.

    Raises:
        ArgumentError: An argument has a wrong type, shape or range.
    """
    exact = 100 * (1 - sums[..., 0] / total)
    errors = 100 * sums[..., 1] / np.maximum(sums[..., 2], 1)
    rates: Float[np.ndarray, "*r 2"] = np.stack([exact, errors], axis=-1)
    return rates


@check_arguments
def check_tables(name: str, tables: Sequence[OutcomeTable]) -> None:
    """Check that there is at least one group, and that each is an outcome table with an example.

    Args:
        name: Name of the argument, for messages.
        tables: Outcome table of each group.

    Raises:
        ArgumentError: There is no group, a group is empty, or its first column has other values than 0 and 1.
    """
    check_not_empty(name, tables, "group")
    for index, table in enumerate(tables):
        check_not_empty(f"{name}[{index}]", table, "example")
        if table[:, 0].max() > 1:
            raise argument_error(f"{name}[{index}]", "a first column of 0 and 1", table)


@check_arguments
def macro_average(tables: Sequence[OutcomeTable], seed: Seed = 1) -> MeanRates:
    """Return the macro average of exact match and symbol error rate over groups, with bootstrap intervals.

    Every group counts equally. Examples are resampled within each group: groups keep their sizes in resampling; the
    interval is between the 2.5th and the 97.5th percentile of the means.

    Args:
        tables: Outcome table of each group.
        seed: Seed of the bootstrap.

    Raises:
        ArgumentError: There is no group, a group is empty, or a value is not an outcome table.

    References:
        Efron and Tibshirani (1993), chapter 8, on the stratified bootstrap.
    """
    check_tables("tables", tables)
    return average_groups(list(map(count_distinct_rows, tables)), seed)


def average_groups(groups: Sequence[RowCounts], seed: int = 1) -> MeanRates:
    """Return the macro average over groups, as `macro_average` does.

    Args:
        groups: Distinct rows of the outcome table of each group; at least one group, and a row in each.
        seed: Seed of the bootstrap.
    """
    generator = np.random.default_rng(seed)
    exact, errors = np.mean([rates_from_sums(group.sums, group.total) for group in groups], axis=0).tolist()
    resamples = np.mean([rates_from_sums(resample_counts(group, generator), group.total) for group in groups], axis=0)
    low, high = np.percentile(resamples, [2.5, 97.5], axis=0).tolist()
    return MeanRates(exact, ConfidenceInterval(low[0], high[0]), errors, ConfidenceInterval(low[1], high[1]))
