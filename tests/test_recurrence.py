"""Recurrent cells equal loops over the published equations, and PyTorch's modules.

B batch, S positions, E input, H hidden units, G all gates.
"""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from small_networks import (
    CELLS,
    SEEDS,
    SIZES,
    assert_tensors_close,
    few_examples,
    gru_step,
    lstm_step,
    randomize_parameters,
)
from torch import Tensor, nn

from pellucid.config.settings import Cell
from pellucid.model.cells import CELLS as SPECS
from pellucid.model.cells import LayerState, RecurrentCell, StackedCells
from pellucid.model.recurrence import gather_last, reverse_sequence, run_cell


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def random_tensor(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def random_cell(cell: Cell, input_size: int, hidden_size: int, seed: int) -> RecurrentCell:
    recurrent_cell = RecurrentCell(cell, input_size, hidden_size).double()
    randomize_parameters(recurrent_cell, seed)
    return recurrent_cell


def copy_to_pytorch(cell: RecurrentCell, module: nn.Module, suffix: str = "") -> nn.Module:
    """Copy the parameters of the cell to a module of PyTorch and return the module."""
    parameters = {"ih": (cell.input_weight, cell.input_bias), "hh": (cell.hidden_weight, cell.hidden_bias)}
    module.double()
    for side, (weight, bias) in parameters.items():
        getattr(module, f"weight_{side}{suffix}").data.copy_(weight.data)
        getattr(module, f"bias_{side}{suffix}").data.copy_(bias.data)
    return module


@few_examples
@given(st.tuples(SIZES, SIZES), SEEDS)
def test_gru_step_equals_the_published_equations(sizes: tuple[int, int], seed: int) -> None:
    B, H = sizes
    projected, recurrent, hidden = (random_tensor(B, n * H, seed=seed + n) for n in (3, 3, 1))
    new = gru_step(projected, recurrent, hidden)
    for b in range(B):
        for j in range(H):
            x, u, h = projected[b].tolist(), recurrent[b].tolist(), hidden[b, j].item()
            r, z = sigmoid(x[j] + u[j]), sigmoid(x[H + j] + u[H + j])
            n = math.tanh(x[2 * H + j] + r * u[2 * H + j])
            assert new[b, j].item() == pytest.approx((1 - z) * n + z * h, abs=1e-12)


@few_examples
@given(st.tuples(SIZES, SIZES), SEEDS)
def test_lstm_step_equals_the_published_equations(sizes: tuple[int, int], seed: int) -> None:
    B, H = sizes
    gates, cell = random_tensor(B, 4 * H, seed=seed), random_tensor(B, H, seed=seed + 1)
    hidden, new = lstm_step(gates, cell)
    for b in range(B):
        for j in range(H):
            i, f, g, o = (gates[b, gate * H + j].item() for gate in range(4))
            c = sigmoid(f) * cell[b, j].item() + sigmoid(i) * math.tanh(g)
            assert new[b, j].item() == pytest.approx(c, abs=1e-12)
            assert hidden[b, j].item() == pytest.approx(sigmoid(o) * math.tanh(c), abs=1e-12)


@few_examples
@given(st.tuples(SIZES, SIZES, SIZES), SEEDS)
def test_one_step_equals_pytorchs_gru_cell(sizes: tuple[int, int, int], seed: int) -> None:
    B, E, H = sizes
    cell = random_cell("gru", E, H, seed)
    x, h = random_tensor(B, E, seed=seed), random_tensor(B, H, seed=seed + 1)
    new = cell.step(x @ cell.input_weight.T + cell.input_bias, LayerState(h, None))
    assert_tensors_close(new.hidden, copy_to_pytorch(cell, nn.GRUCell(E, H))(x, h))
    assert new.cell_state is None


@few_examples
@given(st.tuples(SIZES, SIZES, SIZES), SEEDS)
def test_one_step_equals_pytorchs_lstm_cell(sizes: tuple[int, int, int], seed: int) -> None:
    B, E, H = sizes
    cell = random_cell("lstm", E, H, seed)
    x, h, c = random_tensor(B, E, seed=seed), random_tensor(B, H, seed=seed + 1), random_tensor(B, H, seed=seed + 2)
    new = cell.step(x @ cell.input_weight.T + cell.input_bias, LayerState(h, c))
    hidden, cell_state = copy_to_pytorch(cell, nn.LSTMCell(E, H))(x, (h, c))
    assert_tensors_close(new.hidden, hidden)
    assert new.cell_state is not None
    assert_tensors_close(new.cell_state, cell_state)


@few_examples
@given(CELLS, st.tuples(SIZES, SIZES, SIZES, SIZES), SEEDS)
def test_a_whole_sequence_equals_single_steps_and_pytorchs_module(
    kind: Cell, sizes: tuple[int, int, int, int], seed: int
) -> None:
    B, S, E, H = sizes
    cell = random_cell(kind, E, H, seed)
    inputs, zero = random_tensor(B, S, E, seed=seed), torch.zeros(B, H, dtype=torch.float64)
    states = run_cell(cell, inputs)
    state = LayerState(zero, zero if kind == "lstm" else None)
    for s in range(S):
        state = cell.step(inputs[:, s] @ cell.input_weight.T + cell.input_bias, state)
        assert_tensors_close(states[:, s], state.hidden)
    module = (nn.GRU if kind == "gru" else nn.LSTM)(E, H, batch_first=True)
    assert_tensors_close(states, copy_to_pytorch(cell, module, suffix="_l0")(inputs)[0])


@pytest.mark.parametrize("rows", [1, 3])
def test_gradients_of_the_steps_equal_finite_differences(rows: int) -> None:
    projected, recurrent, hidden = (random_tensor(rows, n, seed=n).requires_grad_() for n in (6, 6, 2))
    assert torch.autograd.gradcheck(gru_step, (projected, recurrent, hidden))
    gates, cell = (random_tensor(rows, n, seed=n).requires_grad_() for n in (8, 2))
    assert torch.autograd.gradcheck(lstm_step, (gates, cell))


@pytest.mark.parametrize("kind", ["gru", "lstm"])
def test_gradients_through_a_sequence_equal_finite_differences(kind: Cell) -> None:
    cell = random_cell(kind, 2, 2, seed=1)
    inputs = random_tensor(2, 3, 2, seed=2).requires_grad_()
    assert torch.autograd.gradcheck(lambda values, *_: run_cell(cell, values), (inputs, *cell.parameters()))


LENGTHS = st.lists(st.integers(1, 6), min_size=1, max_size=5)


@given(LENGTHS, st.integers(0, 3), st.sampled_from([(), (1,), (3,)]), SEEDS)
def test_rows_are_reversed_within_their_lengths(
    lengths: list[int], padding: int, inner: tuple[int, ...], seed: int
) -> None:
    shape = (len(lengths), max(lengths) + padding, *inner)
    values = torch.randint(100, shape, generator=torch.Generator().manual_seed(seed))
    values = values.double() if inner else values
    reversed_ = reverse_sequence(values, torch.tensor(lengths))
    for row, mirrored, length in zip(values.tolist(), reversed_.tolist(), lengths, strict=True):
        assert mirrored == row[:length][::-1] + row[length:]
    assert torch.equal(reverse_sequence(reversed_, torch.tensor(lengths)), values)


@given(LENGTHS, st.integers(0, 3), SEEDS)
def test_the_last_state_is_the_one_at_the_last_real_position(lengths: list[int], padding: int, seed: int) -> None:
    states = random_tensor(len(lengths), max(lengths) + padding, 3, seed=seed)
    result = gather_last(states, torch.tensor(lengths))
    for row, length in enumerate(lengths):
        assert result[row].tolist() == states[row, length - 1].tolist()


@pytest.mark.parametrize("kind", ["gru", "lstm"])
def test_new_cells_are_orthogonal_with_zero_biases_and_an_open_forget_gate(kind: Cell) -> None:
    H, E = 5, 7
    cell = RecurrentCell(kind, E, H)
    for gate in range(len(SPECS[kind].gates)):
        block = slice(gate * H, (gate + 1) * H)
        assert_tensors_close(cell.hidden_weight[block] @ cell.hidden_weight[block].T, torch.eye(H), tolerance=1e-5)
        largest = float(cell.input_weight[block].detach().abs().max())
        bound = math.sqrt(6 / (E + H))
        assert bound / 2 < largest <= bound
    forget = [float(kind == "lstm" and H <= row < 2 * H) for row in range(len(SPECS[kind].gates) * H)]
    assert cell.input_bias.tolist() == forget
    assert not cell.hidden_bias.any()


def test_a_stack_has_one_cell_for_each_input_size_and_registers_their_parameters() -> None:
    cells = StackedCells("gru", [2, 3, 5], 4)
    assert [cell.input_weight.shape[1] for cell in cells] == [2, 3, 5]
    assert [cells[layer] for layer in range(3)] == [*cells]
    assert len(list(cells.parameters())) == 3 * 4
    assert [*StackedCells("lstm", [], 4)] == []
