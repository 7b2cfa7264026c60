"""Fit of the confidence: Platt scaling of the margins of validation outputs.

n outputs.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pellucid.argument_checks import check_lengths, check_not_empty
from pellucid.config.settings import SearchConfig
from pellucid.decoding.confidence import MAX_EXAMPLES, WRONG_DECIMALS, ConfidenceModel, output_margins
from pellucid.decoding.trace import Trace
from pellucid.errors import ArgumentError
from pellucid.shapes import Bool, Float

PRIOR_SLOPE = 1.0
"""Mean of the prior of the slope, in log-odds per standard deviation of the margins. It is positive: if all validation
outputs are correct, an output with an unusually small margin still has a lower confidence."""
PRIOR_PRECISION = 1.0
"""Precision of this prior: that of about four outputs with a confidence of 0.5."""
DECIMALS = 4
"""Decimals of intercept and slope."""
MAX_ITERATIONS = 100
TOLERANCE = 1e-10
"""Change of both parameters below which the iterations have converged."""


def fit_confidence(
    outputs: Sequence[Sequence[Trace]],
    right: Sequence[bool],
    search: SearchConfig,
    pair_ngram_weight: float = 0.0,
    lowest_confidence_for_unknown: bool = False,
) -> ConfidenceModel:
    """Fit the confidence to the best outputs of validation sources.

    The targets of the regression are Platt's: (n₊ + 1) / (n₊ + 2) for a correct output and 1 / (n₋ + 2) for a wrong
    one, with n₊ correct and n₋ wrong outputs. So 20 outputs that are all correct give a mean confidence of 21 / 22,
    and not 1.

    Args:
        outputs: Outputs of each source, as for `output_margins`. Sources that occur several times count as often.
        right: Whether the best output of each source is correct.
        search: Search settings of the outputs.
        pair_ngram_weight: Weight of the pair n-gram model in their ranking; 0 by default.
        lowest_confidence_for_unknown: True if outputs for sources with unknown symbols have the lowest
            confidence; they, and empty outputs, do not take part in the regression.

    Raises:
        ArgumentError: There is no source, there are more than `MAX_EXAMPLES`, the arguments differ in length, or a
            score is NaN. A score of −∞ is that of probability 0.

    References:
        J. Platt (1999), "Probabilistic outputs for support vector machines and comparisons to regularized likelihood
            methods", section 2.2 (the targets).
    """
    check_lengths({"outputs": outputs, "right": right})
    check_not_empty("outputs", outputs, "output")
    if len(outputs) > MAX_EXAMPLES:
        raise ArgumentError(f"outputs: expected at most {MAX_EXAMPLES:,} sources, got {len(outputs):,}")
    for position, traces in enumerate(outputs):
        if any(math.isnan(trace.score) for trace in traces):
            raise ArgumentError(f"outputs[{position}]: expected log-probabilities as scores, got NaN")
    margins = output_margins(outputs, pair_ngram_weight > 0, lowest_confidence_for_unknown)
    hits, is_finite = np.asarray(right, bool), np.isfinite(margins)
    # Rounded, since the last bits of decoded probabilities differ between processes.
    if is_finite.any():
        parameters = fit_platt_scaling(margins[is_finite], hits[is_finite])
    else:
        parameters = fit_platt_scaling(np.zeros(len(hits)), hits)
    intercept, slope = (round(parameter, DECIMALS) for parameter in parameters)
    model = ConfidenceModel(intercept, slope, len(hits), (), search, pair_ngram_weight, lowest_confidence_for_unknown)
    confidences = np.ceil(model.confidences(margins[~hits]) * 10**WRONG_DECIMALS) / 10**WRONG_DECIMALS
    wrong = sorted(confidences.tolist(), reverse=True)
    return replace(model, wrong_confidences=tuple(wrong))


def fit_platt_scaling(margins: Float[np.ndarray, " n"], right: Bool[np.ndarray, " n"]) -> tuple[float, float]:
    """Return intercept and slope of the log-odds of being correct, as a function of the margin.

    The slope has a Gaussian prior, in units of the standard deviation of the margins, and is not negative.

    Args:
        margins: Margin of each output; at least one, finite.
        right: Whether each output is correct.
    """
    mean, deviation = float(margins.mean()), float(margins.std())
    scale = deviation if deviation > 1e-6 else 1.0
    num_right = int(right.sum())
    targets = np.where(right, (num_right + 1) / (num_right + 2), 1 / (len(right) - num_right + 2))
    intercept, slope = _minimize((margins - mean) / scale, targets)
    if slope < 0:  # the optimum under the constraint is then that of the intercept alone
        share = float(targets.mean())
        intercept, slope = float(np.log(share / (1 - share))), 0.0
    return intercept - slope / scale * mean, slope / scale


def _minimize(values: Float[np.ndarray, " n"], targets: Float[np.ndarray, " n"]) -> tuple[float, float]:
    """Return intercept and slope with the least penalized cross-entropy, by Newton's method with step halving."""
    design = np.column_stack([np.ones(len(values)), values])
    precision, prior = np.array([0.0, PRIOR_PRECISION]), np.array([0.0, PRIOR_SLOPE])

    def loss(parameters: np.ndarray) -> float:
        """Return the penalized cross-entropy.

        Args:
            parameters: Intercept and slope.
        """
        log_odds = design @ parameters
        penalty = 0.5 * (precision * (parameters - prior) ** 2).sum()
        return float((np.logaddexp(0.0, log_odds) - targets * log_odds).sum() + penalty)

    share = float(targets.mean())
    parameters = np.array([np.log(share / (1 - share)), PRIOR_SLOPE])
    for _ in range(MAX_ITERATIONS):
        probabilities = 1 / (1 + np.exp(-np.clip(design @ parameters, -50.0, 50.0)))
        gradient = design.T @ (probabilities - targets) + precision * (parameters - prior)
        curvature = np.maximum(probabilities * (1 - probabilities), 1e-12)
        step = np.linalg.solve((design * curvature[:, None]).T @ design + np.diag(precision), gradient)
        before, size = loss(parameters), 1.0
        while loss(parameters - size * step) > before and size > TOLERANCE:
            size /= 2
        parameters = parameters - size * step
        if np.abs(size * step).max() < TOLERANCE:
            break
    return float(parameters[0]), float(parameters[1])
