"""Losses, all in nats: functions that return one number, the mean over the target positions of a batch.

B batch, S source positions, T target positions, V vocabulary, W = V, or V + S with a pointer-generator.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from pellucid.data.vocabulary import PAD
from pellucid.kernels.dispatch import use_kernel
from pellucid.model.requests import request_of


def cross_entropy(
    logits: Float[Tensor, "B T V"], target: Int[Tensor, "B T"], label_smoothing: float
) -> Float[Tensor, ""]:
    """Return the mean over real target positions of −Σ_v q_v log p_v, q = (1 − ε) one-hot + ε / V.

    PAD, BOS and UNK get ε / V like any symbol. Searches suppress them, and a distribution smoothed over all symbols,
    then renormalized without them, is one smoothed over the others with a slightly smaller ε.

    Args:
        logits: Logits of each target position.
        target: Target ids; PAD positions do not contribute.
        label_smoothing: ε, 0 to 1.

    References:
        Szegedy et al. 2016, section 7.
    """
    if use_kernel(request_of("cross_entropy", logits)):
        from pellucid.kernels.tensor_functions import CrossEntropyFunction  # Numba takes a second to import

        flat = (logits.flatten(0, 1), target.flatten(), PAD, label_smoothing)
        loss: Tensor = CrossEntropyFunction.apply(*flat)  # type: ignore[no-untyped-call]
        return loss
    return functional.cross_entropy(
        logits.flatten(0, 1), target.flatten(), ignore_index=PAD, label_smoothing=label_smoothing
    )


def copying_cross_entropy(
    log_probabilities: Float[Tensor, "B T W"], target: Int[Tensor, "B T"], label_smoothing: float, vocabulary_size: int
) -> Float[Tensor, ""]:
    """Return the mean cross-entropy over real target positions, of log-probabilities over V symbols and S positions.

    Args:
        log_probabilities: Log-probabilities of each target position.
        target: Target ids; V + p for a symbol outside the vocabulary that is at source position p. PAD positions do not
            contribute.
        label_smoothing: ε, which is spread over the V symbols.
        vocabulary_size: V.
    """
    uniform_term = log_probabilities[:, :, :vocabulary_size].mean(dim=2) if label_smoothing else 0.0
    return _smoothed_cross_entropy(log_probabilities, target, label_smoothing, uniform_term)


def generated_cross_entropy(
    generated: Float[Tensor, "B T V"], target: Int[Tensor, "B T"], label_smoothing: float
) -> Float[Tensor, ""]:
    """Return the cross-entropy of the decoder's own logits, without copies, over the targets in the vocabulary.

    The mixture of See et al. 2017 trains the generator only where the copy does not explain a symbol already, so that
    with little data the generator stays weak. Training therefore uses the mean of this loss and that of the mixture.

    Args:
        generated: Logits before copies are mixed in.
        target: Target ids; PAD, and ids of V and above, do not contribute.
        label_smoothing: ε, 0 to 1.
    """
    return cross_entropy(generated, target.masked_fill(target >= generated.shape[2], PAD), label_smoothing)


def pointing_cross_entropy(
    log_probabilities: Float[Tensor, "B 1 W"], target: Int[Tensor, "B 1"], label_smoothing: float
) -> Float[Tensor, ""]:
    """Return the mean over sources of the cross-entropy of log-probabilities over source positions.

    Args:
        log_probabilities: Log-probability of each target id, −∞ for special ids and at padding.
        target: Target id of the position, one per source.
        label_smoothing: ε, which is spread over the real positions.
    """
    is_possible = log_probabilities > -torch.inf
    uniform_term = log_probabilities.masked_fill(~is_possible, 0).sum(dim=2) / is_possible.sum(dim=2)
    return _smoothed_cross_entropy(log_probabilities, target, label_smoothing, uniform_term)


def coverage_loss(weights: Float[Tensor, "B T S"], target: Int[Tensor, "B T"]) -> Float[Tensor, ""]:
    """Return the mean over real target positions of Σ_s min(α_ts, k_ts), with the coverage k_ts = Σ_{u < t} α_us.

    Args:
        weights: Attention weights of each target position.
        target: Target ids; PAD positions do not contribute.

    References:
        See et al. 2017, section 2.3, equations 10, 12 and 13.
    """
    coverage = weights.cumsum(dim=1) - weights
    return _mean(torch.minimum(weights, coverage).sum(dim=2), target)


def symmetric_kl(
    first_logits: Float[Tensor, "B T W"], second_logits: Float[Tensor, "B T W"], target: Int[Tensor, "B T"]
) -> Float[Tensor, ""]:
    """Return the mean over real target positions of KL(p ‖ q) + KL(q ‖ p) = Σ_v (p_v − q_v)(log p_v − log q_v).

    R-Drop trains with it on two passes with different dropout.

    Args:
        first_logits: Logits of p, −∞ for impossible symbols.
        second_logits: Logits of q, −∞ for the same symbols.
        target: Target ids; PAD positions do not contribute.

    References:
        Liang et al. 2021, equation 2.
    """
    impossible = first_logits == -torch.inf
    p, q = first_logits.log_softmax(dim=2), second_logits.log_softmax(dim=2)
    divergence = (p.exp() - q.exp()) * (p.masked_fill(impossible, 0) - q.masked_fill(impossible, 0))
    return _mean(divergence.sum(dim=2), target)


def _smoothed_cross_entropy(
    log_probabilities: Float[Tensor, "B T W"],
    target: Int[Tensor, "B T"],
    label_smoothing: float,
    uniform_term: Float[Tensor, "B T"] | float,
) -> Float[Tensor, ""]:
    """Return the mean cross-entropy; label smoothing adds ε times the mean log-probability of the symbols."""
    target_log_probabilities = log_probabilities.gather(2, target[:, :, None])[:, :, 0]
    return -_mean((1 - label_smoothing) * target_log_probabilities + label_smoothing * uniform_term, target)


def _mean(values: Float[Tensor, "B T"], target: Int[Tensor, "B T"]) -> Float[Tensor, ""]:
    """Return the mean over real target positions."""
    is_real = target != PAD
    return (values * is_real).sum() / is_real.sum()
