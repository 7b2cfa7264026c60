"""Sampled softmax: the training loss of a batch from a sample of the target symbols.

V vocabulary, C sampled symbols, U symbols of a batch: the sampled ones and the targets.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from pellucid.data.batches import Batch
from pellucid.data.vocabulary import NUM_SPECIAL
from pellucid.shapes import Float, Int


class ReducedBatch(NamedTuple):
    """A batch whose target ids are those of a reduced vocabulary: its own targets, and the sampled symbols.

    Only the rows of these symbols are read, so that an update neither computes nor changes any others.
    """

    batch: Batch
    """The batch with the target ids of the reduced vocabulary."""
    vocabulary: Int[Tensor, " U"]
    """Target id of each symbol of the reduced vocabulary, in ascending order; the special symbols keep their ids."""
    symbols: Int[Tensor, " C"]
    """The sampled symbols, as ids of the reduced vocabulary, in ascending order."""
    log_inclusion: Float[Tensor, " U"]
    """Log-probability of each symbol of the reduced vocabulary to be sampled."""


class SymbolSampler:
    """Poisson sampling of target symbols: symbol k is drawn with probability Q_k, independently of the others.

    Symbols are in order of descending frequency, so that the frequency of rank k is about log-uniform (Zipf's law):

        Q_k = min(1, λ log((k + 2) / (k + 1)))          Σ_k Q_k = C

    The special symbols, among them EOS, are always drawn. Because the draws are independent, the correction of the
    logits by log Q is exact (`sampled_cross_entropy`); the number of drawn symbols varies around C. In another
    order, as after a fine-tuning that added symbols, the correction holds too, and the gradient only varies more.

    References:
        Log-uniform candidates: TensorFlow, `log_uniform_candidate_sampler`. Poisson sampling: Hajek 1964, "Asymptotic
        Theory of Rejective Sampling with Varying Probabilities from a Finite Population".
    """

    def __init__(self, vocabulary_size: int, num_sampled: int) -> None:
        """Compute the probabilities.

        Args:
            vocabulary_size: V.
            num_sampled: C, the expected number of symbols; V or more samples all.
        """
        self.inclusion = inclusion_probabilities(vocabulary_size, num_sampled)
        self.log_inclusion: Float[Tensor, " V"] = self.inclusion.log().float()

    def sample(self) -> Int[Tensor, " C"]:
        """Draw symbols from torch's default generator of the CPU; always as many random numbers.

        Returns:
            Distinct ids in ascending order.
        """
        return (torch.rand(len(self.inclusion), dtype=torch.float64) < self.inclusion).nonzero()[:, 0]

    def reduce_batch(self, batch: Batch) -> ReducedBatch:
        """Draw symbols, and return a batch with the vocabulary that it then needs.

        Args:
            batch: Batch on its device.
        """
        symbols = self.sample().to(batch.target.device)
        vocabulary = torch.unique(torch.cat([symbols, batch.target.flatten()]))
        return ReducedBatch(
            batch._replace(target=torch.searchsorted(vocabulary, batch.target)),
            vocabulary,
            torch.searchsorted(vocabulary, symbols),
            self.log_inclusion.to(vocabulary.device)[vocabulary],
        )


def inclusion_probabilities(vocabulary_size: int, num_sampled: int) -> Float[Tensor, " V"]:
    """Return Q: the probability of each symbol to be in a sample.

    Args:
        vocabulary_size: V, special symbols included.
        num_sampled: Expected number of symbols C, special ones included; one other symbol is the minimum, and from V on
            all symbols are sampled.
    """
    ranks = torch.arange(vocabulary_size, dtype=torch.float64)
    weights = torch.log1p(1 / (ranks + 1))
    is_certain = ranks < NUM_SPECIAL
    if num_sampled >= vocabulary_size:
        return torch.ones_like(weights)
    while not is_certain.all():
        rest = max(1.0, num_sampled - float(is_certain.sum()))
        scaled = weights * (rest / float(weights[~is_certain].sum()))
        exceeding = ~is_certain & (scaled >= 1)
        if not exceeding.any():
            return torch.where(is_certain, 1.0, scaled)
        is_certain = is_certain | exceeding
    return torch.ones_like(weights)
