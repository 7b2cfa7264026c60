"""Calibration: agreement between predicted probabilities and the observed accuracy.

n outputs, sorted by their probabilities in a file (`RowFile`), which is read in blocks: memory does not grow with the
outputs. The results do not depend on the order of the outputs or on the sizes of the blocks.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Any, NamedTuple

import numpy as np
from msgspec import Meta

from pellucid.argument_checks import LogProbability, check_arguments, check_lengths, check_not_empty
from pellucid.evaluation.metrics import ConfidenceInterval, wilson_interval
from pellucid.row_file import BLOCK_ROWS, RowFile
from pellucid.shapes import Bool, Float, Int, UInt

Probability = Annotated[float, Meta(ge=0.0, le=1.0)]
NUM_BINS = 10
"""Number of probability bins of equal width."""
MIN_PAIRWISE = 128
"""Number of numbers up to which NumPy does not halve a sum."""
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
    mean_probability: float
    """Mean probability of the outputs in the bin; the center of an empty bin."""
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
    """Expected calibration error, ECE = Σ_bins count / n · |accuracy − mean p| (Guo et al. 2017, equation 3)."""
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
    return compute_calibration([(np.asarray(log_probabilities, np.float64), np.asarray(right, bool))])


def compute_calibration(blocks: Iterable[tuple[Float[np.ndarray, " _"], Bool[np.ndarray, " _"]]]) -> Calibration:
    """Return the calibration metrics of outputs, as `measure_calibration` does.

    Args:
        blocks: Log-probability of each output, and whether it is correct; at least one output. A log-probability above
            0, which only rounding gives, counts as 0.
    """
    outputs = SortedOutputs(blocks)
    total, sums, positions = len(outputs), CalibrationSums(), _accepted_counts(len(outputs))
    at_positions = dict[int, tuple[float, float]]()

    def add_block(start: int, stop: int) -> Float[np.ndarray, "3"]:
        """Return the sums of squared errors, of probabilities and of accuracies of some outputs.

        Args:
            start: Number of the first of them.
            stop: Number after the last of them.
        """
        scores, hits, expected = outputs.read(start, stop)
        probabilities = np.minimum(np.exp(scores), 1.0)
        accuracies = sums.add(probabilities, hits, expected)
        for position in positions:
            if start < position <= stop:
                place = position - 1 - start
                at_positions[position] = (float(accuracies[place]), float(probabilities[place]))
        values = ((probabilities - hits) ** 2, probabilities, accuracies)
        return np.array([each.sum() for each in values])

    squares, probability_sum, accuracy_sum = sum_pairwise(total, BLOCK_ROWS, add_block).tolist()
    bins = sums.bins()
    return Calibration(
        bins=bins,
        expected_calibration_error=sum(row.total * abs(row.accuracy - row.mean_probability) for row in bins) / total,
        brier=squares / total,
        mean_probability=probability_sum / total,
        accuracy=int(sums.right.sum()) / total,
        coverage_points=[
            _coverage_point(coverage, position, at_positions[position], total, at_positions[total][0])
            for coverage, position in zip(COVERAGES, positions, strict=True)
        ],
        risk_coverage_area=1 - accuracy_sum / total,
    )


def sum_pairwise(
    total: int, block_size: int, sum_block: Callable[[int, int], Float[np.ndarray, " c"]], start: int = 0
) -> Float[np.ndarray, " c"]:
    """Return sums of numbers as NumPy adds them, whatever the size of the blocks is: of halves, and of their halves.

    Args:
        total: Number of the numbers.
        block_size: Maximum number of numbers of a block; less than `MIN_PAIRWISE` counts as that.
        sum_block: Function that returns sums of numbers from a start to a stop; it is called for successive blocks.
        start: Number of the first one; 0 by default.

    References:
        N. J. Higham (1993), "The accuracy of floating point summation", section 3 (pairwise summation).
    """
    if total <= max(block_size, MIN_PAIRWISE):
        return sum_block(start, start + total)
    half = total // 2
    half -= half % 8
    sums: Float[np.ndarray, " c"] = sum_pairwise(half, block_size, sum_block, start)
    sums = sums + sum_pairwise(total - half, block_size, sum_block, start + half)
    return sums


class SortedOutputs:
    """Outputs by descending log-probability, of equal ones the wrong ones first: 8 bytes for each in a file."""

    def __init__(self, blocks: Iterable[tuple[Float[np.ndarray, " _"], Bool[np.ndarray, " _"]]]) -> None:
        """Sort outputs.

        Args:
            blocks: Log-probability of each output, and whether it is correct.
        """
        # The bits of positive numbers have their order. The sign is free for the last bit: whether it is correct.
        keys = RowFile(np.uint64)
        for scores, hits in blocks:
            keys.extend_rows(np.maximum(0.0 - scores, 0.0).view(np.uint64) << np.uint64(1) | hits)
        keys.sort()
        self._keys: UInt[np.ndarray, " n"] = keys.rows

    def __len__(self) -> int:
        """Return the number of outputs."""
        return len(self._keys)

    def read(
        self, start: int, stop: int
    ) -> tuple[Float[np.ndarray, " _"], Bool[np.ndarray, " _"], Float[np.ndarray, " _"]]:
        """Return log-probabilities of outputs, whether they are correct, and the mean of that over equal probabilities.

        Args:
            start: Number of the first output.
            stop: Number after the last output.
        """
        keys = self._keys[start:stop]
        codes, hits = keys >> np.uint64(1), (keys & np.uint64(1)).astype(bool)
        # Outputs with equal log-probabilities follow each other; those at both ends may also be in other blocks.
        firsts = np.flatnonzero(np.append([True], codes[1:] != codes[:-1]))
        bounds = start + np.append(firsts, stop - start)
        bounds[0], bounds[-1] = self._find(codes[0], 0), self._find(codes[-1], 2)
        num_hits = np.add.reduceat(hits, firsts, dtype=np.int64)
        for place in (0, -1):
            num_hits[place] = self._find(codes[firsts[place]], 2) - self._find(codes[firsts[place]], 1)
        means = num_hits / np.diff(bounds)
        expected = np.repeat(means, np.diff(np.append(firsts, stop - start)))
        return -codes.view(np.float64), hits, expected

    def _find(self, code: np.uint64, offset: int) -> int:
        """Return the number of outputs before those with a code (offset 0), its correct ones (1) or the next code (2).

        All are counted, also those outside of the block.
        """
        return int(np.searchsorted(self._keys, (code << np.uint64(1)) + np.uint64(offset)))


class CalibrationSums:
    """Sums over outputs in the order of their probabilities, to which blocks of outputs are added."""

    def __init__(self) -> None:
        """Begin without outputs."""
        self.counts, self.right = np.zeros(NUM_BINS, np.int64), np.zeros(NUM_BINS, np.int64)
        self.probabilities = np.zeros(NUM_BINS)
        self.num_added, self.num_expected = 0, 0.0

    def add(
        self, probabilities: Float[np.ndarray, " m"], hits: Bool[np.ndarray, " m"], expected: Float[np.ndarray, " m"]
    ) -> Float[np.ndarray, " m"]:
        """Add outputs, and return the accuracy of all outputs up to each of them.

        Args:
            probabilities: Probabilities of the next outputs, in descending order.
            hits: Whether they are correct.
            expected: Expected value of that over the possible orders of outputs with equal probabilities.
        """
        indices = _bin_indices(probabilities)
        self.counts += np.bincount(indices, minlength=NUM_BINS)
        self.right += np.bincount(indices[hits], minlength=NUM_BINS)
        self.probabilities = add_to_bins(self.probabilities, indices, probabilities)
        running: Float[np.ndarray, " m"] = np.cumsum(np.append([self.num_expected], expected))[1:]
        self.num_expected = float(running[-1])
        running /= np.arange(self.num_added + 1, self.num_added + len(running) + 1)
        self.num_added += len(running)
        return running.clip(0.0, 1.0, out=running)

    def bins(self) -> list[CalibrationBin]:
        """Return the bins (i / NUM_BINS, (i + 1) / NUM_BINS]."""
        bins = []
        for index, (count, hit) in enumerate(zip(self.counts.tolist(), self.right.tolist(), strict=True)):
            probability = float(self.probabilities[index]) / count if count else (index + 0.5) / NUM_BINS
            bins.append(
                CalibrationBin(
                    index / NUM_BINS, (index + 1) / NUM_BINS, count, hit, probability, wilson_interval(hit, count)
                )
            )
        return bins


def add_to_bins(
    sums: Float[np.ndarray, " b"], indices: Int[np.ndarray, " m"], values: Float[np.ndarray, " m"]
) -> Float[np.ndarray, " b"]:
    """Return sums of values in bins after more values, one value added after the other.

    Args:
        sums: Sum of each bin so far.
        indices: Bin of each value.
        values: The values.
    """
    added: Float[np.ndarray, " b"] = np.bincount(
        np.append(np.arange(len(sums)), indices), weights=np.append(sums, values), minlength=len(sums)
    )
    return added


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
    return compute_error_by_chance([np.asarray(confidences, np.float64)])


def compute_error_by_chance(blocks: Iterable[Float[np.ndarray, " _"]]) -> float:
    """Return the expected calibration error by chance, as `calibration_error_by_chance` does.

    Args:
        blocks: Confidence of each output; at least one.
    """
    confidences = RowFile(np.float64)
    for block in blocks:
        confidences.extend_rows(block)
    confidences.sort()
    values, counts = confidences.rows, np.zeros(NUM_BINS, np.int64)
    for block in confidences.blocks():
        counts += np.bincount(_bin_indices(block), minlength=NUM_BINS)
    ends = np.cumsum(np.trim_zeros(counts, "b")).tolist()  # of the values of each bin, which follow each other
    generator, errors = np.random.default_rng(0), list[float]()
    for _ in range(NUM_DRAWS):
        sums = list[float]()
        for start, end in pairwise([0, *ends]):
            deviation = 0.0
            for first in range(start, end, BLOCK_ROWS):
                drawn = values[first : min(end, first + BLOCK_ROWS)]
                differences = (generator.random(len(drawn)) < drawn) - drawn
                differences[0] += deviation
                deviation = np.cumsum(differences)[-1]  # one after the other, whatever the size of the blocks is
            sums.append(deviation)
        errors.append(np.abs(sums).sum())
    return float(np.mean(errors) / len(confidences))


def _bin_indices(probabilities: Float[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
    """Return the bin of each probability."""
    indices: Int[np.ndarray, " n"] = np.clip(np.ceil(probabilities * NUM_BINS).astype(int) - 1, 0, NUM_BINS - 1)
    return indices


def _accepted_counts(total: int) -> list[int]:
    """Return the number of accepted outputs at each of `COVERAGES`, rounded to whole outputs and at least one."""
    return [max(1, round(coverage * total)) for coverage in COVERAGES]


def _coverage_point(
    coverage: float, num_accepted: int, at_threshold: tuple[float, float], total: int, accuracy_of_all: float
) -> CoveragePoint:
    """Return the metrics at a coverage, from the accuracy and the lowest probability of the accepted outputs."""
    accuracy, probability = at_threshold
    errors, accepted_errors = total * (1 - accuracy_of_all), num_accepted * (1 - accuracy)
    error_recall = float(np.clip(1 - accepted_errors / errors, 0.0, 1.0)) if errors > 1e-9 else 1.0
    return CoveragePoint(coverage, accuracy, error_recall, probability)
