"""Several looks at once.

B batch, S source positions, K queries a source, R = B·K, N heads, D memory, H hidden units of the query, A attention
units of all heads together, U = A / N of one.
"""

from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from pellucid.model.attention import Attention, by_source, read
from pellucid.model.memory import Attendable, Attended, Memory


class MultiHeadAttention(Attention):
    """e_ns = v_nᵀ tanh(W_n q + U_n h_s + b_n), α_n = softmax(e_n), c = W_o [Σ_s α_1s h_s; …; Σ_s α_Ns h_s].

    Each head is an additive attention of its own (Bahdanau et al. 2015, appendix A.1.2) with its part of the units, so
    that N heads cost about what one does; their contexts are joined and projected back to the size of one (Vaswani et
    al. 2017, section 3.2.2). `Attended.weights` is the mean over the heads, `Attended.heads` holds their own.
    """

    kind: ClassVar[str] = "multi-head additive"

    def __init__(self, query_size: int, memory_size: int, units: int, heads: int) -> None:
        """W: query_size → units, U and b: memory_size → units, v: units, W_o: heads · memory_size → memory_size."""
        super().__init__()
        self.query_projection = nn.Linear(query_size, units, bias=False)
        self.key_projection = nn.Linear(memory_size, units)
        own = units // heads
        self.energy = nn.Parameter(torch.empty(heads, own).uniform_(-1, 1).mul_((3 / own) ** 0.5))
        self.context_projection = nn.Linear(heads * memory_size, memory_size, bias=False)

    def keys(self, memory: Memory) -> Float[Tensor, "B S A"]:
        """U h_s + b of all heads, side by side."""
        keys: Tensor = self.key_projection(memory.states)
        return keys

    def forward(
        self,
        query: Float[Tensor, "R H"],
        attendable: Attendable,
        looked: Float[Tensor, "R S"] | None,
        override: Float[Tensor, "R S"] | None = None,
    ) -> Attended:
        """One look of every head; an override forces all of them."""
        (heads, own), memory = self.energy.shape, attendable.memory
        asked: Tensor = self.query_projection(by_source(query, memory))
        summed = torch.tanh(asked[:, :, None] + attendable.keys[:, None])
        scores = torch.einsum("bksnu,nu->bkns", summed.view(*summed.shape[:3], heads, own), self.energy).flatten(0, 2)
        forced = None if override is None else override.repeat_interleave(heads, dim=0)
        each = read(scores, memory, forced)
        weights = each.weights.view(len(query), heads, -1)
        context: Tensor = self.context_projection(each.context.reshape(len(query), -1))
        return Attended(context, weights.mean(dim=1), heads=weights)

    def query_weights(self) -> None:
        """There is no kernel for several heads."""
