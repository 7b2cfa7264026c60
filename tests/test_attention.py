"""Attention: scores against loops, and what any attention must keep.

B batch, S source positions, D memory, H hidden units of the query, A attention units.
"""

import math
from random import Random
from typing import NamedTuple, get_args, get_type_hints

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from small import LENGTHS, SCORES, SEEDS, SIZES, contents, few, near, shake
from torch import Tensor, nn

from pellucid.config.settings import AttentionConfig
from pellucid.model.attention import (
    AdditiveAttention,
    Attention,
    GeneralAttention,
    LocationSensitiveAttention,
    ScaledDotAttention,
    ScoredAttention,
    attend,
    build_attention,
)
from pellucid.model.memory import AttentionCache, AttentionOutput, Memory, State

SOFT = [score for score in SCORES if score != "monotonic"]
"""Those whose weights are a function of memory and query alone, or of the weights before; monotonic attention draws at
random in training, looks at one position in use, and has its own tests."""
SCORED = [score for score in SOFT if score != "none"]


class Case(NamedTuple):
    """An attention, a memory, and a query and the look before it a row.

    The padding of memory and look is not zero, to see that nothing reads it.
    """

    attention: Attention
    memory: Memory
    query: Tensor
    attention_state: Tensor

    def look(self, override: Tensor | None = None) -> AttentionOutput:
        attended: AttentionOutput = self.attention(
            self.query, self.attention.prepare(self.memory), self.attention_state, override
        )
        return attended


def drawn(score: str, lengths: list[int], units: int, seed: int) -> Case:
    generator = torch.Generator().manual_seed(seed)
    B, S, D = len(lengths), max(lengths), 3
    H = D if "dot" in score else 2
    config = AttentionConfig(type=score, size=units, filters=units, filter_radius=units - 1)  # type: ignore[arg-type]
    attention = build_attention(config, H, D).double()
    shake(attention, seed)
    shapes = ((B, S, D), (B, 2, D), (B, H), (B, S))
    states, final, query, looked = (torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes)
    return Case(attention, Memory(states, torch.tensor(lengths), State(final)), query, looked)


CASES = st.builds(drawn, st.sampled_from(SOFT), LENGTHS, SIZES, SEEDS)
BLIND_CASES = st.builds(
    drawn, st.sampled_from([score for score in SCORED if score != "location"]), LENGTHS, SIZES, SEEDS
)
"""Of scores that do not depend on where a position is."""
SCORED_CASES = st.builds(drawn, st.sampled_from(SCORED), LENGTHS, SIZES, SEEDS)


Looked = tuple[list[float], int]
"""The weights of the step before, and the position that is scored."""


def times(projection: nn.Linear, vector: list[float]) -> list[float]:
    return [dot(row, vector) for row in projection.weight.tolist()]


def dot(one: list[float], two: list[float]) -> float:
    return sum(a * b for a, b in zip(one, two, strict=True))


def located_by_definition(attention: LocationSensitiveAttention, before: list[float], at: int) -> list[float]:
    """L f_s with f_s = Σ_j F_j α'_{s+j}, j from −radius to radius."""
    rows = [row for [row] in attention.filters.weight.tolist()]
    radius = len(rows[0]) // 2
    inside = [(j, at + j) for j in range(-radius, radius + 1) if 0 <= at + j < len(before)]
    return times(attention.location_projection, [sum(row[j + radius] * before[s] for j, s in inside) for row in rows])


def score_by_definition(attention: Attention, query: list[float], state: list[float], looked: Looked) -> float:
    match attention:
        case LocationSensitiveAttention():
            summands = [times(attention.query_projection, query), times(attention.key_projection, state)]
            summands += [attention.key_projection.bias.tolist(), located_by_definition(attention, *looked)]
            sums = [math.tanh(math.fsum(each)) for each in zip(*summands, strict=True)]
            return dot(attention.energy.tolist(), sums)
        case AdditiveAttention():
            asked, keys = times(attention.query_projection, query), times(attention.key_projection, state)
            summed = zip(attention.energy.tolist(), asked, keys, attention.key_projection.bias.tolist(), strict=True)
            return math.fsum(v * math.tanh(q + k + b) for v, q, k, b in summed)
        case GeneralAttention():
            return dot(query, times(attention.key_projection, state))
        case ScaledDotAttention():
            return dot(query, state) / math.sqrt(len(state))
    return dot(query, state)


