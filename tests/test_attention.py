"""Attention: scores against loops, and invariants of every attention.

B batch, S source positions, D memory, H hidden units of the query, A attention units.
"""

import math
from random import Random
from typing import NamedTuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from small_networks import (
    ATTENTION_TYPES,
    LENGTHS,
    SEEDS,
    SIZES,
    assert_tensors_close,
    collect_attributes,
    few_examples,
    randomize_parameters,
)
from torch import Tensor, nn

from pellucid.config.attention_types import BUILT_IN_TYPES, has_weights, uses_softmax
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
from pellucid.model.memory import AttentionOutput, DecoderCache, DecoderState, Memory

SOFT_SCORES = [score for score in ATTENTION_TYPES if score != "monotonic"]
"""Attention whose weights are a function of memory, query and previous weights; monotonic attention draws random
numbers in training, attends to one position in decoding, and has its own tests."""
POSITION_SCORES = [score for score in SOFT_SCORES if score != "none"]


class AttentionCase(NamedTuple):
    """An attention, a memory, and for each row a query and the previous weights.

    The padding of memory and weights is not zero. Attention must not read it.
    """

    attention: Attention
    memory: Memory
    query: Tensor
    attention_state: Tensor

    def attend_once(self, forced_weights: Tensor | None = None) -> AttentionOutput:
        attention_output: AttentionOutput = self.attention(
            self.query, self.attention.build_cache(self.memory), self.attention_state, forced_weights
        )
        return attention_output


def make_case(score: str, lengths: list[int], units: int, seed: int) -> AttentionCase:
    generator = torch.Generator().manual_seed(seed)
    B, S, D = len(lengths), max(lengths), 3
    H = D if "dot" in score else 2
    config = AttentionConfig(type=score, size=units, filters=units, filter_radius=units - 1)
    attention = build_attention(config, H, D).double()
    randomize_parameters(attention, seed)
    shapes = ((B, S, D), (B, 2, D), (B, H), (B, S))
    states, final, query, previous_weights = (
        torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes
    )
    return AttentionCase(attention, Memory(states, torch.tensor(lengths), DecoderState(final)), query, previous_weights)


CASES = st.builds(make_case, st.sampled_from(SOFT_SCORES), LENGTHS, SIZES, SEEDS)
POSITION_FREE_CASES = st.builds(
    make_case, st.sampled_from([score for score in POSITION_SCORES if score != "location"]), LENGTHS, SIZES, SEEDS
)
"""Cases of scores that do not depend on the position."""
POSITION_SCORE_CASES = st.builds(make_case, st.sampled_from(POSITION_SCORES), LENGTHS, SIZES, SEEDS)


PreviousAttention = tuple[list[float], int]
"""Weights of the previous step, and the scored position."""


def project(projection: nn.Linear, vector: list[float]) -> list[float]:
    return [dot(row, vector) for row in projection.weight.tolist()]


def dot(one: list[float], two: list[float]) -> float:
    return sum(a * b for a, b in zip(one, two, strict=True))


def location_features_by_definition(
    attention: LocationSensitiveAttention, previous_weights: list[float], position: int
) -> list[float]:
    """Return L f_s with f_s = Σ_j F_j α'_{s+j}, j from −radius to radius."""
    rows = [row for [row] in attention.filters.weight.tolist()]
    radius = len(rows[0]) // 2
    inside = [(j, position + j) for j in range(-radius, radius + 1) if 0 <= position + j < len(previous_weights)]
    return project(
        attention.location_projection, [sum(row[j + radius] * previous_weights[s] for j, s in inside) for row in rows]
    )


def score_by_definition(
    attention: Attention, query: list[float], state: list[float], previous_attention: PreviousAttention
) -> float:
    match attention:
        case LocationSensitiveAttention():
            summands = [project(attention.query_projection, query), project(attention.key_projection, state)]
            summands += [
                attention.key_projection.bias.tolist(),
                location_features_by_definition(attention, *previous_attention),
            ]
            activations = [math.tanh(math.fsum(column)) for column in zip(*summands, strict=True)]
            return dot(attention.energy.tolist(), activations)
        case AdditiveAttention():
            query_terms, keys = project(attention.query_projection, query), project(attention.key_projection, state)
            terms = zip(
                attention.energy.tolist(), query_terms, keys, attention.key_projection.bias.tolist(), strict=True
            )
            return math.fsum(v * math.tanh(q + k + b) for v, q, k, b in terms)
        case GeneralAttention():
            return dot(query, project(attention.key_projection, state))
        case ScaledDotAttention():
            return dot(query, state) / math.sqrt(len(state))
    return dot(query, state)


