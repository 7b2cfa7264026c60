"""The LSTM with peepholes, in both versions, against numpy."""

import numpy as np
import pytest
import torch
from torch import Tensor

from pellucid.model.cells import Peepholes, PeepholeState, PeepholeStep, late_peephole_step, peephole_step

H = 3


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def sigmoid(values: np.ndarray) -> np.ndarray:
    result: np.ndarray = 1 / (1 + np.exp(-values))
    return result


def given(seed: int) -> tuple[Tensor, PeepholeState, Peepholes]:
    torch.manual_seed(seed)
    return drawn(2, 4 * H), PeepholeState(drawn(2, H), drawn(2, H)), Peepholes(drawn(H), drawn(H), drawn(H))


@pytest.mark.parametrize("late", [False, True])
def test_a_step_is_its_equations(late: bool) -> None:
    sums, before, peepholes = given(1)
    enter, forget, candidate, leave = np.split(sums.numpy(), 4, axis=1)
    p_i, p_f, p_o, c = *(each.numpy() for each in peepholes), before.cell.numpy()
    cell = sigmoid(forget + p_f * c) * c + sigmoid(enter + p_i * c) * np.tanh(candidate)
    gate = sigmoid(leave) + p_o * cell if late else sigmoid(leave + p_o * cell)
    after = (late_peephole_step if late else peephole_step)(sums, before, peepholes)
    np.testing.assert_allclose(after.cell.numpy(), cell)
    np.testing.assert_allclose(after.hidden.numpy(), gate * np.tanh(cell))


@pytest.mark.parametrize("step", [peephole_step, late_peephole_step])
def test_gradients_are_those_of_differences(step: PeepholeStep) -> None:
    sums, before, peepholes = given(2)
    tensors = [tensor.requires_grad_() for tensor in (sums, *before, *peepholes)]

    def taken(sums: Tensor, hidden: Tensor, cell: Tensor, *peepholes: Tensor) -> tuple[Tensor, ...]:
        return tuple(step(sums, PeepholeState(hidden, cell), Peepholes(*peepholes)))

    assert torch.autograd.gradcheck(taken, tensors)


def test_without_peepholes_both_are_the_common_lstm() -> None:
    sums, before, _ = given(3)
    none = Peepholes(*(torch.zeros(H, dtype=torch.float64) for _ in range(3)))
    first, second = (step(sums, before, none) for step in (peephole_step, late_peephole_step))
    torch.testing.assert_close(first, second)