@few
@given(SCORED_CASES)
def test_weights_and_context_equal_the_published_equations(case: Case) -> None:
    context, weights, *_ = case.look()
    for b, length in enumerate(case.memory.lengths.tolist()):
        states = case.memory.states[b, :length].tolist()
        query, before = case.query[b].tolist(), case.attention_state[b, :length].tolist()
        scores = [score_by_definition(case.attention, query, state, (before, s)) for s, state in enumerate(states)]
        powers = [math.exp(score) for score in scores]
        expected = [power / sum(powers) for power in powers]
        assert weights[b, :length].tolist() == pytest.approx(expected, abs=1e-12)
        blended = [sum(w * state[d] for w, state in zip(expected, states, strict=True)) for d in range(3)]
        assert context[b].tolist() == pytest.approx(blended, abs=1e-12)


@few
@given(SCORED_CASES)
def test_weights_are_a_distribution_over_real_positions_and_zero_on_padding(case: Case) -> None:
    weights = case.look().weights
    assert (weights >= 0).all()
    near(weights.sum(dim=1), torch.ones(len(weights), dtype=torch.float64))
    for row, length in zip(weights.tolist(), case.memory.lengths.tolist(), strict=True):
        assert row[length:] == [0.0] * (len(row) - length)


def test_huge_scores_overflow_into_no_weight() -> None:
    memory = Memory(torch.eye(3)[None], torch.tensor([2]), State(torch.zeros(1, 1, 3)))
    for huge in (1e30, -1e30):
        context, weights, *_ = attend(torch.tensor([[0.0, huge, 1e38]]), memory)
        assert weights.tolist() == [[float(huge < 0), float(huge > 0), 0.0]]
        assert context.tolist() == weights.tolist()


