"""Conformal risk control: thresholds of confidence above which outputs are accepted without review.

An output is accepted if its confidence c is at least λ. Its loss is 1 if it is accepted and wrong, else 0; a higher λ
never raises it. With the losses of n calibration outputs, `conformal_threshold` returns the lowest λ with

    (number of accepted wrong outputs among the n + 1) / (n + 1) ≤ α,

where 1 is added for the next output, whose loss is unknown. Then P(the next output is accepted and wrong) ≤ α, if it is
exchangeable with the calibration outputs: the probability is over the draw of all n + 1 outputs. So α bounds the
expected share of outputs, of all lines of a file, that are accepted and wrong. If the other outputs are corrected by
hand, it bounds the error rate of the whole file. It does not bound the error rate among the accepted outputs, which is
higher by the factor 1 / (share accepted), nor the rate in every single file.

The calibration outputs are those of the validation set. They also chose the checkpoint and the weight of the pair
n-gram model, so that their error rate may be slightly too low; the guarantee is exact for a model that was chosen
without them.

References:
    A. N. Angelopoulos, S. Bates, A. Fisch, L. Lei and T. Schuster (2024), "Conformal risk control", theorem 1.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from pellucid.argument_checks import check_lengths
from pellucid.decoding.confidence import WRONG_DECIMALS, ConfidenceModel
from pellucid.shapes import Bool, Float

MAX_ERRORS = (0.01, 0.02, 0.05)
"""Bounds α that `evaluate` reports."""


class AcceptedOutputs(NamedTuple):
    """Outputs of a file that are accepted automatically under a bound."""

    max_error: float
    """Bound α on the expected share of outputs that are accepted and wrong, 0 to 1."""
    min_confidence: float | None
    """Threshold; None if no output may be accepted, or if several runs have different ones."""
    total: int
    """Number of outputs with a confidence."""
    accepted: int
    """Number of those that are accepted."""
    wrong: int
    """Number of accepted outputs that are wrong."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON, with the shares of all outputs that are accepted, and accepted and wrong."""
        shares = {"share_accepted": self.accepted / self.total, "share_wrong": self.wrong / self.total}
        return {**self._asdict(), **shares}


def conformal_threshold(model: ConfidenceModel, max_error: float) -> float | None:
    """Return the lowest confidence of accepted outputs under a bound on the share of accepted wrong outputs.

    Args:
        model: Fitted confidence, with the confidences of wrong validation outputs.
        max_error: Bound α on the expected share of outputs that are accepted and wrong, 0 to 1.

    Returns:
        The threshold, rounded up to `WRONG_DECIMALS`; None if no output may be accepted, because there are fewer than
        1 / α − 1 validation outputs, or because the most confident of them are wrong.
    """
    num_allowed = math.floor(max_error * (model.num_examples + 1) + 1e-9) - 1
    if num_allowed < 0:
        return None
    wrong = sorted(model.wrong_confidences, reverse=True)
    if num_allowed >= len(wrong):
        return 0.0
    # Outputs are accepted strictly above the most confident wrong output that is not allowed.
    threshold = (round(wrong[num_allowed] * 10**WRONG_DECIMALS) + 1) / 10**WRONG_DECIMALS
    return threshold if threshold < 1 - 1 / (model.num_examples + 2) + 1e-12 else None


def accepted_outputs(
    model: ConfidenceModel,
    confidences: Sequence[float] | Float[np.ndarray, " n"],
    right: Sequence[bool] | Bool[np.ndarray, " n"],
    max_error: float,
) -> AcceptedOutputs:
    """Return how many outputs of a file are accepted under a bound, and how many of them are wrong.

    Args:
        model: Fitted confidence, whose validation outputs determine the threshold.
        confidences: Confidence of each output.
        right: Whether each output is correct.
        max_error: Bound α, 0 to 1.

    Raises:
        ArgumentError: The arguments differ in length.
    """
    check_lengths({"confidences": confidences, "right": right})
    threshold = conformal_threshold(model, max_error)
    if threshold is None:
        return AcceptedOutputs(max_error, None, len(confidences), 0, 0)
    is_accepted = np.asarray(confidences, np.float64) >= threshold
    wrong = int((is_accepted & ~np.asarray(right, bool)).sum())
    return AcceptedOutputs(max_error, threshold, len(confidences), int(is_accepted.sum()), wrong)


def join_accepted_outputs(parts: Sequence[AcceptedOutputs]) -> AcceptedOutputs:
    """Return the accepted outputs of several files under one bound, each with the threshold of its own run.

    Args:
        parts: Accepted outputs of each file; at least one, all with the same bound.
    """
    thresholds = {part.min_confidence for part in parts}
    threshold = thresholds.pop() if len(thresholds) == 1 else None
    return AcceptedOutputs(
        max_error=parts[0].max_error,
        min_confidence=threshold,
        total=sum(part.total for part in parts),
        accepted=sum(part.accepted for part in parts),
        wrong=sum(part.wrong for part in parts),
    )
