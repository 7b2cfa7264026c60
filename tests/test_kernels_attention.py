"""Kernels of attention keys and of location-sensitive attention, compared with PyTorch and double precision."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_cases import (
    CELLS,
    SEEDS,
    SIZES,
    assert_named_tensors_close,
    compute_gradients,
    draw_lengths,
    run_with_and_without_kernels,
)
from test_kernels_unroll import build_memory, build_small_decoder

from pellucid.config.settings import Cell
from pellucid.kernels import runtime
from pellucid.kernels.attention import AttentionScorer, attention_scorer, attention_weights, location_buffers
from pellucid.kernels.tensor_functions import project_keys
from pellucid.kernels.types import LOCATION_SENSITIVE, LSTM, DecoderParameters


@given(st.integers(1, 9), st.integers(1, 12), SIZES, SIZES, SEEDS, st.booleans())
@settings(max_examples=40, deadline=None)
def test_keys_and_gradients_equal_pytorch(
    rows: int, positions: int, size: int, units: int, seed: int, biased: bool
) -> None:
    assert_named_tensors_close(*compute_keys_and_gradients(rows, (positions, size, units), seed, biased))


def test_keys_of_several_threads_equal_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "MIN_ROWS", 2)
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert_named_tensors_close(*compute_keys_and_gradients(5, (7, 6, 4), 1, True))
    finally:
        torch.set_num_threads(threads)


def compute_keys_and_gradients(
    rows: int, sizes: tuple[int, int, int], seed: int, biased: bool
) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """Return keys and gradients of the kernel and of PyTorch, for a memory that is not contiguous."""
    positions, size, units = sizes
    torch.manual_seed(seed)
    memory = torch.randn(positions, rows, size, requires_grad=True)
    weight = torch.randn(units, size, requires_grad=True)
    bias = torch.randn(units, requires_grad=True) if biased else None
    inputs = {"memory": memory, "weight": weight} | ({"bias": bias} if bias is not None else {})
    actual = compute_gradients(lambda: [project_keys(memory.transpose(0, 1), weight, bias)], inputs, seed)
    linear = torch.nn.functional.linear
    return actual, compute_gradients(lambda: [linear(memory.transpose(0, 1), weight, bias)], inputs, seed)


def build_location_scorer(energy: np.ndarray, projection: np.ndarray, filters: np.ndarray) -> AttentionScorer:
    """Return a location-sensitive scorer with these parameters in single precision."""
    parameters: Any = [array.astype(np.float32) for array in (energy, projection, filters)]
    empty: Any = [np.empty((0, 0), np.float32)] * 5
    return attention_scorer(DecoderParameters(LSTM, LOCATION_SENSITIVE, *empty, *parameters))


@given(st.integers(1, 40), st.integers(1, 9), st.integers(1, 4), st.integers(0, 60), SEEDS)
@settings(max_examples=60, deadline=None)
def test_weights_equal_the_equation_in_double_precision(n: int, units: int, count: int, radius: int, seed: int) -> None:
    """Filters may be wider than the source; keys have more positions than the real ones."""
    random = np.random.default_rng(seed)
    shapes = ((units, n + 2), (units,), (units,), (units, count), (count, 2 * radius + 1), (n,))
    keys, query, energy, projection, filters, previous_weights = (random.standard_normal(shape) for shape in shapes)
    features = [
        [
            sum(row[j + radius] * previous_weights[s + j] for j in range(-radius, radius + 1) if 0 <= s + j < n)
            for s in range(n)
        ]
        for row in filters
    ]
    scores = energy @ np.tanh(query[:, None] + keys[:, :n] + projection @ np.array(features))
    expected = np.exp(scores - scores.max()) / np.exp(scores - scores.max()).sum()
    scorer, weights = build_location_scorer(energy, projection, filters), np.zeros(n, np.float32)
    key, query32, last = (each.astype(np.float32) for each in (keys, query, previous_weights))
    attention_weights(scorer, key, query32, last, location_buffers(scorer, n), weights)
    np.testing.assert_allclose(weights, expected, rtol=1e-4, atol=1e-6)


def test_large_sums_do_not_overflow() -> None:
    """tanh is 1 where e^{2x} would overflow; sums that cancel keep their difference."""
    ones, previous_weights = np.ones((1, 1), np.float32), np.zeros(2, np.float32)
    scorer = build_location_scorer(ones[0], ones, ones)
    for key in (0.0, 50.0, 1e4, 1e30):
        keys, weights = np.array([[key, -key]], np.float32), np.zeros(2, np.float32)
        query = np.array([0.5 - key], np.float32)
        attention_weights(scorer, keys, query, previous_weights, location_buffers(scorer, 2), weights)
        expected = np.exp(np.tanh((keys[0] + query).astype(np.float64)))
        np.testing.assert_allclose(weights, expected / expected.sum(), rtol=1e-5)


@given(st.data(), CELLS, SIZES, SEEDS)
@settings(max_examples=40, deadline=None)
def test_initial_weights_are_used_and_have_a_gradient(data: st.DataObject, cell: Cell, size: int, seed: int) -> None:
    rows, positions, steps = (data.draw(st.integers(1, maximum)) for maximum in (5, 40, 4))
    torch.manual_seed(seed)
    decoder = build_small_decoder("location", cell, size, 3, data.draw(SIZES)).eval()
    lengths, symbols = draw_lengths(data, rows, positions), torch.randint(0, 6, (rows, steps))
    inputs = {"states": torch.randn(rows, positions, 3), "attention_state": torch.randn(positions, rows)}

    def outputs() -> list[torch.Tensor]:
        memory = build_memory(inputs["states"], lengths)
        state = decoder.init_state(memory)._replace(attention_state=inputs["attention_state"].T)
        unrolled = decoder.unroll(symbols, state, decoder.build_cache(memory))
        assert unrolled.state.attention_state is not None
        return [unrolled.logits, unrolled.weights, unrolled.state.attention_state]

    for tensor in inputs.values():
        tensor.requires_grad_()
    assert_named_tensors_close(*run_with_and_without_kernels(decoder, outputs, inputs, seed), tolerance=2e-5)
