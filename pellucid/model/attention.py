"""Attention: contexts and weights from a memory and queries.

B batch, S source positions, K queries a source, R = B·K all queries, D memory, H hidden units of the query, A attention
units, F filters, N numbers of a row or positions of a filter. The query q is a decoder state: s_{t−1} if attention
precedes the cell, s_t if it follows. h_s is the encoder state at source position s, e_s its score, α_s its weight, and
c = Σ_s α_s h_s the context. In the additive scores W is `query_projection`, U and b are `key_projection`, and v is
`energy`.

Each source of the memory serves K consecutive queries: one in training and in greedy search, one for each
hypothesis in a beam, so that no search copies a memory.

A new attention is a subclass of `Attention`, or of `ScoredAttention` where it has a score. Other packages register it
with `register_attention` or declare it as an entry point (config/attention_types.py). Here it has an entry in
`ATTENTIONS`, its equations in `ATTENTION_EQUATIONS` of model/equations.py, and a name in `BUILT_IN_TYPES` of
config/attention_types.py, which also lists its properties; requirements of its settings are in config/validation.py. No
other module depends on the kind of attention. PyTorch computes it until a kernel supports it (`kernels.types.SCORES`),
and only then is `score_params` needed.
"""

import inspect
import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import ClassVar, NamedTuple, cast

import torch
from torch import Tensor, nn

from pellucid.argument_checks import convert_argument
from pellucid.config.attention_types import ATTENTION_TYPES, is_custom_attention
from pellucid.config.extensions import ClassRequirement, own_modules, takes_arguments
from pellucid.config.settings import AttentionConfig, PositiveInt
from pellucid.errors import ArgumentError, ConfigError, InputError, describe_failure, quote
from pellucid.kernels.backend import ComputationRequest, present_fields
from pellucid.kernels.dispatch import use_kernel
from pellucid.model.attention_check import CheckedAttention, check_attention_module, unused_parameters
from pellucid.model.memory import AttentionOutput, DecoderCache, Memory
from pellucid.model.requests import kind_of, request_of
from pellucid.shapes import Bool, Float


def attend(
    scores: Float[Tensor, "R S"], memory: Memory, forced_weights: Float[Tensor, "R S"] | None = None
) -> AttentionOutput:
    """Return the contexts Σ_s α_s h_s and α = softmax(scores) over the positions that may be attended to.

    Args:
        scores: Score of each query at each position; not read with forced weights.
        memory: States and lengths of the sources.
        forced_weights: Weights that replace α; None to use the scores.
    """
    weights = forced_weights if forced_weights is not None else masked_softmax(scores, memory)
    contexts = torch.bmm(group_by_source(weights, memory), memory.states)
    return AttentionOutput(contexts.flatten(0, 1), weights)


def masked_softmax(scores: Float[Tensor, "R S"], memory: Memory) -> Float[Tensor, "R S"]:
    """Return the softmax over the positions that are neither padding nor masked; the others get exactly zero.

    Args:
        scores: Score of each query at each position.
        memory: Lengths and masked positions of the sources.
    """
    outside = ~memory.attention_mask()[:, None]
    return group_by_source(scores, memory).masked_fill(outside, -torch.inf).softmax(dim=-1).flatten(0, 1)


def group_by_source(rows: Float[Tensor, "R N"], memory: Memory) -> Float[Tensor, "B K N"]:
    """Reshape the rows of queries so that those of one source form a group: a view of the same numbers.

    Args:
        rows: One row for each query; those of a source are consecutive.
        memory: The sources.
    """
    return rows.view(memory.lengths.shape[0], -1, rows.shape[1])


# An import within inference mode would create tensors that autograd refuses.
with torch.inference_mode(False):
    EMPTY_MATRIX, EMPTY_VECTOR = torch.empty(0, 0, dtype=torch.float32), torch.empty(0, dtype=torch.float32)
    """Empty tensors in place of the parameters that a score does not have."""


class ScoreParams(NamedTuple):
    """Parameters of a score that a kernel reads; those that the score does not have are empty."""

    query: Float[Tensor, "A H"] = EMPTY_MATRIX
    """W of the additive scores."""
    energy: Float[Tensor, " A"] = EMPTY_VECTOR
    """v of the additive scores."""
    location: Float[Tensor, "A F"] = EMPTY_MATRIX
    """L of the location-sensitive score."""
    filters: Float[Tensor, "F N"] = EMPTY_MATRIX
    """F of the location-sensitive score: one filter per row."""


