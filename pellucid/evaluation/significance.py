"""Whether two runs differ by more than chance: paired bootstrap and a paired permutation test, on the same examples.

n examples of a group; R resamples. The three columns of a table are those of `outcomes`.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from pellucid.arguments import check_arguments
from pellucid.config.settings import Seed
from pellucid.errors import InputError
from pellucid.evaluation.metrics import Interval, resampled
from pellucid.evaluation.outcomes import Table, check_tables, rates
from pellucid.evaluation.scoring import ERROR_RATES, TaskMetrics

PERMUTATIONS = 10_000


class Difference(NamedTuple):
    """One rate of two runs A and B, in per cent, and what their difference is worth."""

    a: float
    b: float
    difference: float
    """a − b."""
    ci95: Interval
    """Its 95 % interval, by the paired bootstrap."""
    p: float
    """How often chance alone, swapping the two outputs of examples, makes a difference as great as this."""
    a_better: float
    """Share of the resamples in which A is better, those without a difference counted half."""

    @property
    def rest(self) -> "Difference":
        """Of a rate's difference, that of what the rate leaves of 100."""
        # From zero, for −0.0 would be told as such where nothing differs.
        difference, low, high = (0.0 - each for each in (self.difference, self.ci95.high, self.ci95.low))
        return Difference(100 - self.a, 100 - self.b, difference, Interval(low, high), self.p, self.a_better)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {**self._asdict(), "ci95": list(self.ci95)}


class Comparison(NamedTuple):
    """Run A against run B: rates over all examples, or means over groups without weights."""

    exact_match: Difference
    symbol_error_rate: Difference
    only_a: int
    """Examples that A alone has right."""
    only_b: int
    """Examples that B alone has right."""
    both: int
    neither: int
    metrics: TaskMetrics = ERROR_RATES

    @property
    def differences(self) -> dict[str, Difference]:
        """What is compared, by its name in JSON: of tags, classes and positions their accuracy, and no error rate."""
        if self.metrics.has_error_rates:
            return {"exact_match": self.exact_match, "symbol_error_rate": self.symbol_error_rate}
        return {"exact_match": self.exact_match, "accuracy": self.symbol_error_rate.rest}

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        counts = {name: getattr(self, name) for name in ("only_a", "only_b", "both", "neither")}
        return {**{name: each.to_dict() for name, each in self.differences.items()}, **counts}


@check_arguments
def compare(a: Sequence[Table], b: Sequence[Table], seed: Seed = 1) -> Comparison:
    """Compare the outcomes of two runs, group by group (one group where there are none) on the same examples.

    * Interval: each of `RESAMPLES` resamples draws the examples of each group with replacement, the same for both runs;
      the ends are the 2.5th and 97.5th percentile of the differences. Source: P. Koehn (2004), "Statistical
      significance tests for machine translation evaluation", EMNLP, section 4.
    * p: each of R = `PERMUTATIONS` times the two outputs of every example are swapped with probability ½;
      p = (1 + times with |difference| at least as great as seen) / (1 + R), two-sided. Source: E. W. Noreen (1989),
      "Computer-intensive methods for testing hypotheses"; S. Riezler and J. T. Maxwell (2005), "On some pitfalls in
      automatic evaluation and significance testing for MT", section 4.2.

    The results depend on the outcomes and the seed, not on the order of the examples.

    Raises:
        ArgumentError: There is no group, one has no example, or one is no table of outcomes.
        InputError: The runs have not the same number of examples.
    """
    check_tables("a", a)
    check_tables("b", b)
    if [len(table) for table in a] != [len(table) for table in b]:
        raise InputError("runs can be compared on the same examples only: they have different numbers of them")
    pairs = [np.hstack(tables) for tables in zip(a, b, strict=True)]
    generator = np.random.default_rng(seed)
    seen = _means(pairs, lambda pair: pair.sum(axis=0))
    drawn = _means(pairs, lambda pair: resampled(pair, generator))
    swapped = _means(pairs, lambda pair: _swapped(pair, generator))
    wrong = np.concatenate([pair[:, [0, 3]] for pair in pairs])
    both, only_a, only_b, neither = np.bincount(2 * wrong[:, 0] + wrong[:, 1], minlength=4).tolist()
    exact, errors = (_difference(seen[:, at], drawn[..., at], swapped[..., at], sign) for at, sign in ((0, 1), (1, -1)))
    return Comparison(exact, errors, only_a, only_b, both, neither)


def _means(
    pairs: Sequence[Int[np.ndarray, "_ 6"]], sums: Callable[[Int[np.ndarray, "_ 6"]], Int[np.ndarray, "*r 6"]]
) -> Float[np.ndarray, "2 *r 2"]:
    """Both rates of A and of B from some column sums of each group, the mean over groups."""
    found = []
    for pair in pairs:
        summed = sums(pair)
        found.append(np.stack([rates(summed[..., side], len(pair)) for side in (slice(3), slice(3, None))]))
    mean: Float[np.ndarray, "2 *r 2"] = np.mean(found, axis=0)
    return mean


def _swapped(pair: Int[np.ndarray, "n 6"], generator: np.random.Generator) -> Int[np.ndarray, "R 6"]:
    """Column sums when the sides of every example are swapped with probability ½.

    With s = a + b and d = a − b summed, d with random signs, the sides' sums are (s + d) / 2 and (s − d) / 2. Examples
    with equal d are interchangeable, so how many of them are swapped is one binomial draw.
    """
    differences = pair[:, :3] - pair[:, 3:]
    total = pair[:, :3].sum(axis=0) + pair[:, 3:].sum(axis=0)
    values, counts = np.unique(differences[differences.any(axis=1)], axis=0, return_counts=True)
    kept = generator.binomial(counts, 0.5, size=(PERMUTATIONS, len(counts)))
    signed = (2 * kept - counts) @ values.reshape(-1, 3)
    return np.hstack([(total + signed) // 2, (total - signed) // 2])


def _difference(
    seen: Float[np.ndarray, " 2"], drawn: Float[np.ndarray, "2 r"], swapped: Float[np.ndarray, "2 R"], better: int
) -> Difference:
    """One rate of both sides; `better` is 1 where more is better, −1 where less is."""
    a, b = seen.tolist()
    spread = drawn[0] - drawn[1]
    low, high = np.percentile(spread, [2.5, 97.5]).tolist()
    # What differs by rounding only is as great as what was seen.
    extreme = np.abs(swapped[0] - swapped[1]) >= abs(a - b) - 1e-9
    wins = (better * spread > 0).mean() + (spread == 0).mean() / 2
    return Difference(a, b, a - b, Interval(low, high), float((1 + extreme.sum()) / (1 + extreme.size)), float(wins))
