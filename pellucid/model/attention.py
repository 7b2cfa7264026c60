"""Attention: contexts and weights from a memory and queries.

B batch, S source positions, K queries a source, R = B·K all queries, D memory, H hidden units of the query, A attention
units. Each source of the memory serves K consecutive queries: one in training and in greedy search, one for each
hypothesis in a beam, so that no search copies a memory.

A new attention is a subclass of `Attention`, or of `ScoredAttention` where it has a score, an entry in `ATTENTIONS`,
and a name in `AttentionConfig` of config/settings.py. Nothing else asks which attention it is. PyTorch computes it
until a kernel knows it too (`kernels.types.SCORES`), and only then is `score_params` needed.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import ClassVar, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from pellucid.config.settings import AttentionConfig
from pellucid.kernels.backend import Request, parts_given
from pellucid.kernels.dispatch import use_kernel
from pellucid.model.memory import AttentionCache, AttentionOutput, Memory
from pellucid.model.requests import kind_of, request_of


def attend(
    scores: Float[Tensor, "R S"], memory: Memory, override: Float[Tensor, "R S"] | None = None
) -> AttentionOutput:
    """Return α = softmax(scores over the positions that may be attended to), and the contexts Σ_s α_s h_s.

    `override` replaces α by rows that a user forces.
    """
    weights = override if override is not None else masked_softmax(scores, memory)
    contexts = torch.bmm(group_by_source(weights, memory), memory.states)
    return AttentionOutput(contexts.flatten(0, 1), weights)


def masked_softmax(scores: Float[Tensor, "R S"], memory: Memory) -> Float[Tensor, "R S"]:
    """Return the softmax over positions that are neither padding nor hidden; the others get exactly zero."""
    outside = ~memory.attention_mask()[:, None]
    return group_by_source(scores, memory).masked_fill(outside, -torch.inf).softmax(dim=-1).flatten(0, 1)


def group_by_source(rows: Float[Tensor, "R N"], memory: Memory) -> Float[Tensor, "B K N"]:
    """Return rows of queries grouped by source."""
    return rows.view(memory.lengths.shape[0], -1, rows.shape[1])


with torch.inference_mode(False):
    NO_ROWS, NO_UNITS = torch.empty(0, 0), torch.empty(0)
    """Stand for the parameters that a score does not have."""


class ScoreParams(NamedTuple):
    """Parameters that a kernel reads: W and v of the additive score, also L and F of the location-sensitive one."""

    query: Float[Tensor, "Q H"] = NO_ROWS
    energy: Float[Tensor, " Q"] = NO_UNITS
    location: Float[Tensor, "Q F"] = NO_ROWS
    filters: Float[Tensor, "F N"] = NO_ROWS


class Attention(nn.Module, ABC):
    """Attention of a decoder to a memory."""

    @abstractmethod
    def keys(self, memory: Memory) -> Float[Tensor, "B S A"]:
        """Return the part of the scores that is computed once a source."""

    @abstractmethod
    def forward(
        self,
        query: Float[Tensor, "R H"],
        attendable: AttentionCache,
        attention_state: Float[Tensor, "R S"] | None,
        override: Float[Tensor, "R S"] | None = None,
    ) -> AttentionOutput:
        """Attend from each query, given `attention_state` of the step before (`initial_state` at first)."""

    def score_params(self) -> ScoreParams:
        """Return the parameters that a kernel reads; called for the kinds of attention that a kernel supports."""
        raise NotImplementedError(type(self).__name__)

    def prepare(self, memory: Memory) -> AttentionCache:
        """Return the memory with its keys."""
        return AttentionCache(memory, self.keys(memory))

    def initial_state(self, memory: Memory) -> Float[Tensor, "B S"] | None:
        """Return `attention_state` of the first step; None where no step depends on the attention before."""
        return None


class ScoredAttention(Attention):
    """Attention by a score of query and state alone, softmax over positions, and the weighted mean of the states."""

    @abstractmethod
    def scores(self, query: Float[Tensor, "B K H"], keys: Float[Tensor, "B S A"]) -> Float[Tensor, "B K S"]:
        """Return the score e_s of each position."""

    def forward(
        self,
        query: Float[Tensor, "R H"],
        attendable: AttentionCache,
        attention_state: Float[Tensor, "R S"] | None,
        override: Float[Tensor, "R S"] | None = None,
    ) -> AttentionOutput:
        """Return α = softmax(e) and the context Σ α_s h_s."""
        scores = self.scores(group_by_source(query, attendable.memory), attendable.keys)
        return attend(scores.flatten(0, 1), attendable.memory, override)


def additive_energies(
    queries: Float[Tensor, "B K A"],
    keys: Float[Tensor, "B S A"],
    energy: Float[Tensor, " A"],
    located: Float[Tensor, "B K S A"] | None = None,
) -> Float[Tensor, "B K S"]:
    """Return vᵀ tanh(q + key_s), or vᵀ tanh(q + key_s + l_s): the reference of every additive score."""
    summed = queries[:, :, None] + keys[:, None]
    energies: Tensor = torch.tanh(summed if located is None else summed + located) @ energy
    return energies


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
        """Return U h_s + b."""
        return _projected(self.key_projection, memory.states)

    def scores(self, query: Float[Tensor, "B K H"], keys: Float[Tensor, "B S A"]) -> Float[Tensor, "B K S"]:
        """Return vᵀ tanh(W q + keys)."""
        return additive_energies(self.query_projection(query), keys, self.energy)

    def forward(
        self,
        query: Float[Tensor, "R H"],
        attendable: AttentionCache,
        attention_state: Float[Tensor, "R S"] | None,
        override: Float[Tensor, "R S"] | None = None,
    ) -> AttentionOutput:
        """Return α and the context; by a kernel on a GPU where it supports them."""
        if not use_kernel(self.request(query, attendable, override)):
            return super().forward(query, attendable, attention_state, override)
        from pellucid.kernels.triton_attention import attend as attend_triton  # Triton is an extra

        asked, memory = self.query_projection(query), attendable.memory
        return AttentionOutput(*attend_triton(asked, self.energy, attendable.keys, memory.states, memory.lengths))

    def request(
        self, query: Float[Tensor, "R H"], attendable: AttentionCache, override: Float[Tensor, "R S"] | None
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

    def score_params(self) -> ScoreParams:
        """Return W and v."""
        return ScoreParams(self.query_projection.weight, self.energy)


class DotProductAttention(ScoredAttention):
    """e_s = qᵀ key_s: the score of all attentions whose keys have the size of the query."""

    def scores(self, query: Float[Tensor, "B K H"], keys: Float[Tensor, "B S A"]) -> Float[Tensor, "B K S"]:
        """Return q · keys."""
        return torch.bmm(query, keys.transpose(1, 2))

    def score_params(self) -> ScoreParams:
        """Return no parameters: the state is the query."""
        return ScoreParams()


class DotAttention(DotProductAttention):
    """e_s = qᵀ h_s. Luong et al. 2015, section 3.1, "dot". Query and memory have one size."""

    kind: ClassVar[str] = "dot"

    def keys(self, memory: Memory) -> Float[Tensor, "B S A"]:
        """Return the states themselves."""
        return memory.states


class ScaledDotAttention(DotProductAttention):
    """e_s = qᵀ h_s / √D. Vaswani et al. 2017, section 3.2.1. Query and memory have one size."""

    kind: ClassVar[str] = "scaled-dot"

    def keys(self, memory: Memory) -> Float[Tensor, "B S A"]:
        """Return the states over √D."""
        return memory.states / math.sqrt(memory.states.shape[-1])


class GeneralAttention(DotProductAttention):
    """e_s = qᵀ W h_s. Luong et al. 2015, section 3.1, "general"."""

    kind: ClassVar[str] = "general"

    def __init__(self, query_size: int, memory_size: int) -> None:
        """W: memory_size → query_size."""
        super().__init__()
        self.key_projection = nn.Linear(memory_size, query_size, bias=False)

    def keys(self, memory: Memory) -> Float[Tensor, "B S A"]:
        """Return W h_s."""
        return _projected(self.key_projection, memory.states)


def _projected(projection: nn.Linear, states: Float[Tensor, "B S D"]) -> Float[Tensor, "B S A"]:
    """Return the keys. In training a kernel projects them into the order in which the unrolled decoder reads them."""
    if use_kernel(request_of("keys", states)):
        from pellucid.kernels.autograd import project  # Numba takes a second to import

        return project(states, projection.weight, projection.bias)
    keys: Tensor = projection(states)
    return keys


class LocationSensitiveAttention(Attention):
    """e_s = vᵀ tanh(W q + U h_s + b + L f_s): the additive score with the weights of the step before.

    f_s = Σ_j F_j α'_{s+j}, j from −radius to radius: filters that slide over the weights α' of the step before. α' is
    zero outside a row's positions, and everywhere at the first step. Source: Chorowski et al. 2015, section 2.1,
    equations 8 and 9.
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

    def initial_state(self, memory: Memory) -> Float[Tensor, "B S"]:
        """Return zeros."""
        return memory.states.new_zeros(memory.states.shape[:2])

    def keys(self, memory: Memory) -> Float[Tensor, "B S A"]:
        """Return U h_s + b."""
        return _projected(self.key_projection, memory.states)

    def forward(
        self,
        query: Float[Tensor, "R H"],
        attendable: AttentionCache,
        attention_state: Float[Tensor, "R S"] | None,
        override: Float[Tensor, "R S"] | None = None,
    ) -> AttentionOutput:
        """Return α = softmax(e) and the context Σ α_s h_s. The next step reads a forced α as any other."""
        assert attention_state is not None, "a location-sensitive score needs the weights before"
        memory = attendable.memory
        asked: Tensor = self.query_projection(group_by_source(query, memory))
        before = group_by_source(attention_state, memory).masked_fill(~memory.mask()[:, None], 0)
        located = self.location_projection(self.filters(before.flatten(0, 1)[:, None]).transpose(1, 2))
        energies = additive_energies(asked, attendable.keys, self.energy, located.unflatten(0, asked.shape[:2]))
        attended = attend(energies.flatten(0, 1), memory, override)
        return attended._replace(attention_state=attended.weights)

    def score_params(self) -> ScoreParams:
        """Return W, v, L and F."""
        filters = self.filters.weight[:, 0]
        return ScoreParams(self.query_projection.weight, self.energy, self.location_projection.weight, filters)


