"""Recurrent cells with the conventions of TensorFlow 0.11, and how their weights begin.

B batch, E input size, H hidden, Z state: H of a GRU, 2 H of an LSTM.
"""

import math
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

CellKind = Literal["gru", "lstm"]


class TensorFlowGRU(nn.Module):
    """[r, u] = σ(W [x; h] + b), b from 1;  c = tanh(W_c [x; r ⊙ h] + b_c);  h' = u ⊙ h + (1 − u) ⊙ c.

    The reset gate acts before the product, and the update gate says what is kept (Cho et al. 2014); in PyTorch, and in
    Pellucid's own cell, the reset gate acts after it.
    """

    def __init__(self, input_size: int, hidden_size: int) -> None:
        """Weights of U(±√(3 / (E + H)))."""
        super().__init__()
        self.hidden_size = self.state_size = hidden_size
        self.gates = linear(input_size + hidden_size, 2 * hidden_size, 1.0)
        self.candidate = linear(input_size + hidden_size, hidden_size)

    def forward(
        self, inputs: Float[Tensor, "B E"], state: Float[Tensor, "B Z"]
    ) -> tuple[Float[Tensor, "B H"], Float[Tensor, "B Z"]]:
        """Output and new state, which are the same here."""
        reset, update = self.gates(torch.cat([inputs, state], dim=1)).sigmoid().chunk(2, dim=1)
        candidate = self.candidate(torch.cat([inputs, reset * state], dim=1)).tanh()
        new = update * state + (1 - update) * candidate
        return new, new


class TensorFlowLSTM(nn.Module):
    """[i, j, f, o] = W [x; h] + b;  c' = σ(f + 1) ⊙ c + σ(i) ⊙ tanh(j);  h' = σ(o) ⊙ tanh(c'). No peepholes.

    The state is [c; h], and all of it passes from the encoder to the decoder, and asks the attention.
    """

    def __init__(self, input_size: int, hidden_size: int) -> None:
        """Weights of U(±√(3 / (E + H))), biases from 0."""
        super().__init__()
        self.hidden_size, self.state_size = hidden_size, 2 * hidden_size
        self.gates = linear(input_size + hidden_size, 4 * hidden_size)

    def forward(
        self, inputs: Float[Tensor, "B E"], state: Float[Tensor, "B Z"]
    ) -> tuple[Float[Tensor, "B H"], Float[Tensor, "B Z"]]:
        """Output h' and new state [c'; h']."""
        cell, hidden = state.chunk(2, dim=1)
        enter, new, keep, leave = self.gates(torch.cat([inputs, hidden], dim=1)).chunk(4, dim=1)
        cell = (keep + 1).sigmoid() * cell + enter.sigmoid() * new.tanh()
        hidden = leave.sigmoid() * cell.tanh()
        return hidden, torch.cat([cell, hidden], dim=1)


Cell = TensorFlowGRU | TensorFlowLSTM


def cell_of(kind: CellKind, input_size: int, hidden_size: int) -> Cell:
    """A new cell."""
    match kind:
        case "gru":
            return TensorFlowGRU(input_size, hidden_size)
        case "lstm":
            return TensorFlowLSTM(input_size, hidden_size)


def linear(inputs: int, outputs: int, bias: float = 0.0) -> nn.Linear:
    """W x + b, W of uniform unit scaling, b from one value."""
    layer = nn.Linear(inputs, outputs)
    unit_scaling(layer.weight, inputs)
    nn.init.constant_(layer.bias, bias)
    return layer


def unit_scaling(weights: Tensor, inputs: int) -> None:
    """U(±√(3 / n)) for n inputs: the size of what passes through stays (TensorFlow's uniform_unit_scaling).

    A vector has one input by its rule, so that v and the softmax's bias are of U(±1.7321).
    """
    bound = math.sqrt(3 / inputs)
    nn.init.uniform_(weights, -bound, bound)
