"""The look by location in kernels: one look against double precision, and the weights from before the first step."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_cases import CELLS, SEEDS, SIZES, assert_equal, both_ways, lengths_within
from test_kernels_decoder import memory_of, small_decoder

from pellucid.config.settings import Cell
from pellucid.kernels.attention import Location
from pellucid.kernels.location import weigh_located


@given(st.integers(1, 40), st.integers(1, 9), st.integers(1, 4), st.integers(0, 60), SEEDS)
@settings(max_examples=60, deadline=None)
def test_weights_equal_the_equation_in_double_precision(n: int, units: int, count: int, radius: int, seed: int) -> None:
    """Filters may be wider than the source; keys have room for more positions than are real."""
    random = np.random.default_rng(seed)
    shapes = ((units, n + 2), (units,), (units,), (units, count), (count, 2 * radius + 1), (n,))
    keys, query, energy, projection, filters, before = (random.standard_normal(shape) for shape in shapes)
    features = [
        [sum(row[j + radius] * before[s + j] for j in range(-radius, radius + 1) if 0 <= s + j < n) for s in range(n)]
        for row in filters
    ]
    scores = energy @ np.tanh(query[:, None] + keys[:, :n] + projection @ np.array(features))
    expected = np.exp(scores - scores.max()) / np.exp(scores - scores.max()).sum()
    singles = [array.astype(np.float32) for array in (filters, projection, filters.T, projection.T, before[None])]
    location = Location(*map(np.ascontiguousarray, singles))
    weights, (key, asked, share) = np.zeros(n, np.float32), (each.astype(np.float32) for each in (keys, query, energy))
    weigh_located(key, asked, share, location, location.looked[0], weights)
    np.testing.assert_allclose(weights, expected, rtol=1e-4, atol=1e-6)


def test_no_sum_is_too_large() -> None:
    """Where e^{2x} would overflow, tanh is 1; sums that cancel leave what is left."""
    filters, empty = np.ones((1, 1), np.float32), np.zeros((1, 2), np.float32)
    location = Location(filters, filters, filters, filters, empty)
    for key in (0.0, 50.0, 1e4, 1e30):
        keys, weights = np.array([[key, -key]], np.float32), np.zeros(2, np.float32)
        query = np.array([0.5 - key], np.float32)
        weigh_located(keys, query, np.ones(1, np.float32), location, empty[0], weights)
        expected = np.exp(np.tanh((keys[0] + query).astype(np.float64)))
        np.testing.assert_allclose(weights, expected / expected.sum(), rtol=1e-5)


@given(st.data(), CELLS, SIZES, SEEDS)
@settings(max_examples=40, deadline=None)
def test_the_weights_before_the_first_step_are_seen_and_have_their_gradient(
    data: st.DataObject, cell: Cell, size: int, seed: int
) -> None:
    rows, positions, steps = (data.draw(st.integers(1, top)) for top in (5, 40, 4))
    torch.manual_seed(seed)
    decoder = small_decoder("location", cell, size, 3, data.draw(SIZES)).eval()
    lengths, symbols = lengths_within(data, rows, positions), torch.randint(0, 6, (rows, steps))
    inputs = {"states": torch.randn(rows, positions, 3), "looked": torch.randn(positions, rows)}

    def outputs() -> list[torch.Tensor]:
        memory = memory_of(inputs["states"], lengths)
        state = decoder.start(memory)._replace(looked=inputs["looked"].T)
        unrolled = decoder.unroll(symbols, state, decoder.prepare(memory))
        assert unrolled.state.looked is not None
        return [unrolled.logits, unrolled.weights, unrolled.state.looked]

    for tensor in inputs.values():
        tensor.requires_grad_()
    assert_equal(*both_ways(decoder, outputs, inputs, seed), tolerance=2e-5)