class Attention(nn.Module, ABC):
    """Attention of a decoder to a memory: base of all kinds."""

    has_weights: ClassVar[bool] = True
    """False if the attention has no weights, which then cannot be masked or permuted."""
    uses_softmax: ClassVar[bool] = True
    """True if the weights are a softmax of scores, which can then be decomposed."""

    @abstractmethod
    def keys(self, memory: Memory) -> Float[Tensor, "B S A"]:
        """Return the part of the scores that does not depend on the query, and is computed once per source.

        Args:
            memory: Encoder output.
        """

    @abstractmethod
    def forward(
        self,
        query: Float[Tensor, "R H"],
        cache: DecoderCache,
        attention_state: Float[Tensor, "R ..."] | None,
        forced_weights: Float[Tensor, "R S"] | None = None,
    ) -> AttentionOutput:
        """Return the attention weights and the context of each query.

        Args:
            query: Decoder state of each hypothesis; those of a source are consecutive.
            cache: Memory and keys.
            attention_state: The state that the previous step returned, such as its weights, one row per query; at the
                first step `initial_attention_state`. None if the attention has no state.
            forced_weights: Weights that replace α; None for the weights of the attention.
        """

    def score_params(self) -> ScoreParams:
        """Return the parameters that a kernel reads.

        Raises:
            NotImplementedError: No kernel supports this kind of attention.
        """
        raise NotImplementedError(type(self).__name__)

    def build_cache(self, memory: Memory) -> DecoderCache:
        """Return the memory and its keys, which `forward` reads at every step.

        Args:
            memory: Encoder output.
        """
        return DecoderCache(memory, self.keys(memory))

    def initial_attention_state(self, memory: Memory) -> Float[Tensor, "B ..."] | None:
        """Return the attention state before the first step; None if the attention has no state.

        It may have any shape with one row per source, such as (B, S) for weights or (B, M) for M numbers; all steps
        have the same.

        Args:
            memory: Encoder output.
        """
        return None


class ScoredAttention(Attention):
    """Attention by a score of query and state: softmax over positions, and the weighted mean of the states."""

    @abstractmethod
    def scores(self, query: Float[Tensor, "B K H"], keys: Float[Tensor, "B S A"]) -> Float[Tensor, "B K S"]:
        """Return the score e_s of each position.

        S is the length of the longest source of the batch. A score must depend neither on S nor on the keys of other
        positions, which may be padding; `keys` has the lengths.

        Args:
            query: Queries of each source.
            keys: Keys of each source.
        """

    def forward(
        self,
        query: Float[Tensor, "R H"],
        cache: DecoderCache,
        attention_state: Float[Tensor, "R S"] | None,
        forced_weights: Float[Tensor, "R S"] | None = None,
    ) -> AttentionOutput:
        """Return the contexts Σ_s α_s h_s and α = softmax(e).

        Args:
            query: Decoder state of each hypothesis; those of a source are consecutive.
            cache: Memory and keys.
            attention_state: Not read.
            forced_weights: Weights that replace α; None if there is none.
        """
        queries = group_by_source(query, cache.memory)
        scores = self.scores(queries, cache.keys)
        expected = (*queries.shape[:2], cache.keys.shape[1])
        if scores.shape != expected:  # a class of another package
            raise ArgumentError(
                f"{type(self).__name__}.scores returned the shape {tuple(scores.shape)}; expected (B, K, S) = "
                f"{expected}: a score of each position for each of K queries per source"
            )
        return attend(scores.flatten(0, 1), cache.memory, forced_weights)


def additive_scores(
    queries: Float[Tensor, "B K A"],
    keys: Float[Tensor, "B S A"],
    energy: Float[Tensor, " A"],
    location_term: Float[Tensor, "B K S A"] | None = None,
) -> Float[Tensor, "B K S"]:
    """Return vᵀ tanh(q + key_s), or vᵀ tanh(q + key_s + l_s): the reference of every additive score.

    Args:
        queries: q, the projected queries.
        keys: Projected states of each source.
        energy: v.
        location_term: l, for location-sensitive attention; None if there is none.
    """
    summed = queries[:, :, None] + keys[:, None]
    scores: Tensor = torch.tanh(summed if location_term is None else summed + location_term) @ energy
    return scores