class NoAttention(Attention):
    """The bottleneck: the context is the encoder's final state at every step. Its weights are zero.

    Source: Cho et al. 2014, section 2.2.
    """

    kind: ClassVar[str] = "none"

    def keys(self, memory: Memory) -> Float[Tensor, "B S A"]:
        """Return keys without units."""
        return memory.states[:, :, :0]

    def forward(
        self,
        query: Float[Tensor, "R H"],
        attendable: AttentionCache,
        attention_state: Float[Tensor, "R S"] | None,
        override: Float[Tensor, "R S"] | None = None,
    ) -> AttentionOutput:
        """Return the final state of the top layer; with an override, the mean of the states by its weights."""
        memory = attendable.memory
        if override is not None:
            return attend(override, memory, override)
        queries = len(query) // len(memory.lengths)
        code = memory.final.hidden[:, -1].repeat_interleave(queries, dim=0)
        return AttentionOutput(code, memory.states.new_zeros(len(query), memory.states.shape[1]))


class MultiHeadAttention(Attention):
    """e_ns = v_nᵀ tanh(W_n q + U_n h_s + b_n), α_n = softmax(e_n), c = W_o [Σ_s α_1s h_s; …; Σ_s α_Ns h_s].

    Each head is an additive attention of its own (Bahdanau et al. 2015, appendix A.1.2) with its part of the units, so
    that N heads cost about what one does; their contexts are joined and projected back to the size of one (Vaswani et
    al. 2017, section 3.2.2). The weights returned are the mean over the heads; `AttentionOutput.heads` holds their own.
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
        """Return U h_s + b of all heads, side by side."""
        keys: Tensor = self.key_projection(memory.states)
        return keys

    def forward(
        self,
        query: Float[Tensor, "R H"],
        attendable: AttentionCache,
        attention_state: Float[Tensor, "R S"] | None,
        override: Float[Tensor, "R S"] | None = None,
    ) -> AttentionOutput:
        """Attend with every head; an override forces all of them."""
        (heads, own), memory = self.energy.shape, attendable.memory
        asked: Tensor = self.query_projection(group_by_source(query, memory))
        summed = torch.tanh(asked[:, :, None] + attendable.keys[:, None])
        scores = torch.einsum("bksnu,nu->bkns", summed.view(*summed.shape[:3], heads, own), self.energy).flatten(0, 2)
        forced = None if override is None else override.repeat_interleave(heads, dim=0)
        each = attend(scores, memory, forced)
        weights = each.weights.view(len(query), heads, -1)
        context: Tensor = self.context_projection(each.context.reshape(len(query), -1))
        return AttentionOutput(context, weights.mean(dim=1), heads=weights)


SMALLEST = 1e-10
"""Lower bound of a product of probabilities that divides."""


class MonotonicAttention(Attention):
    """Scan the source from where the last scan stopped, and stop at each position with probability p.

        e_s = g vᵀ/‖v‖ tanh(W q + U h_s + b) + r        p_s = σ(e_s + N(0, 1))
        α_s = p_s Σ_{k ≤ s} α'_k Π_{l = k … s−1} (1 − p_l),    α' the weights of the step before

    In training α is the expected place to stop; the noise teaches p to be near 0 or 1. In use p is 1 where e_s > 0 and
    0 elsewhere: each output attends to one position, never before the last one's; past the last open position to
    none. Source: Raffel et al. 2017, sections 2.2 to 2.4, equations 8 to 10 and 16.
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

    def initial_state(self, memory: Memory) -> Float[Tensor, "B S"]:
        """Return weight 1 at the first position, where the scan begins."""
        first = memory.states.new_zeros(memory.states.shape[:2])
        first[:, 0] = 1
        return first

    def keys(self, memory: Memory) -> Float[Tensor, "B S A"]:
        """Return U h_s + b."""
        keys: Tensor = self.key_projection(memory.states)
        return keys

    def forward(
        self,
        query: Float[Tensor, "R H"],
        attendable: AttentionCache,
        attention_state: Float[Tensor, "R S"] | None,
        override: Float[Tensor, "R S"] | None = None,
    ) -> AttentionOutput:
        """Return α where the scan stops, and the context there. The next scan begins where a forced α is."""
        assert attention_state is not None, "a monotonic scan needs the weights before"
        memory = attendable.memory
        weights = override
        if weights is None:
            weights = self._stopped(self._energies(query, attendable), attention_state, memory)
        contexts = torch.bmm(group_by_source(weights, memory), memory.states).flatten(0, 1)
        return AttentionOutput(contexts, weights, weights)

    def _energies(self, query: Float[Tensor, "R H"], attendable: AttentionCache) -> Float[Tensor, "R S"]:
        """Return e_s."""
        asked: Tensor = self.query_projection(group_by_source(query, attendable.memory))
        direction = self.gain * self.energy / self.energy.norm()
        return (additive_energies(asked, attendable.keys, direction) + self.offset).flatten(0, 1)

    def _stopped(
        self, energies: Float[Tensor, "R S"], looked: Float[Tensor, "R S"], memory: Memory
    ) -> Float[Tensor, "R S"]:
        """Return α: expected in training, else of the scan itself."""
        queries = len(energies) // len(memory.lengths)
        inside = memory.attention_mask().repeat_interleave(queries, dim=0)
        if self.training:
            return expected_stop(torch.sigmoid(energies + torch.randn_like(energies)) * inside, looked)
        return hard_stop((energies > 0) & inside, looked)


