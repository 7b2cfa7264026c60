"""The attention of TensorFlow's `attention_decoder`, to the letter: several heads, 1×1 projection, a query by an MLP.

B batch, S source positions, H hidden, Z state, M heads.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from pellucid.recipes.spanish.cells import linear, unit_scaling

Weighing = Callable[[Float[Tensor, "B S"], Int[Tensor, " B"]], Float[Tensor, "B S"]]
"""Scores and lengths to weights."""


def attend_all(scores: Float[Tensor, "B S"], lengths: Int[Tensor, " B"]) -> Float[Tensor, "B S"]:
    """A softmax over all positions: padding is looked at like words, as in 2016 (its states are zero)."""
    return scores.softmax(dim=1)


def attend_words(scores: Float[Tensor, "B S"], lengths: Int[Tensor, " B"]) -> Float[Tensor, "B S"]:
    """A softmax over the words alone: what the post names as the better way, and leaves out."""
    beyond = torch.arange(scores.shape[1]) >= lengths[:, None]
    return scores.masked_fill(beyond, -torch.inf).softmax(dim=1)


class Features(NamedTuple):
    """What is looked at, and its projections."""

    states: Float[Tensor, "B S H"]
    keys: Float[Tensor, "M B S H"]
    lengths: Int[Tensor, " B"]


class Looked(NamedTuple):
    """What each head found, and where it looked."""

    contexts: Float[Tensor, "B M H"]
    weights: Float[Tensor, "B M S"]


class Attention(nn.Module):
    """e_s = vᵀ tanh(K h_s + W q + b)    α = softmax(e)    a = Σ_s α_s h_s, for each head with K, W, b, v of its own.

    K is the 1×1 convolution: a product at each position by itself. q is the decoder's new state. Source: TensorFlow
    0.11, `seq2seq.attention_decoder`, after Vinyals et al. 2015 (arXiv:1412.7449), section 3.
    """

    def __init__(self, state_size: int, hidden_size: int, heads: int, weigh: Weighing) -> None:
        """`weigh` says whether padding is looked at."""
        super().__init__()
        self.weigh = weigh
        self.projections = nn.ParameterList(nn.Parameter(torch.empty(hidden_size, hidden_size)) for _ in range(heads))
        self.queries = nn.ModuleList(linear(state_size, hidden_size) for _ in range(heads))
        self.vectors = nn.ParameterList(nn.Parameter(torch.empty(hidden_size)) for _ in range(heads))
        for projection, vector in zip(self.projections, self.vectors, strict=True):
            unit_scaling(projection, hidden_size)
            unit_scaling(vector, 1)

    def prepare(self, states: Float[Tensor, "B S H"], lengths: Int[Tensor, " B"]) -> Features:
        """The projections, once for all steps."""
        return Features(states, torch.stack([states @ projection for projection in self.projections]), lengths)

    def scores(self, state: Float[Tensor, "B Z"], features: Features) -> Float[Tensor, "B M S"]:
        """e of each head, before the softmax."""
        found = [
            (features.keys[head] + query(state)[:, None]).tanh() @ self.vectors[head]
            for head, query in enumerate(self.queries)
        ]
        return torch.stack(found, dim=1)

    def forward(self, state: Float[Tensor, "B Z"], features: Features) -> Looked:
        """One look of each head."""
        scores = self.scores(state, features)
        weights = torch.stack([self.weigh(own, features.lengths) for own in scores.unbind(dim=1)], dim=1)
        return Looked(weights @ features.states, weights)