class AdditiveAttention(ScoredAttention):
    """e_s = vᵀ tanh(W q + U h_s + b).

    References:
        Bahdanau et al. 2015, section 3.1 and appendix A.1.2.
    """

    kind: ClassVar[str] = "additive"

    def __init__(self, query_size: int, memory_size: int, units: int) -> None:
        """Initialize W: query_size → units, U and b: memory_size → units, v: units.

        Args:
            query_size: H.
            memory_size: D.
            units: A.
        """
        super().__init__()
        self.query_projection = nn.Linear(query_size, units, bias=False)
        self.key_projection = nn.Linear(memory_size, units)
        self.energy = nn.Parameter(torch.empty(units).uniform_(-1, 1).mul_((3 / units) ** 0.5))

    def keys(self, memory: Memory) -> Float[Tensor, "B S A"]:
        """Return U h_s + b.

        Args:
            memory: Encoder output.
        """
        return _project_keys(self.key_projection, memory.states)

    def scores(self, query: Float[Tensor, "B K H"], keys: Float[Tensor, "B S A"]) -> Float[Tensor, "B K S"]:
        """Return vᵀ tanh(W q + keys).

        Args:
            query: Queries of each source.
            keys: Keys of each source.
        """
        return additive_scores(self.query_projection(query), keys, self.energy)

    def forward(
        self,
        query: Float[Tensor, "R H"],
        cache: DecoderCache,
        attention_state: Float[Tensor, "R S"] | None,
        forced_weights: Float[Tensor, "R S"] | None = None,
    ) -> AttentionOutput:
        """Return the contexts and α; a kernel computes them on a GPU if it supports the request.

        Args:
            query: Decoder state of each hypothesis; those of a source are consecutive.
            cache: Memory and keys.
            attention_state: Not read.
            forced_weights: Weights that replace α; None if there is none.
        """
        if not use_kernel(self.request(query, cache, forced_weights)):
            return super().forward(query, cache, attention_state, forced_weights)
        from pellucid.kernels.triton_attention import attend_additive  # Triton is an optional dependency

        projected_query = self.query_projection(query)
        memory = cache.memory
        return AttentionOutput(
            *attend_additive(projected_query, self.energy, cache.keys, memory.states, memory.lengths)
        )

    def request(
        self, query: Float[Tensor, "R H"], cache: DecoderCache, forced_weights: Float[Tensor, "R S"] | None
    ) -> ComputationRequest:
        """Return the description of this computation by which a kernel is chosen.

        Args:
            query: Decoder states.
            cache: Memory and keys.
            forced_weights: Weights that replace α; None if there is none.
        """
        keys = cache.keys
        properties = (
            ("attention.kind", kind_of(self)),
            ("attention.forced_weights", forced_weights is not None),
            ("attention.differentiated_queries", len(query) // len(keys) if torch.is_grad_enabled() else 0),
            ("attention.positions", keys.shape[1]),
            *present_fields("memory", cache.memory),
        )
        return request_of("attention", keys, properties)

    def score_params(self) -> ScoreParams:
        """Return W and v."""
        return ScoreParams(self.query_projection.weight, self.energy)


class DotProductAttention(ScoredAttention):
    """e_s = qᵀ key_s: the score of all attentions whose keys have the size of the query."""

    def scores(self, query: Float[Tensor, "B K H"], keys: Float[Tensor, "B S A"]) -> Float[Tensor, "B K S"]:
        """Return q · keys.

        Args:
            query: Queries of each source.
            keys: Keys of each source.
        """
        return torch.bmm(query, keys.transpose(1, 2))

    def score_params(self) -> ScoreParams:
        """Return no parameters: the state is the query."""
        return ScoreParams()


class DotAttention(DotProductAttention):
    """e_s = qᵀ h_s. Query and memory have the same size.

    References:
        Luong et al. 2015, section 3.1, "dot".
    """

    kind: ClassVar[str] = "dot"

    def keys(self, memory: Memory) -> Float[Tensor, "B S A"]:
        """Return the states themselves.

        Args:
            memory: Encoder output.
        """
        return memory.states


class ScaledDotAttention(DotProductAttention):
    """e_s = qᵀ h_s / √D. Query and memory have the same size.

    References:
        Vaswani et al. 2017, section 3.2.1.
    """

    kind: ClassVar[str] = "scaled-dot"

    def keys(self, memory: Memory) -> Float[Tensor, "B S A"]:
        """Return the states divided by √D.

        Args:
            memory: Encoder output.
        """
        return memory.states / math.sqrt(memory.states.shape[-1])


class GeneralAttention(DotProductAttention):
    """e_s = qᵀ W h_s.

    References:
        Luong et al. 2015, section 3.1, "general".
    """

    kind: ClassVar[str] = "general"

    def __init__(self, query_size: int, memory_size: int) -> None:
        """Initialize W: memory_size → query_size.

        Args:
            query_size: H.
            memory_size: D.
        """
        super().__init__()
        self.key_projection = nn.Linear(memory_size, query_size, bias=False)

    def keys(self, memory: Memory) -> Float[Tensor, "B S A"]:
        """Return W h_s.

        Args:
            memory: Encoder output.
        """
        return _project_keys(self.key_projection, memory.states)


def _project_keys(projection: nn.Linear, states: Float[Tensor, "B S D"]) -> Float[Tensor, "B S A"]:
    """Return the keys. In training a kernel projects them into the order in which the unrolled decoder reads them."""
    if use_kernel(request_of("keys", states)):
        from pellucid.kernels.tensor_functions import project_keys  # Numba takes a second to import

        return project_keys(states, projection.weight, projection.bias)
    keys: Tensor = projection(states)
    return keys


class LocationSensitiveAttention(Attention):
    """e_s = vᵀ tanh(W q + U h_s + b + L f_s): the additive score with the weights of the previous step.

    f_s = Σ_j F_j α'_{s+j}, j from −radius to radius: filters that slide over the weights α' of the previous step. α' is
    zero outside a row's positions, and everywhere at the first step.

    References:
        Chorowski et al. 2015, section 2.1, equations 8 and 9.
    """

    kind: ClassVar[str] = "location"

    def __init__(self, query_size: int, memory_size: int, units: int, filters: int, radius: int) -> None:
        """Initialize W: query_size → units, U and b: memory_size → units, L: filters → units, v: units, and F.

        Args:
            query_size: H.
            memory_size: D.
            units: A.
            filters: Number of filters.
            radius: Positions that a filter covers on each side; a filter has 2 radius + 1 weights.
        """
        super().__init__()
        self.query_projection = nn.Linear(query_size, units, bias=False)
        self.key_projection = nn.Linear(memory_size, units)
        self.location_projection = nn.Linear(filters, units, bias=False)
        self.filters = nn.Conv1d(1, filters, 2 * radius + 1, padding=radius, bias=False)
        self.energy = nn.Parameter(torch.empty(units).uniform_(-1, 1).mul_((3 / units) ** 0.5))

    def initial_attention_state(self, memory: Memory) -> Float[Tensor, "B S"]:
        """Return zeros.

        Args:
            memory: Encoder output.
        """
        return memory.states.new_zeros(memory.states.shape[:2])

    def keys(self, memory: Memory) -> Float[Tensor, "B S A"]:
        """Return U h_s + b.

        Args:
            memory: Encoder output.
        """
        return _project_keys(self.key_projection, memory.states)

    def forward(
        self,
        query: Float[Tensor, "R H"],
        cache: DecoderCache,
        attention_state: Float[Tensor, "R S"] | None,
        forced_weights: Float[Tensor, "R S"] | None = None,
    ) -> AttentionOutput:
        """Return the contexts Σ_s α_s h_s and α = softmax(e). The next step reads a forced α like any other.

        Args:
            query: Decoder state of each hypothesis; those of a source are consecutive.
            cache: Memory and keys.
            attention_state: Weights of the previous step.
            forced_weights: Weights that replace α; None if there is none.
        """
        assert attention_state is not None, "a location-sensitive score needs the previous weights"
        memory = cache.memory
        projected_query: Tensor = self.query_projection(group_by_source(query, memory))
        previous_weights = group_by_source(attention_state, memory).masked_fill(~memory.length_mask()[:, None], 0)
        location_term = self.location_projection(self.filters(previous_weights.flatten(0, 1)[:, None]).transpose(1, 2))
        scores = additive_scores(
            projected_query, cache.keys, self.energy, location_term.unflatten(0, projected_query.shape[:2])
        )
        output = attend(scores.flatten(0, 1), memory, forced_weights)
        return output._replace(attention_state=output.weights)

    def score_params(self) -> ScoreParams:
        """Return W, v, L and F."""
        filters = self.filters.weight[:, 0]
        return ScoreParams(self.query_projection.weight, self.energy, self.location_projection.weight, filters)


class NoAttention(Attention):
    """No attention: the context is the encoder's final state at every step. The weights are zero.

    References:
        Cho et al. 2014, section 2.2.
    """

    kind: ClassVar[str] = "none"
    has_weights: ClassVar[bool] = False
    uses_softmax: ClassVar[bool] = False

    def keys(self, memory: Memory) -> Float[Tensor, "B S A"]:
        """Return keys of size 0, because there is no score.

        Args:
            memory: Encoder output.
        """
        return memory.states[:, :, :0]

    def forward(
        self,
        query: Float[Tensor, "R H"],
        cache: DecoderCache,
        attention_state: Float[Tensor, "R S"] | None,
        forced_weights: Float[Tensor, "R S"] | None = None,
    ) -> AttentionOutput:
        """Return the final state of the top layer; with forced weights, the mean of the states by these weights.

        Args:
            query: Decoder state of each hypothesis; only their number is read.
            cache: Memory and keys.
            attention_state: Not read.
            forced_weights: Weights that the context uses; None for the final state.
        """
        memory = cache.memory
        if forced_weights is not None:
            return attend(forced_weights, memory, forced_weights)
        queries_per_source = len(query) // len(memory.lengths)
        final_state = memory.final.hidden[:, -1].repeat_interleave(queries_per_source, dim=0)
        return AttentionOutput(final_state, memory.states.new_zeros(len(query), memory.states.shape[1]))


class MultiHeadAttention(Attention):
    """e_ns = v_nᵀ tanh(W_n q + U_n h_s + b_n), α_n = softmax(e_n), c = W_o [Σ_s α_1s h_s; …; Σ_s α_Ns h_s].

    Each head is an additive attention (Bahdanau et al. 2015, appendix A.1.2) with its part of the units, so that N
    heads cost about as much as one; their contexts are concatenated and projected to the size of one (Vaswani et al.
    2017, section 3.2.2). The returned weights are the mean over the heads; `AttentionOutput.heads` holds each head's.
    """

    kind: ClassVar[str] = "multi-head additive"

    def __init__(self, query_size: int, memory_size: int, units: int, heads: int) -> None:
        """Initialize W: query_size → units, U and b: memory_size → units, v: units, and W_o.

        Args:
            query_size: H.
            memory_size: D.
            units: A of all heads together.
            heads: N, the number of heads, which divides `units`; W_o: N · memory_size → memory_size.
        """
        super().__init__()
        self.query_projection = nn.Linear(query_size, units, bias=False)
        self.key_projection = nn.Linear(memory_size, units)
        head_size = units // heads
        self.energy = nn.Parameter(torch.empty(heads, head_size).uniform_(-1, 1).mul_((3 / head_size) ** 0.5))
        self.context_projection = nn.Linear(heads * memory_size, memory_size, bias=False)

    def keys(self, memory: Memory) -> Float[Tensor, "B S A"]:
        """Return U h_s + b of all heads, concatenated.

        Args:
            memory: Encoder output.
        """
        keys: Tensor = self.key_projection(memory.states)
        return keys

    def forward(
        self,
        query: Float[Tensor, "R H"],
        cache: DecoderCache,
        attention_state: Float[Tensor, "R S"] | None,
        forced_weights: Float[Tensor, "R S"] | None = None,
    ) -> AttentionOutput:
        """Attend with every head; forced weights apply to all of them.

        Args:
            query: Decoder state of each hypothesis; those of a source are consecutive.
            cache: Memory and keys.
            attention_state: Not read.
            forced_weights: Weights that replace α; None if there is none.
        """
        heads, head_size = self.energy.shape
        memory = cache.memory
        projected_query: Tensor = self.query_projection(group_by_source(query, memory))
        summed = torch.tanh(projected_query[:, :, None] + cache.keys[:, None])
        scores = torch.einsum("bksnu,nu->bkns", summed.view(*summed.shape[:3], heads, head_size), self.energy).flatten(
            0, 2
        )
        forced = None if forced_weights is None else forced_weights.repeat_interleave(heads, dim=0)
        head_output = attend(scores, memory, forced)
        weights = head_output.weights.view(len(query), heads, -1)
        context: Tensor = self.context_projection(head_output.context.reshape(len(query), -1))
        return AttentionOutput(context, weights.mean(dim=1), heads=weights)


MIN_DIVISOR = 1e-10
"""Lower bound of a divisor that is a product of probabilities."""


class MonotonicAttention(Attention):
    """Monotonic attention: scan the source from the last attended position, stop at each position with probability p.

        e_s = g vᵀ/‖v‖ tanh(W q + U h_s + b) + r        p_s = σ(e_s + N(0, 1))
        α_s = p_s Σ_{k ≤ s} α'_k Π_{l = k … s−1} (1 − p_l),    α' the weights of the previous step

    In training α is the distribution of the stop; the noise drives p towards 0 or 1. In decoding p is 1 where e_s > 0
    and 0 elsewhere: each output attends to one position, never before the previous output's. If no further position has
    p = 1, it attends to none.

    References:
        Raffel et al. 2017, sections 2.2 to 2.4, equations 8 to 10 and 16.
    """

    kind: ClassVar[str] = "monotonic"
    uses_softmax: ClassVar[bool] = False

    def __init__(self, query_size: int, memory_size: int, units: int) -> None:
        """Initialize W: query_size → units, U and b: memory_size → units, v: units, g = 1/√units and r = −1.

        Args:
            query_size: H.
            memory_size: D.
            units: A.
        """
        super().__init__()
        self.query_projection = nn.Linear(query_size, units, bias=False)
        self.key_projection = nn.Linear(memory_size, units)
        self.energy = nn.Parameter(torch.empty(units).uniform_(-1, 1).mul_((3 / units) ** 0.5))
        self.gain = nn.Parameter(torch.tensor(units**-0.5))
        self.offset = nn.Parameter(torch.tensor(-1.0))

    def initial_attention_state(self, memory: Memory) -> Float[Tensor, "B S"]:
        """Return weight 1 at the first position, where the scan begins.

        Args:
            memory: Encoder output.
        """
        weights = memory.states.new_zeros(memory.states.shape[:2])
        weights[:, 0] = 1
        return weights

    def keys(self, memory: Memory) -> Float[Tensor, "B S A"]:
        """Return U h_s + b.

        Args:
            memory: Encoder output.
        """
        keys: Tensor = self.key_projection(memory.states)
        return keys

    def forward(
        self,
        query: Float[Tensor, "R H"],
        cache: DecoderCache,
        attention_state: Float[Tensor, "R S"] | None,
        forced_weights: Float[Tensor, "R S"] | None = None,
    ) -> AttentionOutput:
        """Return α and the contexts. The next scan begins at a forced α like at any other.

        Args:
            query: Decoder state of each hypothesis; those of a source are consecutive.
            cache: Memory and keys.
            attention_state: Weights of the previous step.
            forced_weights: Weights that replace α; None if there is none.
        """
        assert attention_state is not None, "a monotonic scan needs the previous weights"
        memory = cache.memory
        weights = forced_weights
        if weights is None:
            weights = self._stop_weights(self._scores(query, cache), attention_state, memory)
        contexts = torch.bmm(group_by_source(weights, memory), memory.states).flatten(0, 1)
        return AttentionOutput(contexts, weights, weights)

    def _scores(self, query: Float[Tensor, "R H"], cache: DecoderCache) -> Float[Tensor, "R S"]:
        """Return e_s."""
        projected_query: Tensor = self.query_projection(group_by_source(query, cache.memory))
        direction = self.gain * self.energy / self.energy.norm()
        return (additive_scores(projected_query, cache.keys, direction) + self.offset).flatten(0, 1)

    def _stop_weights(
        self, scores: Float[Tensor, "R S"], previous_weights: Float[Tensor, "R S"], memory: Memory
    ) -> Float[Tensor, "R S"]:
        """Return α: its expectation in training, else that of the scan itself."""
        queries_per_source = len(scores) // len(memory.lengths)
        mask = memory.attention_mask().repeat_interleave(queries_per_source, dim=0)
        if self.training:
            return expected_stop(torch.sigmoid(scores + torch.randn_like(scores)) * mask, previous_weights)
        return hard_stop((scores > 0) & mask, previous_weights)


def expected_stop(probabilities: Float[Tensor, "R S"], previous_weights: Float[Tensor, "R S"]) -> Float[Tensor, "R S"]:
    """Return `α_s = p_s Π_{l < s} (1 − p_l) Σ_{k ≤ s} α'_k / Π_{l < k} (1 − p_l)` for all positions at once.

    Args:
        probabilities: p.
        previous_weights: α'.
    """
    survival = torch.cumprod(nn.functional.pad(1 - probabilities, (1, -1), value=1.0), dim=1)
    return probabilities * survival * torch.cumsum(previous_weights / survival.clamp(min=MIN_DIVISOR), dim=1)


def hard_stop(is_open: Bool[Tensor, "R S"], previous_weights: Float[Tensor, "R S"]) -> Float[Tensor, "R S"]:
    """Return α for p of 0 or 1: an open position gets the sum of α' after the previous open position, up to itself.

    Args:
        is_open: True at open positions, where p = 1.
        previous_weights: α'.
    """
    cumulative = previous_weights.cumsum(dim=1)
    at_open = torch.where(is_open, cumulative, 0.0).cummax(dim=1).values
    at_previous = nn.functional.pad(at_open, (1, -1))
    return torch.where(is_open, cumulative - at_previous, 0.0)


AttentionBuilder = Callable[[AttentionConfig, int, int], Attention]


def _build_additive(config: AttentionConfig, query_size: int, memory_size: int) -> Attention:
    """Return additive attention with one head or several."""
    if config.num_heads > 1:
        return MultiHeadAttention(query_size, memory_size, config.size, config.num_heads)
    return AdditiveAttention(query_size, memory_size, config.size)


ATTENTIONS: Mapping[str, AttentionBuilder] = {
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
"""The built-in attentions by their name in the settings, built from the settings and the sizes of query and memory."""


def _is_attention_class(value: type) -> bool:
    """Return whether a class is an attention with all methods and the arguments of `register_attention`."""
    return (
        issubclass(value, Attention)
        and not inspect.isabstract(value)
        and value.__init__ is not nn.Module.__init__  # it takes any arguments, and refuses them
        and takes_arguments(value, 0, ("config", "query_size", "memory_size"))
    )


BUILT_IN_ATTENTIONS = (
    AdditiveAttention,
    LocationSensitiveAttention,
    MonotonicAttention,
    DotAttention,
    GeneralAttention,
    ScaledDotAttention,
    NoAttention,
    MultiHeadAttention,
)
"""The classes of the built-in attentions."""
KERNEL_BASES: Mapping[str, type] = {
    "additive": AdditiveAttention,
    "location": LocationSensitiveAttention,
    "dot": DotProductAttention,
    "general": DotProductAttention,
    "scaled-dot": DotProductAttention,
}
"""The class whose `forward` and `scores` a kernel computes, by the kind that a class declares."""


def _check_kind(attention_class: type[Attention]) -> None:
    """Raise `ConfigError` for a class that declares a `kind` whose kernel does not compute the class."""
    kind = vars(attention_class).get("kind")
    if kind is None:
        return
    base = KERNEL_BASES.get(kind) if isinstance(kind, str) else None
    if base is None:
        kinds = " or ".join(map(quote, KERNEL_BASES))
        raise ConfigError(f"{attention_class.__name__}.kind: expected None, {kinds}, got {quote(kind)}")
    changed = [
        name for name in ("scores", "forward") if getattr(attention_class, name, None) is not getattr(base, name, None)
    ]
    if changed or not issubclass(attention_class, base):
        raise ConfigError(
            f"{attention_class.__name__}.kind = {quote(kind)}: the kernel of this kind computes scores() and forward() "
            f"of {base.__name__}, and would ignore those of this class: remove kind, with which PyTorch computes the "
            f"class, or derive from {base.__name__} without changing them"
        )


ATTENTION_REQUIREMENT = ClassRequirement(
    "a subclass of pellucid.Attention that takes config, query_size and memory_size", _is_attention_class
)
"""Requirement of the classes of other packages."""


def register_attention(name: str, attention_class: type[Attention]) -> None:
    """Register a class of attention for this process, in place of a registered one of the same name.

    The setting `attention.type` then accepts the name. Networks build the class with three arguments by keyword:
    `config`, all settings of the section `attention`; `query_size`, the hidden units of the decoder; and
    `memory_size`, the units of an encoder state.

    Other processes (workers of an ensemble, other commands) find an attention only as an entry point of the group
    `pellucid.attentions` of an installed package.

    Args:
        name: Value of the setting `attention.type`.
        attention_class: The class.

    Raises:
        ArgumentError: The name is empty, too long or not printable; or the class is not a subclass of `Attention`,
            lacks a method, or takes other arguments.
        ConfigError: A built-in type has this name.
    """
    ATTENTION_TYPES.register_class("attention_class", name, attention_class, ATTENTION_REQUIREMENT)


def build_attention(config: AttentionConfig, query_size: int, memory_size: int) -> Attention:
    """Return a new attention of the kind that a configuration names, with random parameters.

    Args:
        config: Type and sizes of the attention.
        query_size: H; equal to `memory_size` for "dot" and "scaled-dot".
        memory_size: D.

    Raises:
        ConfigError: There is no such type, or its entry point does not provide a class as `register_attention` accepts;
            or such a class fails the check (`check_attention_module`).
    """
    if not is_custom_attention(config):
        return ATTENTIONS[config.type](config, query_size, memory_size)
    attention_class = cast(type[Attention], ATTENTION_TYPES.get_class(config.type, ATTENTION_REQUIREMENT))
    return _build_checked(attention_class, config, query_size, memory_size)


def check_attention(
    attention_class: type[Attention],
    config: AttentionConfig | None = None,
    query_size: int = 6,
    memory_size: int = 4,
) -> None:
    """Check a class of attention as networks do when they are built, for the tests of its author.

    Two steps of two sources, one of them with padding, are computed, with two queries a source and with one: shapes,
    finite numbers, equal results of equal calls and of each source alone, weights of at least 0 with a sum of at most
    1, masked positions, forced weights, and gradients.

    Args:
        attention_class: The class; it need not be registered.
        config: Settings of the section `attention`; None for 6 attention units and defaults.
        query_size: Hidden units of the decoder.
        memory_size: Units of an encoder state.

    Raises:
        ArgumentError: The class is not a subclass of `Attention`, lacks a method, or takes other arguments.
        ConfigError: The class cannot be built, or a check fails.
    """
    if not ATTENTION_REQUIREMENT.is_met(attention_class):
        raise ATTENTION_REQUIREMENT.argument_error("attention_class", attention_class)
    config = AttentionConfig(size=6) if config is None else convert_argument("config", config, AttentionConfig)
    query_size = convert_argument("query_size", query_size, PositiveInt)
    memory_size = convert_argument("memory_size", memory_size, PositiveInt)
    attention = _build_checked(attention_class, config, query_size, memory_size)
    for name in unused_parameters(cast(CheckedAttention, attention), query_size, memory_size):
        warnings.warn(unused_parameter_note(attention_class.__name__, name), stacklevel=2)


def unused_parameter_note(class_name: str, name: str) -> str:
    """Return a sentence about a parameter of an attention that its outputs do not depend on.

    Args:
        class_name: Name of the class.
        name: Name of the parameter.
    """
    return f"{class_name}.{name} has no gradient: the outputs do not depend on this parameter, so it is not trained"


def attention_notes(network: nn.Module, query_size: int, memory_size: int) -> list[str]:
    """Return a sentence for each parameter of an attention of another package that a training would not change.

    Args:
        network: Network of a training.
        query_size: Hidden units of the decoder.
        memory_size: Units of an encoder state.
    """
    return [
        unused_parameter_note(type(module).__name__, name)
        for module in network.modules()
        if isinstance(module, Attention) and type(module) not in BUILT_IN_ATTENTIONS
        for name in unused_parameters(cast(CheckedAttention, module), query_size, memory_size)
    ]


def _build_checked(
    attention_class: type[Attention], config: AttentionConfig, query_size: int, memory_size: int
) -> Attention:
    """Return a new attention of a class of another package, after its check."""
    _check_kind(attention_class)
    build = cast(Callable[..., Attention], attention_class)
    try:
        attention = build(config=config, query_size=query_size, memory_size=memory_size)
        attention.state_dict()  # fails without super().__init__()
    except InputError:
        raise
    except Exception as error:  # the code of another package may raise anything
        advice = "; does its __init__ call super().__init__() first?" if isinstance(error, AttributeError) else ""
        failure = describe_failure(error, own_modules(attention_class))
        raise ConfigError(f"{attention_class.__name__} cannot be built: {failure}{advice}") from error
    check_attention_module(cast(CheckedAttention, attention), query_size, memory_size)
    return attention
