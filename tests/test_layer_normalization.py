"""Layer normalization in cells, compared with the published equations.

B batch, E input, H hidden units, G all gates.
"""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from small_networks import SEEDS, SIZES, assert_tensors_close, few_examples, randomize_parameters
from torch import Tensor

from pellucid.config.settings import Cell
from pellucid.model.cells import LayerState, NormalizedCell, RecurrentCell, cell_class
from pellucid.model.recurrence import InputVectors, output_norms, run_cell, run_rnn


def build_cell(kind: Cell, sizes: tuple[int, int], seed: int) -> NormalizedCell:
    torch.manual_seed(seed)
    cell = NormalizedCell(kind, *sizes).double()
    randomize_parameters(cell, seed)
    return cell


def normalize(values: list[float]) -> list[float]:
    """Return (x − mean) / √(variance + 1e-5)."""
    mean = math.fsum(values) / len(values)
    variance = math.fsum((value - mean) ** 2 for value in values) / len(values)
    return [(value - mean) / math.sqrt(variance + 1e-5) for value in values]


def multiply(weight: Tensor, vector: list[float]) -> list[float]:
    return [math.fsum(a * b for a, b in zip(row, vector, strict=True)) for row in weight.tolist()]


def logistic(value: float) -> float:
    return 1 / (1 + math.exp(-value))


def normalize_gates(preactivations: list[float], groups: list[int]) -> list[float]:
    """Return the gates, with each group normalized separately."""
    gates, start = list[float](), 0
    for size in groups:
        gates += normalize(preactivations[start : start + size])
        start += size
    return gates


def reference_step(
    layer: NormalizedCell, x: list[float], h: list[float], c: list[float]
) -> tuple[list[float], list[float]]:
    """Return h' and c', which is empty for a GRU."""
    H = layer.hidden_size
    groups = [2 * H, H] if layer.cell_type == "gru" else [4 * H]
    input_part, hidden_part = (
        normalize_gates(multiply(w, v), groups) for w, v in ((layer.input_weight, x), (layer.hidden_weight, h))
    )
    a = [g * n + b for g, n, b in zip(layer.input_gain.tolist(), input_part, layer.input_bias.tolist(), strict=True)]
    u = [g * n + b for g, n, b in zip(layer.hidden_gain.tolist(), hidden_part, layer.hidden_bias.tolist(), strict=True)]
    if layer.cell_type == "gru":
        r = [logistic(a[j] + u[j]) for j in range(H)]
        z = [logistic(a[H + j] + u[H + j]) for j in range(H)]
        n = [math.tanh(a[2 * H + j] + r[j] * u[2 * H + j]) for j in range(H)]
        return [(1 - z[j]) * n[j] + z[j] * h[j] for j in range(H)], []
    i, f, g, o = ([a[k * H + j] + u[k * H + j] for j in range(H)] for k in range(4))
    cell = [logistic(f[j]) * c[j] + logistic(i[j]) * math.tanh(g[j]) for j in range(H)]
    assert layer.leaving is not None
    weight, bias = layer.leaving.weight.tolist(), layer.leaving.bias.tolist()
    normalized_cell = [w * n + b for w, n, b in zip(weight, normalize(cell), bias, strict=True)]
    return [logistic(o[j]) * math.tanh(normalized_cell[j]) for j in range(H)], cell


@few_examples
@given(st.sampled_from(["gru", "lstm"]), SIZES, SIZES, SEEDS)
def test_a_step_equals_the_published_equations(kind: Cell, size: int, units: int, seed: int) -> None:
    cell = build_cell(kind, (size, units), seed)
    x, h, c = (torch.randn(2, each, dtype=torch.float64) for each in (size, units, units))
    after = cell.step(cell.project(x), LayerState(h, c if kind == "lstm" else None))
    for b in range(2):
        hidden, cell_state = reference_step(cell, x[b].tolist(), h[b].tolist(), c[b].tolist())
        assert after.hidden[b].tolist() == pytest.approx(hidden, abs=1e-9)
        assert (after.cell_state is None) == (not cell_state)
        if after.cell_state is not None:
            assert after.cell_state[b].tolist() == pytest.approx(cell_state, abs=1e-9)


@pytest.mark.parametrize("kind", ["gru", "lstm"])
def test_gradients_equal_finite_differences(kind: Cell) -> None:
    cell = build_cell(kind, (2, 3), 1)
    inputs = torch.randn(2, 3, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda values, *_: run_cell(cell, values), (inputs, *cell.parameters()))


@pytest.mark.parametrize("kind", ["gru", "lstm"])
def test_both_directions_stay_within_the_lengths(kind: Cell) -> None:
    cells = [build_cell(kind, (2, 3), seed) for seed in (1, 2)]
    inputs, lengths = torch.randn(2, 4, 2, dtype=torch.float64), torch.tensor([4, 2])
    batched = run_rnn(cells, InputVectors(inputs), lengths)
    single = run_rnn(cells, InputVectors(inputs[1:, :2]), lengths[1:])
    assert_tensors_close(batched.states[1:, :2], single.states)
    assert_tensors_close(batched.final[1:], single.final)
    assert not batched.states[1, 2:].any()


@given(SIZES, st.floats(0.5, 100), SEEDS)
def test_the_scale_of_the_weights_does_not_change_the_state(units: int, scale: float, seed: int) -> None:
    """Only the direction of the preactivations matters, except for the term of 1e-5."""
    cell = build_cell("gru", (2, units + 1), seed)
    x, h = torch.randn(1, 2, dtype=torch.float64) * 1e4, torch.randn(1, units + 1, dtype=torch.float64)
    expected = cell.step(cell.project(x), LayerState(h, None)).hidden
    with torch.no_grad():
        cell.input_weight.mul_(scale)
    assert_tensors_close(cell.step(cell.project(x), LayerState(h, None)).hidden, expected, 1e-4)


def test_the_setting_selects_the_class() -> None:
    assert cell_class("none") is cell_class("outputs") is RecurrentCell and cell_class("cells") is NormalizedCell
    assert [len([*norm.parameters()]) for norm in output_norms("outputs", 2, 3)] == [2, 2]
    assert [len([*norm.parameters()]) for norm in output_norms("cells", 2, 3)] == [0, 0]
