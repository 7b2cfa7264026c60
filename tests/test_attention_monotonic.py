"""Monotonic attention: both recursions compared with the explicit sum, and the start of the next scan."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from pellucid.model.attention import MonotonicAttention, expected_stop, hard_stop
from pellucid.model.memory import DecoderCache, DecoderState, Memory

SEEDS = st.integers(0, 2**32 - 1)


def explicit_sum(probabilities: np.ndarray, previous_weights: np.ndarray) -> np.ndarray:
    """Return α_s = p_s Σ_{k ≤ s} α'_k Π_{l = k … s−1} (1 − p_l), summed term by term."""
    result = np.zeros_like(probabilities)
    for row, s in np.ndindex(*probabilities.shape):
        terms = (previous_weights[row, k] * np.prod(1 - probabilities[row, k:s]) for k in range(s + 1))
        result[row, s] = probabilities[row, s] * sum(terms)
    return result


def random_weights(generator: np.random.Generator, rows: int, positions: int) -> np.ndarray:
    random = generator.random((rows, positions))
    result: np.ndarray = random / random.sum(axis=1, keepdims=True)
    return result


@given(st.integers(1, 4), st.integers(1, 9), SEEDS)
def test_the_expected_stop_equals_the_explicit_sum(rows: int, positions: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    probabilities, previous_weights = (
        0.02 + 0.9 * generator.random((rows, positions)),
        random_weights(generator, rows, positions),
    )
    result = expected_stop(torch.from_numpy(probabilities), torch.from_numpy(previous_weights)).numpy()
    np.testing.assert_allclose(result, explicit_sum(probabilities, previous_weights), rtol=1e-9, atol=1e-12)


@given(st.integers(1, 4), st.integers(1, 9), SEEDS)
def test_the_hard_stop_equals_the_explicit_sum(rows: int, positions: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    is_open, previous_weights = generator.random((rows, positions)) < 0.4, random_weights(generator, rows, positions)
    result = hard_stop(torch.from_numpy(is_open), torch.from_numpy(previous_weights)).numpy()
    np.testing.assert_allclose(result, explicit_sum(is_open.astype(float), previous_weights), atol=1e-12)


def test_gradients_equal_finite_differences() -> None:
    generator = torch.Generator().manual_seed(1)
    probabilities = (0.1 + 0.8 * torch.rand(2, 5, dtype=torch.float64, generator=generator)).requires_grad_()
    previous_weights = torch.rand(2, 5, dtype=torch.float64, generator=generator).requires_grad_()
    assert torch.autograd.gradcheck(expected_stop, (probabilities, previous_weights))


def make_cache(attention: MonotonicAttention, states: Tensor, lengths: list[int]) -> DecoderCache:
    memory = Memory(states, torch.tensor(lengths), DecoderState(torch.zeros(len(lengths), 1, states.shape[2])))
    return attention.build_cache(memory)


def test_decoding_attends_to_one_position_and_never_moves_back() -> None:
    torch.manual_seed(3)
    attention = MonotonicAttention(4, 6, 8).eval()
    torch.nn.init.constant_(attention.offset, 0.0)
    cache = make_cache(attention, torch.randn(5, 12, 6), [12, 9, 7, 3, 1])
    previous_weights, last_position = attention.initial_attention_state(cache.memory), torch.zeros(5, dtype=torch.int64)
    for _ in range(6):
        attention_output = attention(torch.randn(5, 4), cache, previous_weights)
        assert attention_output.attention_state is not None
        previous_weights, weights = attention_output.attention_state, attention_output.weights
        assert set(weights.unique().tolist()) <= {0.0, 1.0} and bool((weights.sum(dim=1) <= 1).all())
        assert not weights[~cache.memory.length_mask()].any()
        has_stopped = weights.sum(dim=1) > 0
        assert bool((weights.argmax(dim=1)[has_stopped] >= last_position[has_stopped]).all())
        last_position = torch.where(has_stopped, weights.argmax(dim=1), last_position)


def test_next_scan_begins_at_the_overridden_position() -> None:
    torch.manual_seed(4)
    attention = MonotonicAttention(4, 6, 8).eval()
    torch.nn.init.constant_(attention.offset, 100.0)
    cache = make_cache(attention, torch.randn(1, 5, 6), [5])
    overridden = attention(torch.randn(1, 4), cache, attention.initial_attention_state(cache.memory), torch.eye(5)[3:4])
    after = attention(torch.randn(1, 4), cache, overridden.attention_state)
    assert torch.equal(overridden.context, cache.memory.states[:, 3]) and int(after.weights.argmax()) == 3
