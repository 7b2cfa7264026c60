"""What resampling needs to know of each example: whether its output is wrong, by how many symbols, of how many.

n examples; the three columns of a table are those of `Outcomes`.
"""

from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int, Shaped
from msgspec import Meta

from pellucid.arguments import argument_error, check_arguments, check_not_empty
from pellucid.config.settings import Seed
from pellucid.evaluation.metrics import Interval, Scored, resampled

Table = Annotated[Int[np.ndarray, "_ 3"], Meta(ge=0, le=2**31)]
"""A row for each example, as `outcomes` gives it."""


class Rates(NamedTuple):
    """Two rates, in per cent."""

    exact_match: float
    symbol_error_rate: float


class Mean(NamedTuple):
    """The mean of both rates over groups, each of the same weight, with its 95 % bootstrap intervals."""

    exact_match: float
    exact_match_ci95: Interval
    symbol_error_rate: float
    symbol_error_rate_ci95: Interval

    @property
    def wer(self) -> float:
        """Share of wrong outputs: the rest of the exact match."""
        return 100 - self.exact_match

    @property
    def wer_ci95(self) -> Interval:
        """Its interval."""
        return self.exact_match_ci95.rest

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        names = ("exact_match_ci95", "symbol_error_rate_ci95", "wer_ci95")
        return {**self._asdict(), "wer": self.wer, **{name: list(getattr(self, name)) for name in names}}


@check_arguments
def outcomes(scored: Sequence[Scored]) -> Int[np.ndarray, "n 3"]:
    """For each example: 1 if its output is wrong, its edit distance, the length of the nearest reference."""
    rows = [(not example.exact, *_sizes(example)) for example in scored]
    return np.array(rows, np.int64).reshape(-1, 3)


def rates(sums: Shaped[np.ndarray, "*r 3"], total: int) -> Float[np.ndarray, "*r 2"]:
    """Exact match and symbol error rate, in per cent, from column sums over `total` examples."""
    exact = 100 * (1 - sums[..., 0] / total)
    errors = 100 * sums[..., 1] / np.maximum(sums[..., 2], 1)
    found: Float[np.ndarray, "*r 2"] = np.stack([exact, errors], axis=-1)
    return found


def check_tables(name: str, tables: Sequence[Table]) -> None:
    """Check that there is a group, and that each has an example.

    Raises:
        ArgumentError: There is no group, or one is empty, or its first column is not 0 or 1.
    """
    check_not_empty(name, tables, "group")
    for at, table in enumerate(tables):
        check_not_empty(f"{name}[{at}]", table, "example")
        if table[:, 0].max() > 1:
            raise argument_error(f"{name}[{at}]", "a first column of 0 and 1", table)


@check_arguments
def mean_of_groups(tables: Sequence[Table], seed: Seed = 1) -> Mean:
    """The mean over groups without weights (macro average), and the interval from resampling within each group.

    Every group is drawn anew by itself, so that groups keep their sizes; the 2.5th and 97.5th percentile of the means
    are the ends (the stratified bootstrap of Efron and Tibshirani 1993, chapter 8).

    Raises:
        ArgumentError: There is no group, one has no example, or one is no table of outcomes.
    """
    check_tables("tables", tables)
    generator = np.random.default_rng(seed)
    exact, errors = np.mean([rates(table.sum(axis=0), len(table)) for table in tables], axis=0).tolist()
    drawn = np.mean([rates(resampled(table, generator), len(table)) for table in tables], axis=0)
    low, high = np.percentile(drawn, [2.5, 97.5], axis=0).tolist()
    return Mean(exact, Interval(low[0], high[0]), errors, Interval(low[1], high[1]))


def _sizes(example: Scored) -> tuple[int, int]:
    """The edit distance and the length of the reference it is to."""
    errors, reference = example.nearest
    return errors, len(reference)
