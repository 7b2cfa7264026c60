"""Distributions over the next symbol at each step, their entropy and divergence.

B traces of a batch, T steps, V symbols: the target vocabulary, and one more column for models that copy; W columns of a
model: the target vocabulary, and with copying one for each source position.
"""

from collections.abc import Sequence
from typing import Annotated

import numpy as np
import torch
from torch import Tensor

from pellucid.argument_checks import LOG_PROBABILITY, check_arguments
from pellucid.decoding.forced_decoding import forced_steps
from pellucid.decoding.labeling_predictor import LabelingPredictor
from pellucid.decoding.predictor import Predictor
from pellucid.decoding.topk import to_array
from pellucid.decoding.trace import Trace
from pellucid.decoding.transducer import require_transducer
from pellucid.errors import ArgumentError
from pellucid.inspection.replay import build_replays, check_log_probabilities, evaluation_context, examples_of
from pellucid.shapes import Float

SUM_TOLERANCE = 0.01
"""Amount by which the sum of the probabilities of a row may differ from 1, for numbers in half precision."""


@check_arguments
@check_log_probabilities
def step_distributions(predictor: Predictor, traces: Sequence[Trace]) -> list[Float[np.ndarray, "T V"]]:
    """Return the log-probabilities of all symbols at every step of each trace, given the symbols before it.

    The columns are in the order of the target vocabulary's ids. For models that decode symbol by symbol, PAD, BOS and
    UNK have −∞, and forced attention of the predictor's options applies. With copying, one more column, the last, is
    the total of all copied symbols outside the vocabulary. For other tasks, a step is a label.

    Args:
        predictor: The model, or an ensemble.
        traces: Traces of the model.

    Returns:
        One array per trace, in order, in nats; without rows for a trace without source or output. The step of EOS has a
        row.

    Raises:
        ArgumentError: A field of a trace is wrong, or a trace is of another model.
        ConfigError: The model is neither a classifier nor decodes symbol by symbol.
    """
    if isinstance(predictor, LabelingPredictor):
        return predictor.distributions(examples_of(predictor, traces))
    size = len(predictor.vocabularies.target)
    columns = size + predictor.config.decoder.pointer_generator
    distributions = [np.zeros((0, columns)) for _ in traces]
    with torch.inference_mode(), evaluation_context(predictor, len(traces)):
        for replay in build_replays(predictor, traces):
            inference = require_transducer(predictor, "predictor").initialize(replay.batch)
            rows = [_merged(step.log_probabilities(), size) for step in forced_steps(inference, replay.target)]
            batch_distributions = to_array(torch.stack(rows, dim=1)).astype(np.float64)
            for row, (number, _, steps) in enumerate(replay.sizes):
                distributions[number] = batch_distributions[row, :steps]
    return distributions


def _merged(log_probabilities: Float[Tensor, "B W"], size: int) -> Float[Tensor, "B V"]:
    """Sum the copies of symbols outside the vocabulary into one column."""
    if log_probabilities.shape[1] == size:
        return log_probabilities
    return torch.cat([log_probabilities[:, :size], log_probabilities[:, size:].logsumexp(dim=1, keepdim=True)], dim=1)


@check_arguments
def entropy(
    log_probabilities: Annotated[Float[np.ndarray, "*shape V"], LOG_PROBABILITY],
) -> Float[np.ndarray, "*shape"]:
    """Return the entropy H = −Σ p log₂ p, in bits, with 0 · log 0 = 0.

    Args:
        log_probabilities: Natural logarithms of probabilities that sum to one over the last axis; −∞ is allowed.

    Returns:
        The entropy of each distribution, at least 0.

    Raises:
        ArgumentError: A number is NaN or above 0, or the probabilities of a row do not sum to one (except for
            rounding).

    References:
        Shannon 1948, "A mathematical theory of communication", section 6.
    """
    probabilities = _probabilities("log_probabilities", log_probabilities)
    terms = np.where(probabilities > 0, probabilities * np.where(probabilities > 0, log_probabilities, 0), 0)
    bits: Float[np.ndarray, "*shape"] = np.asarray(np.maximum(-terms.sum(axis=-1) / np.log(2), 0) + 0.0)
    return bits


@check_arguments
def kl_divergence(
    before: Annotated[Float[np.ndarray, "*shape V"], LOG_PROBABILITY],
    after: Annotated[Float[np.ndarray, "*shape V"], LOG_PROBABILITY],
) -> Float[np.ndarray, "*shape"]:
    """Return KL(before ‖ after) = Σ p log₂(p / q), in bits.

    It is infinite if `after` is zero where `before` is not.

    Args:
        before: Natural logarithms log p, over the last axis.
        after: Natural logarithms log q, of the same shape.

    Returns:
        The divergence of each pair of distributions, at least 0.

    Raises:
        ArgumentError: The shapes differ; a number is NaN or above 0, or the probabilities of a row do not sum to one
            (except for rounding).

    References:
        Kullback & Leibler 1951, "On information and sufficiency", section 2.
    """
    probabilities = _probabilities("before", before)
    _probabilities("after", after)
    support = probabilities > 0
    ratios = np.subtract(before, after, out=np.zeros_like(before), where=support)
    bits: Float[np.ndarray, "*shape"] = np.asarray(
        np.maximum((probabilities * ratios).sum(axis=-1) / np.log(2), 0) + 0.0
    )
    return bits


def _probabilities(name: str, log_probabilities: Float[np.ndarray, "*shape V"]) -> Float[np.ndarray, "*shape V"]:
    """Return the probabilities; raise `ArgumentError` for the first row that does not sum to one."""
    probabilities: Float[np.ndarray, "*shape V"] = np.exp(log_probabilities)
    sums = np.asarray(probabilities.sum(axis=-1, dtype=np.float64))
    wrong = np.abs(sums - 1) > SUM_TOLERANCE
    if wrong.any():
        index = tuple(int(axis[0]) for axis in np.nonzero(wrong)) if sums.ndim else ()
        place = f"[{', '.join(map(str, index))}]" if index else ""
        raise ArgumentError(
            f"{name}{place}: expected log-probabilities of a distribution, which sum to 1 as probabilities, got a sum "
            f"of {sums[index]:.4g}; subtract the logarithm of the sum"
        )
    return probabilities
