"""Layer normalization in cells, against the published equations.

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
from pellucid.model.recurrence import Inputs, output_norms, run_forward, run_rnn


def cell_of(kind: Cell, sizes: tuple[int, int], seed: int) -> NormalizedCell:
    torch.manual_seed(seed)
    cell = NormalizedCell(kind, *sizes).double()
    randomize_parameters(cell, seed)
    return cell


def normalized(values: list[float]) -> list[float]:
    """(x − mean) / √(variance + 1e-5)."""
    mean = math.fsum(values) / len(values)
    variance = math.fsum((value - mean) ** 2 for value in values) / len(values)
    return [(value - mean) / math.sqrt(variance + 1e-5) for value in values]


def times(weight: Tensor, vector: list[float]) -> list[float]:
    return [math.fsum(a * b for a, b in zip(row, vector, strict=True)) for row in weight.tolist()]


def logistic(value: float) -> float:
    return 1 / (1 + math.exp(-value))


def normalized_gates(sums: list[float], groups: list[int]) -> list[float]:
    """Return the gates, each group normalized by itself."""
    found, start = list[float](), 0
    for size in groups:
        found += normalized(sums[start : start + size])
        start += size
    return found


def step_by_definition(
    own: NormalizedCell, x: list[float], h: list[float], c: list[float]
) -> tuple[list[float], list[float]]:
    """Return h' and c', which is empty for a GRU."""
    H = own.hidden_size
    groups = [2 * H, H] if own.cell == "gru" else [4 * H]
    enter, recur = (normalized_gates(times(w, v), groups) for w, v in ((own.input_weight, x), (own.hidden_weight, h)))
    a = [g * n + b for g, n, b in zip(own.input_gain.tolist(), enter, own.input_bias.tolist(), strict=True)]
    u = [g * n + b for g, n, b in zip(own.hidden_gain.tolist(), recur, own.hidden_bias.tolist(), strict=True)]
    if own.cell == "gru":
        r = [logistic(a[j] + u[j]) for j in range(H)]
        z = [logistic(a[H + j] + u[H + j]) for j in range(H)]
        n = [math.tanh(a[2 * H + j] + r[j] * u[2 * H + j]) for j in range(H)]
        return [(1 - z[j]) * n[j] + z[j] * h[j] for j in range(H)], []
    i, f, g, o = ([a[k * H + j] + u[k * H + j] for j in range(H)] for k in range(4))
    cell = [logistic(f[j]) * c[j] + logistic(i[j]) * math.tanh(g[j]) for j in range(H)]
    assert own.leaving is not None
    weight, bias = own.leaving.weight.tolist(), own.leaving.bias.tolist()
    seen = [w * n + b for w, n, b in zip(weight, normalized(cell), bias, strict=True)]
    return [logistic(o[j]) * math.tanh(seen[j]) for j in range(H)], cell


@few_examples
@given(st.sampled_from(["gru", "lstm"]), SIZES, SIZES, SEEDS)
def test_a_step_equals_the_published_equations(kind: Cell, size: int, units: int, seed: int) -> None:
    cell = cell_of(kind, (size, units), seed)
    x, h, c = (torch.randn(2, each, dtype=torch.float64) for each in (size, units, units))
    after = cell.step(cell.project(x), LayerState(h, c if kind == "lstm" else None))
    for b in range(2):
        hidden, own = step_by_definition(cell, x[b].tolist(), h[b].tolist(), c[b].tolist())
        assert after.hidden[b].tolist() == pytest.approx(hidden, abs=1e-9)
        assert (after.cell is None) == (not own)
        if after.cell is not None:
            assert after.cell[b].tolist() == pytest.approx(own, abs=1e-9)


@pytest.mark.parametrize("kind", ["gru", "lstm"])
def test_gradients_equal_finite_differences(kind: Cell) -> None:
    cell = cell_of(kind, (2, 3), 1)
    inputs = torch.randn(2, 3, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda values, *_: run_forward(cell, values), (inputs, *cell.parameters()))


@pytest.mark.parametrize("kind", ["gru", "lstm"])
def test_both_directions_stay_within_the_lengths(kind: Cell) -> None:
    cells = [cell_of(kind, (2, 3), seed) for seed in (1, 2)]
    inputs, lengths = torch.randn(2, 4, 2, dtype=torch.float64), torch.tensor([4, 2])
    ran = run_rnn(cells, Inputs(inputs), lengths)
    alone = run_rnn(cells, Inputs(inputs[1:, :2]), lengths[1:])
    assert_tensors_close(ran.states[1:, :2], alone.states)
    assert_tensors_close(ran.last[1:], alone.last)
    assert not ran.states[1, 2:].any()


@given(SIZES, st.floats(0.5, 100), SEEDS)
def test_the_scale_of_the_weights_changes_nothing(units: int, scale: float, seed: int) -> None:
    """Only the direction of the preactivations matters (except for the 1e-5)."""
    cell = cell_of("gru", (2, units + 1), seed)
    x, h = torch.randn(1, 2, dtype=torch.float64) * 1e4, torch.randn(1, units + 1, dtype=torch.float64)
    one = cell.step(cell.project(x), LayerState(h, None)).hidden
    with torch.no_grad():
        cell.input_weight.mul_(scale)
    assert_tensors_close(cell.step(cell.project(x), LayerState(h, None)).hidden, one, 1e-4)


def test_the_setting_selects_the_class() -> None:
    assert cell_class("none") is cell_class("outputs") is RecurrentCell and cell_class("cells") is NormalizedCell
    assert [len([*norm.parameters()]) for norm in output_norms("outputs", 2, 3)] == [2, 2]
    assert [len([*norm.parameters()]) for norm in output_norms("cells", 2, 3)] == [0, 0]