def expected_stop(stops: Float[Tensor, "R S"], looked: Float[Tensor, "R S"]) -> Float[Tensor, "R S"]:
    """Return α_s = p_s Π_{l < s} (1 − p_l) Σ_{k ≤ s} α'_k / Π_{l < k} (1 − p_l) for all positions at once."""
    passed = torch.cumprod(nn.functional.pad(1 - stops, (1, -1), value=1.0), dim=1)
    return stops * passed * torch.cumsum(looked / passed.clamp(min=SMALLEST), dim=1)


def hard_stop(opened: Bool[Tensor, "R S"], looked: Float[Tensor, "R S"]) -> Float[Tensor, "R S"]:
    """Return α for p of 0 or 1: an open position takes the weight since the open position before it."""
    arrived = looked.cumsum(dim=1)
    taken = torch.where(opened, arrived, 0.0).cummax(dim=1).values
    before = nn.functional.pad(taken, (1, -1))
    return torch.where(opened, arrived - before, 0.0)


Build = Callable[[AttentionConfig, int, int], Attention]


def _build_additive(config: AttentionConfig, query_size: int, memory_size: int) -> Attention:
    """Return the additive attention of one head or several."""
    if config.num_heads > 1:
        return MultiHeadAttention(query_size, memory_size, config.size, config.num_heads)
    return AdditiveAttention(query_size, memory_size, config.size)


ATTENTIONS: Mapping[str, Build] = {
    "additive": _build_additive,
    "location": lambda config, query, memory: LocationSensitiveAttention(
        query, memory, config.size, config.filters, config.filter_radius
    ),
    "monotonic": lambda config, query, memory: MonotonicAttention(query, memory, config.size),
    "dot": lambda config, query, memory: DotAttention(),
    "general": lambda config, query, memory: GeneralAttention(query, memory),
    "scaled-dot": lambda config, query, memory: ScaledDotAttention(),
    "none": lambda config, query, memory: NoAttention(),
}
"""All kinds of attention by their name in the settings, built from the settings and the sizes of query and memory."""


def build_attention(config: AttentionConfig, query_size: int, memory_size: int) -> Attention:
    """Return the attention that a configuration names."""
    return ATTENTIONS[config.type](config, query_size, memory_size)
