"""Calibration: agreement between predicted probabilities and the observed accuracy."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import numpy as np
from msgspec import Meta

from pellucid.argument_checks import LogProbability, check_arguments, check_lengths, check_not_empty
from pellucid.evaluation.metrics import ConfidenceInterval, wilson_interval
from pellucid.shapes import Bool, Float

Probability = Annotated[float, Meta(ge=0.0, le=1.0)]
NUM_BINS = 10
"""Number of probability bins of equal width."""
NUM_DRAWS = 200
"""Number of simulated sets of outcomes for the calibration error by chance."""
COVERAGES = tuple(share / 100 for share in (10, 20, 30, 40, 50, 60, 70, 80, 90, 95, 100))
"""Coverages at which selective accuracy is reported."""


class CalibrationBin(NamedTuple):
    """Outputs with a probability in (low, high]; the first bin includes 0."""

    low: float
    high: float
    total: int
    """Number of outputs in the bin."""
    right: int
    """Number of correct ones."""
    confidence: float
    """Mean probability; the center of an empty bin."""
    ci95: ConfidenceInterval
    """Wilson interval of the accuracy, as fractions of 1; (0, 1) for an empty bin."""

    @property
    def accuracy(self) -> float:
        """Fraction of correct outputs; 0 for an empty bin."""
        return self.right / max(1, self.total)


class CoveragePoint(NamedTuple):
    """Selective prediction at one coverage: the most confident outputs are accepted, the others reviewed."""

    coverage: float
    """Fraction of outputs that are accepted, of `COVERAGES`; at least one output is."""
    accuracy: float
    """Accuracy of the accepted outputs; of equally probable outputs at the threshold, the mean accuracy counts."""
    error_recall: float
    """Fraction of all errors that are in the remainder; 1 if there is no error."""
    threshold: float
    """Confidence threshold: the lowest probability of an accepted output."""


@dataclass(frozen=True)
class Calibration:
    """Calibration metrics of outputs, or of tags. All values are fractions of 1."""

    bins: list[CalibrationBin]
    expected_calibration_error: float
    """Expected calibration error, ECE = Σ_bins count / n · |accuracy − confidence| (Guo et al. 2017, equation 3)."""
    brier: float
    """Brier score, the mean of (p − correct)² with correct 1 or 0 (Brier 1950); 0 is best, p = ½ throughout gives 0.25.
    """
    mean_probability: float
    """Mean probability of the outputs."""
    accuracy: float
    """Fraction of correct outputs."""
    coverage_points: list[CoveragePoint]
    """Accuracy of the most confident outputs at each of `COVERAGES` (one minus the risk-coverage curve)."""
    risk_coverage_area: float
    """Area under the risk-coverage curve (AURC): the mean error rate over all coverages 1/n … n/n (Geifman et al.
    2019)."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        bins = [{**row._asdict(), "ci95": list(row.ci95), "accuracy": row.accuracy} for row in self.bins]
        return {
            "expected_calibration_error": self.expected_calibration_error,
            "brier": self.brier,
            "mean_probability": self.mean_probability,
            "accuracy": self.accuracy,
            "bins": bins,
            "risk_coverage_area": self.risk_coverage_area,
            "coverage_points": [point._asdict() for point in self.coverage_points],
        }


@check_arguments
def measure_calibration(log_probabilities: Sequence[LogProbability], right: Sequence[bool]) -> Calibration:
    """Measure how well the probabilities of outputs predict whether they are correct.

    The order of the outputs does not matter.

    Args:
        log_probabilities: Natural log-probability of each output, at least one; −∞ is probability 0.
        right: Whether each output is correct.

    Raises:
        ArgumentError: There is no output, the arguments differ in length, or a value is not a log-probability.

    References:
        C. Guo, G. Pleiss, Y. Sun and K. Q. Weinberger (2017), "On calibration of modern neural networks", section 2.
        G. W. Brier (1950), "Verification of forecasts expressed in terms of probability".
        R. El-Yaniv and Y. Wiener (2010), "On the foundations of noise-free selective classification".
        Y. Geifman, G. Uziel and R. El-Yaniv (2019), "Bias-reduced uncertainty estimation for deep neural classifiers"
            (AURC).
    """
    check_lengths({"log_probabilities": log_probabilities, "right": right})
    check_not_empty("log_probabilities", log_probabilities, "output")
    return compute_calibration(np.asarray(log_probabilities, np.float64), np.asarray(right, bool))


