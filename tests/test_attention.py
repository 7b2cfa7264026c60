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

from pellucid.config import AttentionConfig
from pellucid.model.attention import (
    AdditiveAttention,
    Attention,
    GeneralAttention,
    ScaledDotAttention,
    ScoredAttention,
    build_attention,
    read,
)
from pellucid.model.memory import Attendable, Attended, Memory, State

SCORED = [score for score in SCORES if score != "none"]


class Case(NamedTuple):
    """An attention, a memory and a query a row; the memory's padding is not zero, to see that nothing reads it."""

    attention: Attention
    memory: Memory
    query: Tensor

    def look(self, override: Tensor | None = None) -> Attended:
        attended: Attended = self.attention(self.query, self.attention.prepare(self.memory), override)
        return attended


def drawn(score: str, lengths: list[int], units: int, seed: int) -> Case:
    generator = torch.Generator().manual_seed(seed)
    B, S, D = len(lengths), max(lengths), 3
    H = D if "dot" in score else 2
    config = AttentionConfig(score=score, units=units)  # type: ignore[arg-type]
    attention = build_attention(config, H, D).double()
    shake(attention, seed)
    states, final, query = (
        torch.randn(shape, generator=generator, dtype=torch.float64) for shape in ((B, S, D), (B, 2, D), (B, H))
    )
    return Case(attention, Memory(states, torch.tensor(lengths), State(final)), query)


CASES = st.builds(drawn, st.sampled_from(SCORES), LENGTHS, SIZES, SEEDS)
SCORED_CASES = st.builds(drawn, st.sampled_from(SCORED), LENGTHS, SIZES, SEEDS)


def times(projection: nn.Linear, vector: list[float]) -> list[float]:
    return [dot(row, vector) for row in projection.weight.tolist()]


def dot(one: list[float], two: list[float]) -> float:
    return sum(a * b for a, b in zip(one, two, strict=True))


def score_by_definition(attention: Attention, query: list[float], state: list[float]) -> float:
    match attention:
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
    context, weights = case.look()
    for b, length in enumerate(case.memory.lengths.tolist()):
        states = case.memory.states[b, :length].tolist()
        powers = [math.exp(score_by_definition(case.attention, case.query[b].tolist(), state)) for state in states]
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
        context, weights = read(torch.tensor([[0.0, huge, 1e38]]), memory)
        assert weights.tolist() == [[float(huge < 0), float(huge > 0), 0.0]]
        assert context.tolist() == weights.tolist()


@few
@given(SCORED_CASES, SEEDS, st.integers(1, 3))
def test_states_beyond_a_length_change_nothing(case: Case, seed: int, columns: int) -> None:
    attended, (B, S, D) = case.look(), case.memory.states.shape
    litter = torch.randn(B, S + columns, D, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    litter[:, :S][case.memory.mask()] = case.memory.states[case.memory.mask()]
    other = case._replace(memory=case.memory._replace(states=litter)).look()
    near(other.context, attended.context)
    near(other.weights[:, :S], attended.weights)
    assert not other.weights[:, S:].any()


@few
@given(SCORED_CASES, st.randoms(use_true_random=False))
def test_permuting_the_memory_permutes_the_weights_and_leaves_the_context(case: Case, random: Random) -> None:
    attended = case.look()
    for row, length in enumerate(case.memory.lengths.tolist()):
        order = list(range(length))
        random.shuffle(order)
        memory = Memory(case.memory.states[row : row + 1, order], torch.tensor([length]), case.memory.final)
        other = Case(case.attention, memory, case.query[row : row + 1]).look()
        near(other.weights[0], attended.weights[row, order])
        near(other.context[0], attended.context[row])


@few
@given(CASES, SEEDS)
def test_a_one_hot_override_reads_that_state(case: Case, seed: int) -> None:
    B, S, _ = case.memory.states.shape
    at = torch.randint(S, (B,), generator=torch.Generator().manual_seed(seed))
    override = torch.zeros(B, S, dtype=torch.float64)
    override[torch.arange(B), at] = 1
    context, weights = case.look(override)
    assert torch.equal(context, case.memory.states[torch.arange(B), at])
    assert torch.equal(weights, override)


@few
@given(SCORED_CASES)
def test_an_override_equal_to_the_own_weights_changes_no_bit(case: Case) -> None:
    attended = case.look()
    forced = case.look(attended.weights)
    assert torch.equal(forced.context, attended.context)
    assert torch.equal(forced.weights, attended.weights)


def test_without_attention_the_context_is_the_final_state_of_the_top_layer_and_the_weights_are_zero() -> None:
    bottleneck = drawn("none", [3, 1], 1, 1)
    context, weights = bottleneck.look()
    assert torch.equal(context, bottleneck.memory.final.hidden[:, 1])
    assert weights.tolist() == [[0.0] * 3] * 2


@pytest.mark.parametrize("score", SCORED)
def test_gradients_equal_finite_differences(score: str) -> None:
    attention, memory, query = drawn(score, [3, 1], 2, 1)

    def look(states: Tensor, query: Tensor, *_: Tensor) -> tuple[Tensor, ...]:
        return tuple(attention(query, attention.prepare(memory._replace(states=states))))

    inputs = (memory.states.requires_grad_(), query.requires_grad_(), *attention.parameters())
    assert torch.autograd.gradcheck(look, inputs)


@few
@given(CASES, st.data())
def test_looks_of_chosen_rows_are_the_chosen_looks(case: Case, data: st.DataObject) -> None:
    B = len(case.query)
    rows = torch.tensor(data.draw(st.lists(st.integers(0, B - 1), min_size=1, max_size=7)))
    attended = case.look()
    taken: Attended = case.attention(case.query[rows], case.attention.prepare(case.memory).take(rows))
    near(taken.context, attended.context[rows])
    near(taken.weights, attended.weights[rows])


@pytest.mark.parametrize("score", SCORES)
def test_preparing_and_looking_store_nothing(score: str) -> None:
    looked = drawn(score, [3, 1], 2, 1)
    before = contents(looked.attention)
    looked.look()
    assert contents(looked.attention) == before


def test_every_score_of_the_configuration_is_tried_here_and_each_has_its_own_class() -> None:
    assert set(SCORES) == set(get_args(get_type_hints(AttentionConfig)["score"]))
    built = [drawn(score, [1], 2, 1).attention for score in SCORES]
    assert len({type(attention) for attention in built}) == len(SCORES)
    assert [isinstance(attention, ScoredAttention) for attention in built] == [score != "none" for score in SCORES]


def test_additive_keys_are_computed_once_and_their_bias_counts_once() -> None:
    attention = AdditiveAttention(2, 3, 4)
    memory = Memory(torch.randn(1, 2, 3), torch.tensor([2]), State(torch.zeros(1, 1, 3)))
    attendable: Attendable = attention.prepare(memory)
    near(attendable.keys, attention.key_projection(memory.states), 1e-6)
    scores = attention.scores(torch.zeros(1, 1, 2), attendable.keys)[:, 0]
    near(scores, torch.tanh(attendable.keys) @ attention.energy, 1e-6)
