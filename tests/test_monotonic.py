"""Monotonic attention: both versions of the recursion against the sum written out, and what follows from it."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from pellucid.model.attention import MonotonicAttention, expected_stop, hard_stop
from pellucid.model.memory import AttentionCache, Memory, State

SEEDS = st.integers(0, 2**32 - 1)


def written_out(stops: np.ndarray, looked: np.ndarray) -> np.ndarray:
    """α_s = p_s Σ_{k ≤ s} α'_k Π_{l = k … s−1} (1 − p_l), term by term."""
    result = np.zeros_like(stops)
    for row, s in np.ndindex(*stops.shape):
        terms = (looked[row, k] * np.prod(1 - stops[row, k:s]) for k in range(s + 1))
        result[row, s] = stops[row, s] * sum(terms)
    return result


def shares(generator: np.random.Generator, rows: int, positions: int) -> np.ndarray:
    drawn = generator.random((rows, positions))
    result: np.ndarray = drawn / drawn.sum(axis=1, keepdims=True)
    return result


@given(st.integers(1, 4), st.integers(1, 9), SEEDS)
def test_the_expected_stop_is_its_sum(rows: int, positions: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    stops, looked = 0.02 + 0.9 * generator.random((rows, positions)), shares(generator, rows, positions)
    found = expected_stop(torch.from_numpy(stops), torch.from_numpy(looked)).numpy()
    np.testing.assert_allclose(found, written_out(stops, looked), rtol=1e-9, atol=1e-12)


@given(st.integers(1, 4), st.integers(1, 9), SEEDS)
def test_the_hard_stop_is_the_same_sum(rows: int, positions: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    opened, looked = generator.random((rows, positions)) < 0.4, shares(generator, rows, positions)
    found = hard_stop(torch.from_numpy(opened), torch.from_numpy(looked)).numpy()
    np.testing.assert_allclose(found, written_out(opened.astype(float), looked), atol=1e-12)


def test_gradients_are_those_of_differences() -> None:
    generator = torch.Generator().manual_seed(1)
    stops = (0.1 + 0.8 * torch.rand(2, 5, dtype=torch.float64, generator=generator)).requires_grad_()
    looked = torch.rand(2, 5, dtype=torch.float64, generator=generator).requires_grad_()
    assert torch.autograd.gradcheck(expected_stop, (stops, looked))


def attendable(attention: MonotonicAttention, states: Tensor, lengths: list[int]) -> AttentionCache:
    memory = Memory(states, torch.tensor(lengths), State(torch.zeros(len(lengths), 1, states.shape[2])))
    return attention.prepare(memory)


def test_in_use_it_looks_at_one_position_and_never_back() -> None:
    torch.manual_seed(3)
    attention = MonotonicAttention(4, 6, 8).eval()
    torch.nn.init.constant_(attention.offset, 0.0)
    seen = attendable(attention, torch.randn(5, 12, 6), [12, 9, 7, 3, 1])
    looked, last = attention.initial_state(seen.memory), torch.zeros(5, dtype=torch.int64)
    for _ in range(6):
        attended = attention(torch.randn(5, 4), seen, looked)
        assert attended.attention_state is not None
        looked, weights = attended.attention_state, attended.weights
        assert set(weights.unique().tolist()) <= {0.0, 1.0} and bool((weights.sum(dim=1) <= 1).all())
        assert not weights[~seen.memory.mask()].any()
        stops = weights.sum(dim=1) > 0
        assert bool((weights.argmax(dim=1)[stops] >= last[stops]).all())
        last = torch.where(stops, weights.argmax(dim=1), last)


def test_what_was_forced_is_where_the_next_scan_begins() -> None:
    torch.manual_seed(4)
    attention = MonotonicAttention(4, 6, 8).eval()
    torch.nn.init.constant_(attention.offset, 100.0)
    seen = attendable(attention, torch.randn(1, 5, 6), [5])
    forced = attention(torch.randn(1, 4), seen, attention.initial_state(seen.memory), torch.eye(5)[3:4])
    after = attention(torch.randn(1, 4), seen, forced.attention_state)
    assert torch.equal(forced.context, seen.memory.states[:, 3]) and int(after.weights.argmax()) == 3