def compute_calibration(scores: Float[np.ndarray, " n"], hits: Bool[np.ndarray, " n"]) -> Calibration:
    """Return the calibration metrics of outputs, as `measure_calibration` does.

    Args:
        scores: Log-probability of each output, at least one.
        hits: Whether each output is correct.
    """
    # Sorted, so that floating-point sums do not depend on the order of the examples.
    order = np.lexsort((hits, -scores))
    scores, hits = scores[order], hits[order]
    probabilities = np.minimum(np.exp(scores), 1.0)
    bins = _calibration_bins(probabilities, hits)
    accuracies = _running_accuracy(scores, hits)
    return Calibration(
        bins=bins,
        expected_calibration_error=sum(row.total * abs(row.accuracy - row.confidence) for row in bins) / len(hits),
        brier=float(((probabilities - hits) ** 2).mean()),
        mean_probability=float(probabilities.mean()),
        accuracy=float(hits.mean()),
        coverage_points=[_coverage_point(coverage, accuracies, probabilities) for coverage in COVERAGES],
        risk_coverage_area=float(1 - accuracies.mean()),
    )


@check_arguments
def calibration_error_by_chance(confidences: Sequence[Probability]) -> float:
    """Return the expected calibration error that perfectly calibrated confidences have by chance, a fraction of 1.

    It is not 0, since the accuracy of the few outputs in a bin deviates from its mean. It is the mean over
    `NUM_DRAWS` draws of outcomes, in which each output is correct with the probability that is its confidence.

    Args:
        confidences: Confidence of each output; at least one.

    Raises:
        ArgumentError: There is no output, or a value is not a probability.
    """
    check_not_empty("confidences", confidences, "output")
    return compute_error_by_chance(np.asarray(confidences, np.float64))


def compute_error_by_chance(confidences: Float[np.ndarray, " n"]) -> float:
    """Return the expected calibration error by chance, as `calibration_error_by_chance` does.

    Args:
        confidences: Confidence of each output; at least one.
    """
    values = np.sort(confidences)
    bins = np.clip(np.ceil(values * NUM_BINS).astype(int) - 1, 0, NUM_BINS - 1)
    generator, errors = np.random.default_rng(0), list[float]()
    for _ in range(NUM_DRAWS):
        differences = (generator.random(len(values)) < values) - values
        errors.append(np.abs(np.bincount(bins, weights=differences)).sum())
    return float(np.mean(errors) / len(values))


def _calibration_bins(probabilities: Float[np.ndarray, " n"], hits: Bool[np.ndarray, " n"]) -> list[CalibrationBin]:
    """Return the bins (i / NUM_BINS, (i + 1) / NUM_BINS]."""
    bin_indices = np.clip(np.ceil(probabilities * NUM_BINS).astype(int) - 1, 0, NUM_BINS - 1)
    counts = np.bincount(bin_indices, minlength=NUM_BINS)
    right = np.bincount(bin_indices, weights=hits, minlength=NUM_BINS).astype(int)
    sums = np.bincount(bin_indices, weights=probabilities, minlength=NUM_BINS)
    bins = []
    for index, (count, hit) in enumerate(zip(counts.tolist(), right.tolist(), strict=True)):
        confidence = float(sums[index]) / count if count else (index + 0.5) / NUM_BINS
        bins.append(
            CalibrationBin(
                index / NUM_BINS, (index + 1) / NUM_BINS, count, hit, confidence, wilson_interval(hit, count)
            )
        )
    return bins


def _running_accuracy(scores: Float[np.ndarray, " n"], hits: Bool[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """Return the accuracy among the first 1, 2, … n outputs, sorted by descending score.

    Outputs with equal scores each count as their mean, the expected value over their possible orders.
    """
    numbers = np.cumsum(np.concatenate([[False], scores[1:] != scores[:-1]]))  # of the distinct scores, in their order
    means = np.bincount(numbers, weights=hits) / np.bincount(numbers)
    running: Float[np.ndarray, " n"] = np.cumsum(means[numbers])
    running /= np.arange(1, len(hits) + 1)
    return running.clip(0.0, 1.0, out=running)


def _coverage_point(
    coverage: float, accuracies: Float[np.ndarray, " n"], probabilities: Float[np.ndarray, " n"]
) -> CoveragePoint:
    """Return the metrics at a coverage, rounded to whole outputs and at least one."""
    total = len(accuracies)
    num_accepted = max(1, round(coverage * total))
    errors, accepted_errors = total * (1 - accuracies[-1]), num_accepted * (1 - accuracies[num_accepted - 1])
    error_recall = float(np.clip(1 - accepted_errors / errors, 0.0, 1.0)) if errors > 1e-9 else 1.0
    accuracy, probability = float(accuracies[num_accepted - 1]), float(probabilities[num_accepted - 1])
    return CoveragePoint(coverage, accuracy, error_recall, probability)
