"""Decoders that read the source through one vector, the code: no attention, and no symbol fed back.

B batch, T target positions, D code, H hidden units. Given the code, the output of a step is independent of the outputs
of all other steps.
"""

import torch
from torch import Tensor, nn

from pellucid.model.cells import RecurrentCell
from pellucid.model.recurrence import InputVectors, run_rnn
from pellucid.shapes import Float


class RepeatedCode(nn.Module):
    """s_t = GRU(code, s_{t−1}) from s_0 = 0: the code is the input of every step.

    References:
        Cho et al. 2014, section 2.2, without the previous symbol as an input.
    """

    def __init__(self, code_size: int, hidden_size: int) -> None:
        """Build the GRU.

        Args:
            code_size: D.
            hidden_size: H.
        """
        super().__init__()
        self.cell = RecurrentCell("gru", code_size, hidden_size)

    def forward(self, code: Float[Tensor, "B D"], steps: int) -> Float[Tensor, "B T H"]:
        """Return the hidden states of all steps.

        Args:
            code: Code of each source.
            steps: T, the number of steps to take.
        """
        symbols = torch.arange(len(code))[:, None].expand(-1, steps)
        states: Tensor = run_rnn([self.cell], InputVectors(code, symbols), torch.full((len(code),), steps)).states
        return states[:, :, 0]


class InitialCode(nn.Module):
    """s_t = GRU(nothing, s_{t−1}) from s_0 = code, or W code if their sizes differ: the code is read once.

    References:
        Sutskever et al. 2014, section 2, without the previous symbol as an input.
    """

    def __init__(self, code_size: int, hidden_size: int) -> None:
        """Build the GRU, and W if the sizes differ.

        Args:
            code_size: D.
            hidden_size: H.
        """
        super().__init__()
        same_size = code_size == hidden_size
        self.projection = nn.Identity() if same_size else nn.Linear(code_size, hidden_size, bias=False)
        self.cell = RecurrentCell("gru", 0, hidden_size)
        self.cell.input_weight.requires_grad_(False)  # it has no numbers

    def forward(self, code: Float[Tensor, "B D"], steps: int) -> Float[Tensor, "B T H"]:
        """Return the hidden states of all steps.

        Args:
            code: Code of each source.
            steps: T, the number of steps to take.
        """
        state = self.cell.initial_state(self.projection(code))
        projected_input = self.cell.input_bias.expand(len(code), -1)
        states: list[Tensor] = []
        for _ in range(steps):
            state = self.cell.step(projected_input, state)
            states.append(state.hidden)
        return torch.stack(states, dim=1)
