"""Scheduled sampling: in training the model reads some of its own symbols, as it will in use.

B batch, T target positions, V vocabulary, W = V, or V + S where symbols are copied.
"""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor

from pellucid.config.settings import TrainingConfig
from pellucid.data.batches import Batch
from pellucid.data.vocabulary import BOS, EOS, PAD, UNK
from pellucid.model.memory import Unrolled
from pellucid.model.network import EncoderDecoder, shifted

STEEPNESS = 100.0
"""The inverse sigmoid's k: the share of own symbols is a hundredth of its highest at the start, and half at half."""


def own_share(config: TrainingConfig, passed: float) -> float:
    """The share of the model's own symbols among those fed back, at share `passed` (x, 0 to 1) of the training.

    With e the share at the end, all rising from 0 to e (Bengio et al. 2015, section 2.4, which tells what is left, ε):

        linear            e x
        exponential       1 − (1 − e)ˣ                              ε = kⁱ
        inverse-sigmoid   e (g(0) − g(x)) / (g(0) − g(1)), g(x) = 1 / (1 + k^(2x − 1))     ε = k / (k + exp(i / k))
    """
    end = config.sampling_probability
    match config.scheduled_sampling:
        case "none":
            return 0.0
        case "linear":
            return end * passed
        case "exponential":
            return 1 - math.pow(1 - end, passed)
        case "inverse-sigmoid":
            first, now, last = (1 / (1 + math.pow(STEEPNESS, 2 * x - 1)) for x in (0.0, passed, 1.0))
            return end * (first - now) / (first - last)


def unroll_sampled(network: EncoderDecoder, batch: Batch, share: float) -> Unrolled:
    """All steps over targets in which each symbol fed back is, with probability `share`, one of the model's own.

    Two passes, after Mihaylova & Martins 2019, section 3: the first over the true symbols, without gradients; from
    what it finds at step t a symbol is drawn, ŷ_t ~ p(· | y_<t, x). A coin for each position t then says whether the
    second pass reads y_t or ŷ_t. So the kernels unroll both; in Bengio et al. 2015, section 2.3, ŷ_t is drawn given
    the symbols drawn before it. No gradient flows through the choice in either.
    """
    memory = network.encoder(batch.source, batch.source_lengths)
    state, attendable = network.decoder.start(memory), network.decoder.prepare(memory)
    fed = shifted(batch.target)
    with torch.no_grad():
        drawn = draw(network.decoder.unroll(fed, state, attendable).logits)
        coins = torch.rand(fed.shape, device=fed.device) < share
        coins[:, 0] = False  # BOS, which nobody draws
        mixed = torch.where(coins, drawn.roll(1, dims=1), fed)
    return network.decoder.unroll(mixed, state, attendable)


def draw(logits: Float[Tensor, "B T W"]) -> Int[Tensor, "B T"]:
    """One symbol a position from softmax(logits), of those that are ever fed back: not PAD, BOS, EOS or UNK.

    By Gumbel's trick: the highest of logits and noise −ln(−ln u).
    """
    closed = torch.zeros(logits.shape[2], dtype=torch.bool, device=logits.device)
    closed[[PAD, BOS, EOS, UNK]] = True
    noise = torch.empty_like(logits).exponential_().log()
    return (logits - noise).masked_fill(closed, -torch.inf).argmax(dim=2)