@few_examples
@given(POSITION_SCORE_CASES)
def test_weights_and_context_equal_the_published_equations(case: AttentionCase) -> None:
    context, weights, *_ = case.attend_once()
    for b, length in enumerate(case.memory.lengths.tolist()):
        states = case.memory.states[b, :length].tolist()
        query, previous_weights = case.query[b].tolist(), case.attention_state[b, :length].tolist()
        scores = [
            score_by_definition(case.attention, query, state, (previous_weights, s)) for s, state in enumerate(states)
        ]
        exponentials = [math.exp(score) for score in scores]
        expected = [power / sum(exponentials) for power in exponentials]
        assert weights[b, :length].tolist() == pytest.approx(expected, abs=1e-12)
        expected_context = [sum(w * state[d] for w, state in zip(expected, states, strict=True)) for d in range(3)]
        assert context[b].tolist() == pytest.approx(expected_context, abs=1e-12)


@few_examples
@given(POSITION_SCORE_CASES)
def test_weights_are_a_distribution_over_real_positions_and_zero_on_padding(case: AttentionCase) -> None:
    weights = case.attend_once().weights
    assert (weights >= 0).all()
    assert_tensors_close(weights.sum(dim=1), torch.ones(len(weights), dtype=torch.float64))
    for row, length in zip(weights.tolist(), case.memory.lengths.tolist(), strict=True):
        assert row[length:] == [0.0] * (len(row) - length)


def test_huge_scores_do_not_overflow() -> None:
    memory = Memory(torch.eye(3)[None], torch.tensor([2]), DecoderState(torch.zeros(1, 1, 3)))
    for huge in (1e30, -1e30):
        context, weights, *_ = attend(torch.tensor([[0.0, huge, 1e38]]), memory)
        assert weights.tolist() == [[float(huge < 0), float(huge > 0), 0.0]]
        assert context.tolist() == weights.tolist()


