"""Both variants of the peephole LSTM, compared with NumPy."""

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


def random_step_inputs(seed: int) -> tuple[Tensor, PeepholeState, Peepholes]:
    torch.manual_seed(seed)
    return (
        random_tensor(2, 4 * H),
        PeepholeState(random_tensor(2, H), random_tensor(2, H)),
        Peepholes(random_tensor(H), random_tensor(H), random_tensor(H)),
    )


@pytest.mark.parametrize("late", [False, True])
def test_step_equals_its_equations(late: bool) -> None:
    preactivations, previous, peepholes = random_step_inputs(1)
    input_gate, forget_gate, candidate, output_gate = np.split(preactivations.numpy(), 4, axis=1)
    p_i, p_f, p_o, c = *(each.numpy() for each in peepholes), previous.cell_state.numpy()
    cell = sigmoid(forget_gate + p_f * c) * c + sigmoid(input_gate + p_i * c) * np.tanh(candidate)
    output = sigmoid(output_gate) + p_o * cell if late else sigmoid(output_gate + p_o * cell)
    after = (late_peephole_step if late else peephole_step)(preactivations, previous, peepholes)
    np.testing.assert_allclose(after.cell_state.numpy(), cell)
    np.testing.assert_allclose(after.hidden.numpy(), output * np.tanh(cell))


@pytest.mark.parametrize("step", [peephole_step, late_peephole_step])
def test_gradients_equal_finite_differences(step: PeepholeStep) -> None:
    preactivations, previous, peepholes = random_step_inputs(2)
    tensors = [tensor.requires_grad_() for tensor in (preactivations, *previous, *peepholes)]

    def take_step(preactivations: Tensor, hidden: Tensor, cell: Tensor, *peepholes: Tensor) -> tuple[Tensor, ...]:
        return tuple(step(preactivations, PeepholeState(hidden, cell), Peepholes(*peepholes)))

    assert torch.autograd.gradcheck(take_step, tensors)


def test_zero_peepholes_give_equal_steps() -> None:
    preactivations, previous, _ = random_step_inputs(3)
    zeros = Peepholes(*(torch.zeros(H, dtype=torch.float64) for _ in range(3)))
    early, late = (step(preactivations, previous, zeros) for step in (peephole_step, late_peephole_step))
    torch.testing.assert_close(early, late)
