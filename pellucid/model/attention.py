"""Memory and queries to contexts and weights.

B batch, S source positions, K queries a source, R = B·K all queries, D memory, H hidden units of the query, A attention
units. Each source of the memory serves the K queries that stand in its place, one after the other: one in training and
in greedy search, one for each hypothesis in a beam, so that no search copies a memory.
"""

import math
from abc import ABC, abstractmethod
from typing import ClassVar, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from pellucid.kernels.backend import Request, parts_given
from pellucid.kernels.dispatch import use_kernel
from pellucid.model.memory import Attendable, Attended, Memory
from pellucid.model.requests import kind_of, request_of


def read(scores: Float[Tensor, "R S"], memory: Memory, override: Float[Tensor, "R S"] | None = None) -> Attended:
    """α = softmax(scores over the positions that may be seen), context = Σ_s α_s h_s.

    `override` replaces α: rows that a person forces to see what would have been written had the model looked there.
    """
    weights = override if override is not None else masked_softmax(scores, memory)
    contexts = torch.bmm(by_source(weights, memory), memory.states)
    return Attended(contexts.flatten(0, 1), weights)


def masked_softmax(scores: Float[Tensor, "R S"], memory: Memory) -> Float[Tensor, "R S"]:
    """Softmax over the positions of each row that may be seen; padding, and what is hidden, gets exactly zero."""
    outside = ~memory.seen()[:, None]
    return by_source(scores, memory).masked_fill(outside, -torch.inf).softmax(dim=-1).flatten(0, 1)


def by_source(rows: Float[Tensor, "R N"], memory: Memory) -> Float[Tensor, "B K N"]:
    """What belongs to queries, source by source."""
    return rows.view(memory.lengths.shape[0], -1, rows.shape[1])


with torch.inference_mode(False):
    NOTHING = torch.empty(0, 0)
    """Stands for the parameters that a score does not have."""


class QueryWeights(NamedTuple):
    """W and v of the additive score, L and F of that by location; all empty where the score is q · key."""

    projection: Float[Tensor, "Q H"]
    energy: Float[Tensor, " Q"]
    location: Float[Tensor, "Q F"] = NOTHING
    filters: Float[Tensor, "F N"] = NOTHING


class Attention(nn.Module, ABC):
    """How a decoder looks at a memory."""

    @abstractmethod
    def keys(self, memory: Memory) -> Float[Tensor, "B S A"]:
        """What is computed from the memory once a source."""

    @abstractmethod
    def forward(
        self,
        query: Float[Tensor, "R H"],
        attendable: Attendable,
        looked: Float[Tensor, "R S"] | None,
        override: Float[Tensor, "R S"] | None = None,
    ) -> Attended:
        """One look from each query, given what the look before it left (`start` at first)."""

    @abstractmethod
    def query_weights(self) -> QueryWeights | None:
        """What turns a query and the keys into scores, for a kernel; None where there are no scores."""

    def prepare(self, memory: Memory) -> Attendable:
        """The memory with its keys."""
        return Attendable(memory, self.keys(memory))

    def start(self, memory: Memory) -> Float[Tensor, "B S"] | None:
        """What the first look is given as left by one before; None where no look depends on another."""
        return None


class ScoredAttention(Attention):
    """Attention by a score of query and state alone, softmax over positions, and the weighted mean of the states."""

    @abstractmethod
    def scores(self, query: Float[Tensor, "B K H"], keys: Float[Tensor, "B S A"]) -> Float[Tensor, "B K S"]:
        """The score e_s of each position."""

    def forward(
        self,
        query: Float[Tensor, "R H"],
        attendable: Attendable,
        looked: Float[Tensor, "R S"] | None,
        override: Float[Tensor, "R S"] | None = None,
    ) -> Attended:
        """α = softmax(e), context = Σ α_s h_s."""
        scores = self.scores(by_source(query, attendable.memory), attendable.keys)
        return read(scores.flatten(0, 1), attendable.memory, override)