@few_examples
@given(POSITION_SCORE_CASES, SEEDS, st.integers(1, 3))
def test_padding_does_not_change_the_attention(case: AttentionCase, seed: int, columns: int) -> None:
    attention_output, (B, S, D) = case.attend_once(), case.memory.states.shape
    noise = torch.randn(B, S + columns, D, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    noise[:, :S][case.memory.length_mask()] = case.memory.states[case.memory.length_mask()]
    previous_weights = torch.cat(
        [case.attention_state.where(case.memory.length_mask(), torch.nan), noise[:, S:, 0]], dim=1
    )
    other = case._replace(memory=case.memory._replace(states=noise), attention_state=previous_weights).attend_once()
    assert_tensors_close(other.context, attention_output.context)
    assert_tensors_close(other.weights[:, :S], attention_output.weights)
    assert not other.weights[:, S:].any()


@few_examples
@given(POSITION_FREE_CASES, st.randoms(use_true_random=False))
def test_permuting_the_memory_permutes_the_weights_only(case: AttentionCase, random: Random) -> None:
    attention_output = case.attend_once()
    for row, length in enumerate(case.memory.lengths.tolist()):
        order = list(range(length))
        random.shuffle(order)
        memory = Memory(case.memory.states[row : row + 1, order], torch.tensor([length]), case.memory.final)
        other = AttentionCase(
            case.attention, memory, case.query[row : row + 1], case.attention_state[row : row + 1]
        ).attend_once()
        assert_tensors_close(other.weights[0], attention_output.weights[row, order])
        assert_tensors_close(other.context[0], attention_output.context[row])


@few_examples
@given(CASES, SEEDS)
def test_one_hot_override_returns_the_state_of_its_position(case: AttentionCase, seed: int) -> None:
    B, S, _ = case.memory.states.shape
    positions = torch.randint(S, (B,), generator=torch.Generator().manual_seed(seed))
    forced_weights = torch.zeros(B, S, dtype=torch.float64)
    forced_weights[torch.arange(B), positions] = 1
    context, weights, attention_state, _ = case.attend_once(forced_weights)
    assert torch.equal(context, case.memory.states[torch.arange(B), positions])
    assert torch.equal(weights, forced_weights)
    assert attention_state is (weights if isinstance(case.attention, LocationSensitiveAttention) else None)


@few_examples
@given(POSITION_SCORE_CASES)
def test_override_with_equal_weights_is_bit_for_bit_equal(case: AttentionCase) -> None:
    attention_output = case.attend_once()
    overridden = case.attend_once(attention_output.weights)
    assert torch.equal(overridden.context, attention_output.context)
    assert torch.equal(overridden.weights, attention_output.weights)


def test_no_attention_returns_the_final_state_and_zero_weights() -> None:
    case = make_case("none", [3, 1], 1, 1)
    context, weights, *_ = case.attend_once()
    assert torch.equal(context, case.memory.final.hidden[:, 1])
    assert weights.tolist() == [[0.0] * 3] * 2


@pytest.mark.parametrize("score", POSITION_SCORES)
def test_gradients_equal_finite_differences(score: str) -> None:
    attention, memory, query, previous_weights = make_case(score, [3, 1], 2, 1)

    def attend_once(states: Tensor, query: Tensor, previous_weights: Tensor, *_: Tensor) -> tuple[Tensor, ...]:
        return tuple(attention(query, attention.build_cache(memory._replace(states=states)), previous_weights)[:2])

    inputs = (*(each.requires_grad_() for each in (memory.states, query, previous_weights)), *attention.parameters())
    assert torch.autograd.gradcheck(attend_once, inputs)


@few_examples
@given(CASES, st.data())
def test_attention_of_selected_rows_equals_selected_attention(case: AttentionCase, data: st.DataObject) -> None:
    B = len(case.query)
    rows = torch.tensor(data.draw(st.lists(st.integers(0, B - 1), min_size=1, max_size=7)))
    attention_output = case.attend_once()
    cache = case.attention.build_cache(case.memory).index_select(rows)
    selected: AttentionOutput = case.attention(case.query[rows], cache, case.attention_state[rows])
    assert_tensors_close(selected.context, attention_output.context[rows])
    assert_tensors_close(selected.weights, attention_output.weights[rows])


@pytest.mark.parametrize("score", SOFT_SCORES)
def test_attention_stores_nothing_on_the_module(score: str) -> None:
    case = make_case(score, [3, 1], 2, 1)
    before = collect_attributes(case.attention)
    case.attend_once()
    assert collect_attributes(case.attention) == before


def test_every_configured_score_is_tested_and_has_its_class() -> None:
    assert set(ATTENTION_TYPES) == set(BUILT_IN_TYPES)
    attentions = [make_case(score, [1], 2, 1).attention for score in ATTENTION_TYPES]
    assert len({type(attention) for attention in attentions}) == len(ATTENTION_TYPES)
    for score, attention in zip(ATTENTION_TYPES, attentions, strict=True):
        config = AttentionConfig(type=score, size=2)
        assert (has_weights(config), uses_softmax(config)) == (attention.has_weights, attention.uses_softmax)
    assert [isinstance(attention, ScoredAttention) for attention in attentions] == [
        score not in ("location", "monotonic", "none") for score in ATTENTION_TYPES
    ]


def test_additive_keys_contain_the_bias_once() -> None:
    attention = AdditiveAttention(2, 3, 4)
    memory = Memory(torch.randn(1, 2, 3), torch.tensor([2]), DecoderState(torch.zeros(1, 1, 3)))
    cache: DecoderCache = attention.build_cache(memory)
    assert_tensors_close(cache.keys, attention.key_projection(memory.states), 1e-6)
    scores = attention.scores(torch.zeros(1, 1, 2), cache.keys)[:, 0]
    assert_tensors_close(scores, torch.tanh(cache.keys) @ attention.energy, 1e-6)


def test_location_attention_uses_the_previous_weights() -> None:
    case = make_case("location", [4, 2], 3, 1)
    attention, initial_attention_state = case.attention, case.attention.initial_attention_state(case.memory)
    assert (
        isinstance(attention, LocationSensitiveAttention)
        and initial_attention_state is not None
        and not initial_attention_state.any()
    )
    additive = AdditiveAttention(2, 3, 3).double()
    additive.load_state_dict({name: attention.state_dict()[name] for name in additive.state_dict()})
    first, without_location = (
        case._replace(attention_state=initial_attention_state).attend_once(),
        case._replace(attention=additive).attend_once(),
    )
    assert_tensors_close(first.weights, without_location.weights)
    assert first.attention_state is not None and without_location.attention_state is None
    assert not torch.isclose(
        case._replace(attention_state=first.attention_state).attend_once().weights, first.weights
    ).all()


@pytest.mark.parametrize("score", SOFT_SCORES)
def test_only_stateful_attention_has_a_state(score: str) -> None:
    case = make_case(score, [3, 1], 2, 1)
    assert (
        (case.attention.initial_attention_state(case.memory) is None)
        == (case.attend_once().attention_state is None)
        == (score != "location")
    )


@few_examples
@given(LENGTHS, SIZES, SEEDS, st.integers(2, 3))
def test_each_query_uses_its_own_previous_weights(lengths: list[int], units: int, seed: int, num_queries: int) -> None:
    case = make_case("location", lengths, units, seed)
    rows = torch.arange(len(lengths)).repeat_interleave(num_queries)
    query, previous_weights = torch.randn(len(rows), 2).double(), torch.randn(len(rows), max(lengths)).double()
    grouped: AttentionOutput = case.attention(query, case.attention.build_cache(case.memory), previous_weights)
    separate: AttentionOutput = case.attention(
        query, case.attention.build_cache(case.memory).index_select(rows), previous_weights
    )
    assert_tensors_close(grouped.context, separate.context)
    assert_tensors_close(grouped.weights, separate.weights)
