"""Whether a model knows when it is right: the probability of its outputs beside the share that is right."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from pellucid.arguments import LogProbability, check_arguments, check_lengths, check_not_empty
from pellucid.evaluation.metrics import Interval, wilson

BINS = 10
"""Probabilities are gathered in so many bins of equal width."""
SHARES = tuple(share / 100 for share in (10, 20, 30, 40, 50, 60, 70, 80, 90, 95, 100))
"""The shares of most certain outputs that are told of."""


class Bin(NamedTuple):
    """The outputs with a probability in (low, high]; 0 belongs to the first bin."""

    low: float
    high: float
    total: int
    right: int
    confidence: float
    """Mean probability; the bin's middle where it is empty."""
    ci95: Interval
    """Wilson's interval of the share right."""

    @property
    def accuracy(self) -> float:
        """Share right; 0 where the bin is empty."""
        return self.right / max(1, self.total)


class Certain(NamedTuple):
    """The most certain outputs, so many that they make up `share` of all, and what is left for review."""

    share: float
    accuracy: float
    """Share right among them."""
    caught: float
    """Share of all errors that lie among the others, which a review of these would find; 1 where there is no error."""
    probability: float
    """The least probability among them."""


@dataclass(frozen=True)
class Calibration:
    """How far probabilities can be believed. All values are shares of 1."""

    bins: list[Bin]
    expected_error: float
    """ECE = Σ_bins count / n · |accuracy − confidence| (Guo et al. 2017, equation 3)."""
    brier: float
    """Mean of (p − right)², right being 1 or 0 (Brier 1950): 0 is best, 0.25 what p = ½ throughout gets."""
    confidence: float
    """Mean probability."""
    accuracy: float
    """Share right."""
    certain: list[Certain]
    """Accuracy among the most certain share, for `SHARES`: the risk-coverage curve turned round."""
    risk_area: float
    """AURC: the mean, over all coverages 1/n … n/n, of the share wrong among the most certain (Geifman et al. 2019)."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        bins = [{**each._asdict(), "ci95": list(each.ci95), "accuracy": each.accuracy} for each in self.bins]
        return {
            "expected_calibration_error": self.expected_error,
            "brier": self.brier,
            "mean_probability": self.confidence,
            "share_right": self.accuracy,
            "bins": bins,
            "risk_coverage_area": self.risk_area,
            "most_certain": [each._asdict() for each in self.certain],
        }


@check_arguments
def calibration(log_probabilities: Sequence[LogProbability], right: Sequence[bool]) -> Calibration:
    """Calibration of outputs with these ln p, at least one; the order of the examples changes nothing.

    Sources: C. Guo, G. Pleiss, Y. Sun and K. Q. Weinberger (2017), "On calibration of modern neural networks", section
    2; G. W. Brier (1950), "Verification of forecasts expressed in terms of probability"; R. El-Yaniv and Y. Wiener
    (2010), "On the foundations of noise-free selective classification"; Y. Geifman, G. Uziel and R. El-Yaniv (2019),
    "Bias-reduced uncertainty estimation for deep neural classifiers" (AURC).

    Args:
        log_probabilities: ln p of n outputs; −∞ for one that is impossible.
        right: Whether each of them is right.

    Raises:
        ArgumentError: There is no output, there are not as many of both, or one is no log-probability.
    """
    check_lengths(log_probabilities=log_probabilities, right=right)
    check_not_empty("log_probabilities", log_probabilities, "output")
    scores, hits = np.asarray(log_probabilities, np.float64), np.asarray(right, bool)
    # Sorted, so that sums are of the same terms in the same order however the examples stood.
    order = np.lexsort((hits, -scores))
    scores, hits = scores[order], hits[order]
    chances = np.minimum(np.exp(scores), 1.0)
    bins = _bins(chances, hits)
    accuracies = _running_accuracy(scores, hits)
    return Calibration(
        bins=bins,
        expected_error=sum(each.total * abs(each.accuracy - each.confidence) for each in bins) / len(hits),
        brier=float(((chances - hits) ** 2).mean()),
        confidence=float(chances.mean()),
        accuracy=float(hits.mean()),
        certain=[_certain(share, accuracies, chances) for share in SHARES],
        risk_area=float(1 - accuracies.mean()),
    )


def _bins(chances: Float[np.ndarray, " n"], hits: Bool[np.ndarray, " n"]) -> list[Bin]:
    """The bins (i / BINS, (i + 1) / BINS]."""
    places = np.clip(np.ceil(chances * BINS).astype(int) - 1, 0, BINS - 1)
    counts = np.bincount(places, minlength=BINS)
    right = np.bincount(places, weights=hits, minlength=BINS).astype(int)
    sums = np.bincount(places, weights=chances, minlength=BINS)
    found = []
    for at, (count, hit) in enumerate(zip(counts.tolist(), right.tolist(), strict=True)):
        confidence = float(sums[at]) / count if count else (at + 0.5) / BINS
        found.append(Bin(at / BINS, (at + 1) / BINS, count, hit, confidence, wilson(hit, count)))
    return found


def _running_accuracy(scores: Float[np.ndarray, " n"], hits: Bool[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """The share right among the first 1, 2, … n of scores that fall.

    Of outputs with equal scores each counts as their mean: what is to be expected when they stand in any order.
    """
    _, inverse, counts = np.unique(-scores, return_inverse=True, return_counts=True)
    means = np.bincount(inverse, weights=hits) / counts
    running: Float[np.ndarray, " n"] = np.cumsum(means[inverse]) / np.arange(1, len(hits) + 1)
    return running.clip(0.0, 1.0)


def _certain(share: float, accuracies: Float[np.ndarray, " n"], chances: Float[np.ndarray, " n"]) -> Certain:
    """The most certain share, rounded to whole outputs and at least one."""
    total = len(accuracies)
    kept = max(1, round(share * total))
    errors, among = total * (1 - accuracies[-1]), kept * (1 - accuracies[kept - 1])
    caught = float(np.clip(1 - among / errors, 0.0, 1.0)) if errors > 1e-9 else 1.0
    return Certain(share, float(accuracies[kept - 1]), caught, float(chances[kept - 1]))
