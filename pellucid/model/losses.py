"""Losses, all in nats: functions that return one number, the mean over the target positions of a batch.

B batch, S source positions, T target positions, V vocabulary, W = V, or V + S with a pointer-generator, C symbols of a
sampled softmax.
"""

import torch
from torch import Tensor
from torch.nn import functional

from pellucid.data.vocabulary import PAD
from pellucid.kernels.dispatch import use_kernel
from pellucid.model.memory import NetworkOutput
from pellucid.model.requests import request_of
from pellucid.shapes import Float, Int


def cross_entropy(
    logits: Float[Tensor, "B T V"], target: Int[Tensor, "B T"], label_smoothing: float
) -> Float[Tensor, ""]:
    """Return the mean over real target positions of −Σ_v q_v log p_v, q = (1 − ε) one-hot + ε / V.

    PAD, BOS and UNK get ε / V like any symbol. Searches suppress them, and a distribution smoothed over all symbols,
    then renormalized without them, is one smoothed over the others with a slightly smaller ε.

    Args:
        logits: Logits of each target position.
        target: Target ids; PAD positions do not contribute.
        label_smoothing: ε, from 0 to below 1.

    References:
        Szegedy et al. 2016, section 7.
    """
    if use_kernel(request_of("cross_entropy", logits)):
        from pellucid.kernels.tensor_functions import CrossEntropyFunction  # Numba takes a second to import

        loss: Tensor = CrossEntropyFunction.apply(  # type: ignore[no-untyped-call]
            logits.flatten(0, 1), target.flatten(), PAD, label_smoothing
        )
        return loss
    return functional.cross_entropy(
        logits.flatten(0, 1), target.flatten(), ignore_index=PAD, label_smoothing=label_smoothing
    )


def sampled_cross_entropy(
    output: NetworkOutput,
    target: Int[Tensor, "B T"],
    symbols: Int[Tensor, " C"],
    log_inclusion: Float[Tensor, " V"],
    label_smoothing: float,
) -> Float[Tensor, ""]:
    """Return the mean over real target positions of the loss of a sampled softmax.

    S are the sampled symbols, each of which is in S with probability Q_k, independently of the others. With the scores
    s_k = logit_k − log Q_k, the loss of a target y is

        L(y) = log Σ_{k ∈ S ∪ {y}} exp s_k − s_y

    A target that is also sampled counts once. If the model's distribution is the true one, the expected gradient of
    the logits is zero, as that of the full softmax. Label smoothing takes the mean of L over all symbols, estimated
    by the sampled ones with the weights 1 / Q_k. If all symbols are sampled, Q = 1, and the loss is `cross_entropy`.

    Args:
        output: Logits of the sampled symbols, and of the targets.
        target: Target ids; PAD positions do not contribute.
        symbols: S, in ascending order, not empty.
        log_inclusion: log Q of all symbols.
        label_smoothing: ε, from 0 to below 1.

    References:
        Jean et al. 2015, "On Using Very Large Target Vocabulary for Neural Machine Translation", section 3; Ma &
        Collins 2018, "Noise Contrastive Estimation and Negative Sampling for Conditional Models", section 3.
    """
    assert output.target_logits is not None, "expected the logits of sampled symbols and of the targets"
    target_scores = output.target_logits - log_inclusion[target]
    log_q = log_inclusion[symbols]
    scores = (output.logits - log_q).flatten(0, 1)
    columns = torch.searchsorted(symbols, target.flatten()).clamp(max=len(symbols) - 1)
    is_sampled = symbols[columns] == target.flatten()
    scores[is_sampled.nonzero()[:, 0], columns[is_sampled]] = -torch.inf
    others = scores.logsumexp(dim=1).view_as(target_scores)
    log_sum = torch.logaddexp(others, target_scores)
    losses = log_sum - target_scores
    if label_smoothing:
        weights = torch.exp(-log_q)
        weights = weights / weights.sum()
        mean_score = output.logits @ weights - log_q @ weights
        uniform = torch.where(is_sampled.view_as(target), log_sum, others) - mean_score
        losses = (1 - label_smoothing) * losses + label_smoothing * uniform
    return _mean(losses, target)


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


def vocabulary_cross_entropy(
    logits: Float[Tensor, "B T V"], target: Int[Tensor, "B T"], label_smoothing: float
) -> Float[Tensor, ""]:
    """Return the cross-entropy of the decoder's own logits, without copies, over the targets in the vocabulary.

    The mixture of See et al. 2017 trains the generator only where the copy does not explain a symbol already, so that
    with little data the generator stays weak. Training therefore uses the mean of this loss and that of the mixture.

    Args:
        logits: Logits before copies are mixed in.
        target: Target ids; PAD, and ids of V and above, do not contribute.
        label_smoothing: ε, from 0 to below 1.
    """
    return cross_entropy(logits, target.masked_fill(target >= logits.shape[2], PAD), label_smoothing)


def pointing_cross_entropy(
    log_probabilities: Float[Tensor, "B 1 W"], target: Int[Tensor, "B 1"], label_smoothing: float
) -> Float[Tensor, ""]:
    """Return the mean over sources of the cross-entropy of log-probabilities over source positions.

    Args:
        log_probabilities: Log-probability of each target id, −∞ for special ids and at padding.
        target: Target id of the position, one per source.
        label_smoothing: ε, which is spread over the real positions.
    """
    return _smoothed_cross_entropy(log_probabilities, target, label_smoothing, _mean_over_possible(log_probabilities))


def class_and_tag_cross_entropy(
    logits: Float[Tensor, "B T V"], target: Int[Tensor, "B T"], label_smoothing: float
) -> Float[Tensor, ""]:
    """Return the cross-entropy of classes and of tags, Σ_i (L_class,i + Σ_s L_s,i) / number of all labels.

    It is the negative log-probability of whole outputs per label, so that a class weighs as much as a tag.

    Args:
        logits: Logits of the class (first) and of the tags of each source, −∞ for symbols that are no such label.
        target: Target ids of the same; PAD positions do not contribute. The mean over nothing is 0.
        label_smoothing: ε, which is spread over the possible labels.
    """
    log_probabilities = logits.log_softmax(dim=2)
    uniform_term = _mean_over_possible(log_probabilities)
    chosen = log_probabilities.gather(2, target[:, :, None])[:, :, 0]
    is_real = target != PAD
    losses = -((1 - label_smoothing) * chosen + label_smoothing * uniform_term).masked_fill(~is_real, 0)
    return losses.sum() / is_real.sum().clamp(min=1)


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
        Liang et al. 2021: twice the divergence of equation 2.
    """
    impossible = first_logits == -torch.inf
    p, q = first_logits.log_softmax(dim=2), second_logits.log_softmax(dim=2)
    divergence = (p.exp() - q.exp()) * (p.masked_fill(impossible, 0) - q.masked_fill(impossible, 0))
    return _mean(divergence.sum(dim=2), target)


def _mean_over_possible(log_probabilities: Float[Tensor, "B T W"]) -> Float[Tensor, "B T"]:
    """Return the mean log-probability of the possible labels, those above −∞."""
    is_possible = log_probabilities > -torch.inf
    return log_probabilities.masked_fill(~is_possible, 0).sum(dim=2) / is_possible.sum(dim=2)


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
