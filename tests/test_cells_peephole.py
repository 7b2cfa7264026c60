"""The LSTM with peepholes, in both versions, against NumPy."""

import numpy as np
import pytest
import torch
from torch import Tensor

from pellucid.model.cells import Peepholes, PeepholeState, PeepholeStep, late_peephole_step, peephole_step

H = 3


def random_tensor(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def sigmoid(values: np.ndarray) -> np.ndarray:
    result: np.ndarray = 1 / (1 + np.exp(-values))
    return result


def as_tensors(seed: int) -> tuple[Tensor, PeepholeState, Peepholes]:
    torch.manual_seed(seed)
    return (
        random_tensor(2, 4 * H),
        PeepholeState(random_tensor(2, H), random_tensor(2, H)),
        Peepholes(random_tensor(H), random_tensor(H), random_tensor(H)),
    )


@pytest.mark.parametrize("late", [False, True])
def test_a_step_equals_its_equations(late: bool) -> None:
    sums, before, peepholes = as_tensors(1)
    enter, forget, candidate, leave = np.split(sums.numpy(), 4, axis=1)
    p_i, p_f, p_o, c = *(each.numpy() for each in peepholes), before.cell.numpy()
    cell = sigmoid(forget + p_f * c) * c + sigmoid(enter + p_i * c) * np.tanh(candidate)
    gate = sigmoid(leave) + p_o * cell if late else sigmoid(leave + p_o * cell)
    after = (late_peephole_step if late else peephole_step)(sums, before, peepholes)
    np.testing.assert_allclose(after.cell.numpy(), cell)
    np.testing.assert_allclose(after.hidden.numpy(), gate * np.tanh(cell))


@pytest.mark.parametrize("step", [peephole_step, late_peephole_step])
def test_gradients_equal_finite_differences(step: PeepholeStep) -> None:
    sums, before, peepholes = as_tensors(2)
    tensors = [tensor.requires_grad_() for tensor in (sums, *before, *peepholes)]

    def taken(sums: Tensor, hidden: Tensor, cell: Tensor, *peepholes: Tensor) -> tuple[Tensor, ...]:
        return tuple(step(sums, PeepholeState(hidden, cell), Peepholes(*peepholes)))

    assert torch.autograd.gradcheck(taken, tensors)


def test_without_peepholes_both_equal_the_lstm() -> None:
    sums, before, _ = as_tensors(3)
    none = Peepholes(*(torch.zeros(H, dtype=torch.float64) for _ in range(3)))
    first, second = (step(sums, before, none) for step in (peephole_step, late_peephole_step))
    torch.testing.assert_close(first, second)