@few
@given(SCORED_CASES, SEEDS, st.integers(1, 3))
def test_states_beyond_a_length_change_nothing(case: Case, seed: int, columns: int) -> None:
    attended, (B, S, D) = case.look(), case.memory.states.shape
    litter = torch.randn(B, S + columns, D, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    litter[:, :S][case.memory.mask()] = case.memory.states[case.memory.mask()]
    looked = torch.cat([case.attention_state.where(case.memory.mask(), torch.nan), litter[:, S:, 0]], dim=1)
    other = case._replace(memory=case.memory._replace(states=litter), attention_state=looked).look()
    near(other.context, attended.context)
    near(other.weights[:, :S], attended.weights)
    assert not other.weights[:, S:].any()


@few
@given(BLIND_CASES, st.randoms(use_true_random=False))
def test_permuting_the_memory_permutes_the_weights_and_leaves_the_context(case: Case, random: Random) -> None:
    attended = case.look()
    for row, length in enumerate(case.memory.lengths.tolist()):
        order = list(range(length))
        random.shuffle(order)
        memory = Memory(case.memory.states[row : row + 1, order], torch.tensor([length]), case.memory.final)
        other = Case(case.attention, memory, case.query[row : row + 1], case.attention_state[row : row + 1]).look()
        near(other.weights[0], attended.weights[row, order])
        near(other.context[0], attended.context[row])


@few
@given(CASES, SEEDS)
def test_a_one_hot_override_reads_that_state(case: Case, seed: int) -> None:
    B, S, _ = case.memory.states.shape
    at = torch.randint(S, (B,), generator=torch.Generator().manual_seed(seed))
    override = torch.zeros(B, S, dtype=torch.float64)
    override[torch.arange(B), at] = 1
    context, weights, looked, _ = case.look(override)
    assert torch.equal(context, case.memory.states[torch.arange(B), at])
    assert torch.equal(weights, override)
    assert looked is (weights if isinstance(case.attention, LocationSensitiveAttention) else None)


@few
@given(SCORED_CASES)
def test_an_override_equal_to_the_own_weights_changes_no_bit(case: Case) -> None:
    attended = case.look()
    forced = case.look(attended.weights)
    assert torch.equal(forced.context, attended.context)
    assert torch.equal(forced.weights, attended.weights)


def test_without_attention_the_context_is_the_final_state_of_the_top_layer_and_the_weights_are_zero() -> None:
    bottleneck = drawn("none", [3, 1], 1, 1)
    context, weights, *_ = bottleneck.look()
    assert torch.equal(context, bottleneck.memory.final.hidden[:, 1])
    assert weights.tolist() == [[0.0] * 3] * 2


@pytest.mark.parametrize("score", SCORED)
def test_gradients_equal_finite_differences(score: str) -> None:
    attention, memory, query, looked = drawn(score, [3, 1], 2, 1)

    def look(states: Tensor, query: Tensor, looked: Tensor, *_: Tensor) -> tuple[Tensor, ...]:
        return tuple(attention(query, attention.prepare(memory._replace(states=states)), looked)[:2])

    inputs = (*(each.requires_grad_() for each in (memory.states, query, looked)), *attention.parameters())
    assert torch.autograd.gradcheck(look, inputs)


@few
@given(CASES, st.data())
def test_looks_of_chosen_rows_are_the_chosen_looks(case: Case, data: st.DataObject) -> None:
    B = len(case.query)
    rows = torch.tensor(data.draw(st.lists(st.integers(0, B - 1), min_size=1, max_size=7)))
    attended = case.look()
    chosen = case.attention.prepare(case.memory).index_select(rows)
    taken: AttentionOutput = case.attention(case.query[rows], chosen, case.attention_state[rows])
    near(taken.context, attended.context[rows])
    near(taken.weights, attended.weights[rows])


@pytest.mark.parametrize("score", SOFT)
def test_preparing_and_looking_store_nothing(score: str) -> None:
    looked = drawn(score, [3, 1], 2, 1)
    before = contents(looked.attention)
    looked.look()
    assert contents(looked.attention) == before


def test_every_score_of_the_configuration_is_tried_here_and_each_has_its_own_class() -> None:
    assert set(SCORES) == set(get_args(get_type_hints(AttentionConfig)["type"]))
    built = [drawn(score, [1], 2, 1).attention for score in SCORES]
    assert len({type(attention) for attention in built}) == len(SCORES)
    assert [isinstance(attention, ScoredAttention) for attention in built] == [
        score not in ("location", "monotonic", "none") for score in SCORES
    ]


def test_additive_keys_are_computed_once_and_their_bias_counts_once() -> None:
    attention = AdditiveAttention(2, 3, 4)
    memory = Memory(torch.randn(1, 2, 3), torch.tensor([2]), State(torch.zeros(1, 1, 3)))
    attendable: AttentionCache = attention.prepare(memory)
    near(attendable.keys, attention.key_projection(memory.states), 1e-6)
    scores = attention.scores(torch.zeros(1, 1, 2), attendable.keys)[:, 0]
    near(scores, torch.tanh(attendable.keys) @ attention.energy, 1e-6)


def test_by_location_the_first_look_is_additive_and_the_next_sees_it() -> None:
    case = drawn("location", [4, 2], 3, 1)
    attention, start = case.attention, case.attention.initial_state(case.memory)
    assert isinstance(attention, LocationSensitiveAttention) and start is not None and not start.any()
    additive = AdditiveAttention(2, 3, 3).double()
    additive.load_state_dict({name: attention.state_dict()[name] for name in additive.state_dict()})
    first, blind = case._replace(attention_state=start).look(), case._replace(attention=additive).look()
    near(first.weights, blind.weights)
    assert first.attention_state is not None and blind.attention_state is None
    assert not torch.isclose(case._replace(attention_state=first.attention_state).look().weights, first.weights).all()


@pytest.mark.parametrize("score", SOFT)
def test_only_what_sees_the_look_before_carries_one(score: str) -> None:
    case = drawn(score, [3, 1], 2, 1)
    assert (
        (case.attention.initial_state(case.memory) is None)
        == (case.look().attention_state is None)
        == (score != "location")
    )


@few
@given(LENGTHS, SIZES, SEEDS, st.integers(2, 3))
def test_several_queries_a_source_each_see_their_own_look_before(
    lengths: list[int], units: int, seed: int, each: int
) -> None:
    case = drawn("location", lengths, units, seed)
    rows = torch.arange(len(lengths)).repeat_interleave(each)
    query, looked = torch.randn(len(rows), 2).double(), torch.randn(len(rows), max(lengths)).double()
    together: AttentionOutput = case.attention(query, case.attention.prepare(case.memory), looked)
    apart: AttentionOutput = case.attention(query, case.attention.prepare(case.memory).index_select(rows), looked)
    near(together.context, apart.context)
    near(together.weights, apart.weights)
