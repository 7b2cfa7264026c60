"""Losses.

B batch, S source positions, T target positions, V vocabulary, W = V, or V + S where symbols are copied.
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
    """The mean over real target positions of −Σ_v q_v ln p_v, q = (1 − ε) one-hot + ε / V.

    Padding counts for nothing. Label smoothing: Szegedy et al. 2016, section 7. PAD, BOS and UNK have their ε / V as
    any symbol: no search writes them, and what is smoothed over all, then renormalized without them, is what would
    have been smoothed over the others with a slightly smaller ε.
    """
    if use_kernel(request_of("cross_entropy", logits)):
        from pellucid.kernels.autograd import CrossEntropy  # Numba takes a second to import

        flat = (logits.flatten(0, 1), target.flatten(), PAD, label_smoothing)
        loss: Tensor = CrossEntropy.apply(*flat)  # type: ignore[no-untyped-call]
        return loss
    return functional.cross_entropy(
        logits.flatten(0, 1), target.flatten(), ignore_index=PAD, label_smoothing=label_smoothing
    )


def copying_cross_entropy(
    log_probabilities: Float[Tensor, "B T W"], target: Int[Tensor, "B T"], label_smoothing: float, vocabulary_size: int
) -> Float[Tensor, ""]:
    """Return the cross-entropy of log-probabilities over V symbols and S positions; ε is spread over the symbols.

    A target that the vocabulary lacks is V + p where it stands at source position p.
    """
    own = log_probabilities.gather(2, target[:, :, None])[:, :, 0]
    spread = log_probabilities[:, :, :vocabulary_size].mean(dim=2) if label_smoothing else 0.0
    return -_mean((1 - label_smoothing) * own + label_smoothing * spread, target)


def generated_cross_entropy(
    generated: Float[Tensor, "B T V"], target: Int[Tensor, "B T"], label_smoothing: float
) -> Float[Tensor, ""]:
    """The cross-entropy of a decoder that copies, as though it did not: over its own logits, where V holds the target.

    The mixture of See et al. 2017 teaches the generator only as far as the copy does not explain a symbol already, so
    with little data it stays weak. Half of the loss is this one instead.
    """
    return cross_entropy(generated, target.masked_fill(target >= generated.shape[2], PAD), label_smoothing)


def pointing_cross_entropy(
    log_probabilities: Float[Tensor, "B 1 W"], target: Int[Tensor, "B 1"], label_smoothing: float
) -> Float[Tensor, ""]:
    """Return the cross-entropy of log-probabilities over positions, −∞ at padding; ε is spread over the source."""
    own = log_probabilities.gather(2, target[:, :, None])[:, :, 0]
    there = log_probabilities > -torch.inf
    spread = log_probabilities.masked_fill(~there, 0).sum(dim=2) / there.sum(dim=2)
    return -_mean((1 - label_smoothing) * own + label_smoothing * spread, target)


def coverage_loss(weights: Float[Tensor, "B T S"], target: Int[Tensor, "B T"]) -> Float[Tensor, ""]:
    """The mean over real target positions of Σ_i min(α_ti, c_ti), with c_ti = Σ_{u < t} α_ui: looks that were before.

    See et al. 2017, section 2.3, equations 10, 12 and 13.
    """
    covered = weights.cumsum(dim=1) - weights
    return _mean(torch.minimum(weights, covered).sum(dim=2), target)


def symmetric_kl(
    one: Float[Tensor, "B T W"], other: Float[Tensor, "B T W"], target: Int[Tensor, "B T"]
) -> Float[Tensor, ""]:
    """The mean over real target positions of KL(p ‖ q) + KL(q ‖ p) = Σ_v (p_v − q_v)(ln p_v − ln q_v).

    Given are the logits of p and of q, −∞ in both where nothing can be written. Liang et al. 2021, equation 2.
    """
    never = one == -torch.inf
    p, q = one.log_softmax(dim=2), other.log_softmax(dim=2)
    apart = (p.exp() - q.exp()) * (p.masked_fill(never, 0) - q.masked_fill(never, 0))
    return _mean(apart.sum(dim=2), target)


def _mean(values: Float[Tensor, "B T"], target: Int[Tensor, "B T"]) -> Float[Tensor, ""]:
    """The mean over real target positions."""
    real = target != PAD
    return (values * real).sum() / real.sum()
