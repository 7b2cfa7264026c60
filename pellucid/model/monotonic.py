"""Attention that only moves forward.

B batch, S source positions, K queries a source, R = B·K, D memory, H hidden units of the query, A attention units.
"""

from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from pellucid.model.attention import Attention, by_source
from pellucid.model.memory import Attendable, Attended, Memory

SMALLEST = 1e-10
"""What a product of shares counts as at least where it divides."""


class MonotonicAttention(Attention):
    """Scan the source from where the last look stopped, and stop at each position with probability p. Then read there.

        e_s = g vᵀ/‖v‖ tanh(W q + U h_s + b) + r        p_s = σ(e_s + N(0, 1))
        α_s = p_s Σ_{k ≤ s} α'_k Π_{l = k … s−1} (1 − p_l),    α' the weights of the step before

    In training α is the expected place to stop; the noise teaches p to be near 0 or 1. In use p is 1 where e_s > 0 and
    0 elsewhere: each output looks at one position, never before the last one's; past the last open position it looks
    nowhere. Source: Raffel et al. 2017, sections 2.2 to 2.4, equations 8 to 10 and 16.
    """

    kind: ClassVar[str] = "monotonic"

    def __init__(self, query_size: int, memory_size: int, units: int) -> None:
        """W: query_size → units, U and b: memory_size → units, v: units; g starts at 1/√units, r at −1."""
        super().__init__()
        self.query_projection = nn.Linear(query_size, units, bias=False)
        self.key_projection = nn.Linear(memory_size, units)
        self.energy = nn.Parameter(torch.empty(units).uniform_(-1, 1).mul_((3 / units) ** 0.5))
        self.gain = nn.Parameter(torch.tensor(units**-0.5))
        self.offset = nn.Parameter(torch.tensor(-1.0))

    def start(self, memory: Memory) -> Float[Tensor, "B S"]:
        """The scan begins at the first position."""
        first = memory.states.new_zeros(memory.states.shape[:2])
        first[:, 0] = 1
        return first

    def keys(self, memory: Memory) -> Float[Tensor, "B S A"]:
        """U h_s + b."""
        keys: Tensor = self.key_projection(memory.states)
        return keys

    def forward(
        self,
        query: Float[Tensor, "R H"],
        attendable: Attendable,
        looked: Float[Tensor, "R S"] | None,
        override: Float[Tensor, "R S"] | None = None,
    ) -> Attended:
        """Where the scan stops, and what is read there. A forced α is where the next scan begins."""
        assert looked is not None, "where the step before stopped"
        memory = attendable.memory
        weights = override
        if weights is None:
            weights = self._stopped(self._energies(query, attendable), looked, memory)
        contexts = torch.bmm(by_source(weights, memory), memory.states).flatten(0, 1)
        return Attended(contexts, weights, weights)

    def query_weights(self) -> None:
        """There is no kernel for these scores."""

    def _energies(self, query: Float[Tensor, "R H"], attendable: Attendable) -> Float[Tensor, "R S"]:
        """e_s."""
        asked: Tensor = self.query_projection(by_source(query, attendable.memory))
        direction = self.gain * self.energy / self.energy.norm()
        energies: Tensor = torch.tanh(asked[:, :, None] + attendable.keys[:, None]) @ direction + self.offset
        return energies.flatten(0, 1)

    def _stopped(
        self, energies: Float[Tensor, "R S"], looked: Float[Tensor, "R S"], memory: Memory
    ) -> Float[Tensor, "R S"]:
        """α: expected in training, else where the scan does stop."""
        queries = len(energies) // len(memory.lengths)
        inside = memory.seen().repeat_interleave(queries, dim=0)
        if self.training:
            return expected_stop(torch.sigmoid(energies + torch.randn_like(energies)) * inside, looked)
        return hard_stop((energies > 0) & inside, looked)


def expected_stop(stops: Float[Tensor, "R S"], looked: Float[Tensor, "R S"]) -> Float[Tensor, "R S"]:
    """α_s = p_s Π_{l < s} (1 − p_l) Σ_{k ≤ s} α'_k / Π_{l < k} (1 − p_l): all positions at once."""
    passed = torch.cumprod(nn.functional.pad(1 - stops, (1, -1), value=1.0), dim=1)
    return stops * passed * torch.cumsum(looked / passed.clamp(min=SMALLEST), dim=1)


def hard_stop(opened: Bool[Tensor, "R S"], looked: Float[Tensor, "R S"]) -> Float[Tensor, "R S"]:
    """The same for p of 0 or 1: an open position takes what stood at it or behind the open position before."""
    arrived = looked.cumsum(dim=1)
    taken = torch.where(opened, arrived, 0.0).cummax(dim=1).values
    before = nn.functional.pad(taken, (1, -1))
    return torch.where(opened, arrived - before, 0.0)