class AdditiveAttention(ScoredAttention):
    """e_s = vᵀ tanh(W q + U h_s + b). Bahdanau et al. 2015, section 3.1 and appendix A.1.2."""

    kind: ClassVar[str] = "additive"

    def __init__(self, query_size: int, memory_size: int, units: int) -> None:
        """W: query_size → units, U and b: memory_size → units, v: units."""
        super().__init__()
        self.query_projection = nn.Linear(query_size, units, bias=False)
        self.key_projection = nn.Linear(memory_size, units)
        self.energy = nn.Parameter(torch.empty(units).uniform_(-1, 1).mul_((3 / units) ** 0.5))

    def keys(self, memory: Memory) -> Float[Tensor, "B S A"]:
        """U h_s + b."""
        return _projected(self.key_projection, memory.states)

    def scores(self, query: Float[Tensor, "B K H"], keys: Float[Tensor, "B S A"]) -> Float[Tensor, "B K S"]:
        """vᵀ tanh(W q + keys)."""
        asked: Tensor = self.query_projection(query)
        energies: Tensor = torch.tanh(asked[:, :, None] + keys[:, None]) @ self.energy
        return energies

    def forward(
        self,
        query: Float[Tensor, "R H"],
        attendable: Attendable,
        looked: Float[Tensor, "R S"] | None,
        override: Float[Tensor, "R S"] | None = None,
    ) -> Attended:
        """As any scored attention; on a GPU by a kernel, where there is one."""
        if not use_kernel(self.request(query, attendable, override)):
            return super().forward(query, attendable, looked, override)
        from pellucid.kernels.triton_attention import attend  # Triton is an extra

        asked, memory = self.query_projection(query), attendable.memory
        return Attended(*attend(asked, self.energy, attendable.keys, memory.states, memory.lengths))

    def request(
        self, query: Float[Tensor, "R H"], attendable: Attendable, override: Float[Tensor, "R S"] | None
    ) -> Request:
        """Return what is asked of a backend that attends from all queries."""
        keys = attendable.keys
        facts = (
            ("attention.kind", kind_of(self)),
            ("attention.override", override is not None),
            ("attention.differentiated_queries", len(query) // len(keys) if torch.is_grad_enabled() else 0),
            ("attention.positions", keys.shape[1]),
            *parts_given("memory", attendable.memory),
        )
        return request_of("attention", keys, facts)

    def query_weights(self) -> QueryWeights:
        """W and v."""
        return QueryWeights(self.query_projection.weight, self.energy)


class ProductAttention(ScoredAttention):
    """e_s = qᵀ key_s: the score of all attentions whose keys have the size of the query."""

    def scores(self, query: Float[Tensor, "B K H"], keys: Float[Tensor, "B S A"]) -> Float[Tensor, "B K S"]:
        """q · keys."""
        return torch.bmm(query, keys.transpose(1, 2))

    def query_weights(self) -> QueryWeights:
        """None to apply: the query stays as it is."""
        return QueryWeights(torch.empty(0, 0), torch.empty(0))


class DotAttention(ProductAttention):
    """e_s = qᵀ h_s. Luong et al. 2015, section 3.1, "dot". Query and memory have one size."""

    kind: ClassVar[str] = "dot"

    def keys(self, memory: Memory) -> Float[Tensor, "B S A"]:
        """The states themselves."""
        return memory.states


class ScaledDotAttention(ProductAttention):
    """e_s = qᵀ h_s / √D. Vaswani et al. 2017, section 3.2.1. Query and memory have one size."""

    kind: ClassVar[str] = "scaled-dot"

    def keys(self, memory: Memory) -> Float[Tensor, "B S A"]:
        """The states over √D."""
        return memory.states / math.sqrt(memory.states.shape[-1])


class GeneralAttention(ProductAttention):
    """e_s = qᵀ W h_s. Luong et al. 2015, section 3.1, "general"."""

    kind: ClassVar[str] = "general"

    def __init__(self, query_size: int, memory_size: int) -> None:
        """W: memory_size → query_size."""
        super().__init__()
        self.key_projection = nn.Linear(memory_size, query_size, bias=False)

    def keys(self, memory: Memory) -> Float[Tensor, "B S A"]:
        """W h_s."""
        return _projected(self.key_projection, memory.states)


def _projected(projection: nn.Linear, states: Float[Tensor, "B S D"]) -> Float[Tensor, "B S A"]:
    """The keys. In training a kernel projects: its keys stand as the one that unrolls the decoder reads them."""
    if use_kernel(request_of("keys", states)):
        from pellucid.kernels.autograd import project  # Numba takes a second to import

        return project(states, projection.weight, projection.bias)
    keys: Tensor = projection(states)
    return keys


class LocationAttention(Attention):
    """e_s = vᵀ tanh(W q + U h_s + b + L f_s): the additive score, which sees where the step before looked.

    f_s = Σ_j F_j α'_{s+j}, j from −radius to radius: filters that slide over the weights α' of the step before. α' is
    zero outside a row's positions, and everywhere at the first step: nothing has been looked at, and no end of the
    source is taken for its beginning. Source: Chorowski et al. 2015, section 2.1, equations 8 and 9.
    """

    kind: ClassVar[str] = "location"

    def __init__(self, query_size: int, memory_size: int, units: int, filters: int, radius: int) -> None:
        """W: query_size → units, U and b: memory_size → units, L: filters → units, v: units, F: 2 radius + 1 wide."""
        super().__init__()
        self.query_projection = nn.Linear(query_size, units, bias=False)
        self.key_projection = nn.Linear(memory_size, units)
        self.location_projection = nn.Linear(filters, units, bias=False)
        self.filters = nn.Conv1d(1, filters, 2 * radius + 1, padding=radius, bias=False)
        self.energy = nn.Parameter(torch.empty(units).uniform_(-1, 1).mul_((3 / units) ** 0.5))

    def start(self, memory: Memory) -> Float[Tensor, "B S"]:
        """Zeros."""
        return memory.states.new_zeros(memory.states.shape[:2])

    def keys(self, memory: Memory) -> Float[Tensor, "B S A"]:
        """U h_s + b."""
        return _projected(self.key_projection, memory.states)

    def forward(
        self,
        query: Float[Tensor, "R H"],
        attendable: Attendable,
        looked: Float[Tensor, "R S"] | None,
        override: Float[Tensor, "R S"] | None = None,
    ) -> Attended:
        """α = softmax(e), context = Σ α_s h_s. A forced α is what the next step sees, as any other."""
        assert looked is not None, "where the step before looked"
        memory = attendable.memory
        asked: Tensor = self.query_projection(by_source(query, memory))
        seen = by_source(looked, memory).masked_fill(~memory.mask()[:, None], 0)
        located = self.location_projection(self.filters(seen.flatten(0, 1)[:, None]).transpose(1, 2))
        summed = asked[:, :, None] + attendable.keys[:, None] + located.unflatten(0, asked.shape[:2])
        attended = read((torch.tanh(summed) @ self.energy).flatten(0, 1), memory, override)
        return attended._replace(looked=attended.weights)

    def query_weights(self) -> QueryWeights:
        """W, v, L and F."""
        filters = self.filters.weight[:, 0]
        return QueryWeights(self.query_projection.weight, self.energy, self.location_projection.weight, filters)


class NoAttention(Attention):
    """The bottleneck: the context is the encoder's final state at every step. Its weights are zero: it looks nowhere.

    Source: Cho et al. 2014, section 2.2.
    """

    kind: ClassVar[str] = "none"

    def keys(self, memory: Memory) -> Float[Tensor, "B S A"]:
        """Nothing to compute: no unit."""
        return memory.states[:, :, :0]

    def forward(
        self,
        query: Float[Tensor, "R H"],
        attendable: Attendable,
        looked: Float[Tensor, "R S"] | None,
        override: Float[Tensor, "R S"] | None = None,
    ) -> Attended:
        """The final state of the top layer; an override reads the states it names instead."""
        memory = attendable.memory
        if override is not None:
            return read(override, memory, override)
        queries = len(query) // len(memory.lengths)
        code = memory.final.hidden[:, -1].repeat_interleave(queries, dim=0)
        return Attended(code, memory.states.new_zeros(len(query), memory.states.shape[1]))

    def query_weights(self) -> None:
        """There are no scores."""


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
