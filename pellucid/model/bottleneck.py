"""Decoders that see the source through one vector, the code: no attention, and no symbol fed back.

B batch, T target positions, D code, H hidden units. What is written at one step is, given the code, independent of
what is written at all others.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from pellucid.model.cells import RecurrentCell
from pellucid.model.recurrence import Inputs, run_rnn


class RepeatedCode(nn.Module):
    """h_t = GRU(code, h_{t−1}) from h_0 = 0: the code is the input of every step.

    Source: Cho et al. 2014, section 2.2, without the symbol written last.
    """

    def __init__(self, code_size: int, hidden_size: int) -> None:
        """The GRU reads the code and keeps `hidden_size` units."""
        super().__init__()
        self.cell = RecurrentCell("gru", code_size, hidden_size)

    def forward(self, code: Float[Tensor, "B D"], steps: int) -> Float[Tensor, "B T H"]:
        """Return the states of all steps."""
        everywhere = torch.arange(len(code))[:, None].expand(-1, steps)
        return run_rnn([self.cell], Inputs(code, everywhere), torch.full((len(code),), steps)).states[:, :, 0]


class InitialCode(nn.Module):
    """h_t = GRU(nothing, h_{t−1}) from h_0 = code, or W code where their sizes differ: the code is seen once.

    Source: Sutskever et al. 2014, section 2, without the symbol written last.
    """

    def __init__(self, code_size: int, hidden_size: int) -> None:
        """There is a W only where it is needed."""
        super().__init__()
        fits = code_size == hidden_size
        self.projection = nn.Identity() if fits else nn.Linear(code_size, hidden_size, bias=False)
        self.cell = RecurrentCell("gru", 0, hidden_size)
        self.cell.input_weight.requires_grad_(False)  # it has no numbers

    def forward(self, code: Float[Tensor, "B D"], steps: int) -> Float[Tensor, "B T H"]:
        """Return the states of all steps."""
        state = self.cell.initial_state(self.projection(code))
        unmoved = self.cell.input_bias.expand(len(code), -1)
        states: list[Tensor] = []
        for _ in range(steps):
            state = self.cell.step(unmoved, state)
            states.append(state.hidden)
        return torch.stack(states, dim=1)
