"""Decoders that read the source through one vector, against explicit steps."""

import pytest
import torch
from small_networks import gru_step

from pellucid.kernels.dispatch import disable_kernels
from pellucid.model.bottleneck import InitialCode, RepeatedCode

CODE, STEPS = torch.randn(3, 4, generator=torch.Generator().manual_seed(1)), 5


@pytest.mark.parametrize("compiled", [True, False])
def test_the_repeated_code_is_the_input_of_every_step(compiled: bool) -> None:
    torch.manual_seed(2)
    decoder = RepeatedCode(4, 6)
    cell, hidden, expected = decoder.cell, torch.zeros(3, 6), []
    for _ in range(STEPS):
        given = CODE @ cell.input_weight.T + cell.input_bias
        hidden = gru_step(given, hidden @ cell.hidden_weight.T + cell.hidden_bias, hidden)
        expected.append(hidden)
    if compiled:
        written = decoder(CODE, STEPS)
    else:
        with disable_kernels():
            written = decoder(CODE, STEPS)
    torch.testing.assert_close(written, torch.stack(expected, dim=1))


def test_the_initial_state_is_the_code_and_there_is_no_input() -> None:
    torch.manual_seed(2)
    decoder = InitialCode(4, 4)
    cell, hidden, expected = decoder.cell, CODE, []
    for _ in range(STEPS):
        hidden = gru_step(cell.input_bias.expand(3, -1), hidden @ cell.hidden_weight.T + cell.hidden_bias, hidden)
        expected.append(hidden)
    torch.testing.assert_close(decoder(CODE, STEPS), torch.stack(expected, dim=1))
    assert sum(parameter.numel() for parameter in decoder.parameters()) == 3 * (4 * 4 + 2 * 4)


def test_a_code_of_another_size_is_projected() -> None:
    decoder = InitialCode(4, 6)
    assert decoder(CODE, STEPS).shape == (3, STEPS, 6) and decoder.projection.weight.shape == (6, 4)


@pytest.mark.parametrize("kind", [RepeatedCode, InitialCode])
def test_gradients_equal_finite_differences(kind: type[RepeatedCode] | type[InitialCode]) -> None:
    decoder = kind(4, 4).double()
    assert torch.autograd.gradcheck(lambda code: decoder(code, 3), CODE.double().requires_grad_())
