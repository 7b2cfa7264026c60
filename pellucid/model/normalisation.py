"""Layer normalisation: inside recurrent cells, or of what a layer gives.

B batch, E input, H hidden units, G all gates (3H or 4H).
"""

from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from pellucid.config import Cell, LayerNormalisation
from pellucid.model.dropout import SILENCE, CellNoise
from pellucid.model.recurrence import GATES, LayerState, RecurrentCell, gru_step, lstm_step


class NormalisedCell(RecurrentCell):
    """A cell whose sums are normalised, LN(x; g) = g ⊙ (x − mean) / deviation, over the units of all gates together.

        GRU    W x and U h become LN(W x; g) and LN(U h; g'): over r and z together, and over n; biases are added then
        LSTM   the same over all four gates, and h' = o ⊙ tanh(LN(c'; g'') + b'')

    Source: Ba et al. 2016, section 3.1 and the supplement's equations 20 to 22 and 25 to 28.
    """

    kind: ClassVar[str] = "normalized"

    def __init__(self, cell: Cell, input_size: int, hidden_size: int) -> None:
        """Gains of one beside a cell's own parameters."""
        super().__init__(cell, input_size, hidden_size)
        rows = GATES[cell] * hidden_size
        self.groups = [2 * hidden_size, hidden_size] if cell == "gru" else [rows]
        self.input_gain, self.hidden_gain = nn.Parameter(torch.ones(rows)), nn.Parameter(torch.ones(rows))
        self.leaving = nn.LayerNorm(hidden_size) if cell == "lstm" else None

    def project(self, inputs: Float[Tensor, "*shape E"]) -> Float[Tensor, "*shape G"]:
        """W x: the bias comes after normalisation."""
        return nn.functional.linear(inputs, self.input_weight)

    def advance(self, projected: Float[Tensor, "B G"], state: LayerState, noise: CellNoise = SILENCE) -> LayerState:
        """One step from the projected input (all gates) and the state before."""
        entered, recurrent = self.sums(projected, state.hidden, noise)
        if state.cell is None or self.leaving is None:
            return LayerState(gru_step(entered, recurrent, state.hidden), None)
        leave = (entered + recurrent)[:, 3 * self.hidden_size :]
        _, cell = lstm_step(entered + recurrent, state.cell)
        return LayerState(torch.sigmoid(leave) * torch.tanh(self.leaving(cell)), cell)

    def sums(
        self, projected: Float[Tensor, "B G"], hidden: Float[Tensor, "B H"], noise: CellNoise = SILENCE
    ) -> tuple[Float[Tensor, "B G"], Float[Tensor, "B G"]]:
        """What the gates are made of, normalised, the biases added."""
        entered = self._normalised(projected) * self.input_gain + self.input_bias
        recurrent = self._normalised(self.recurrent(hidden, noise, None)) * self.hidden_gain + self.hidden_bias
        return entered, recurrent

    def _normalised(self, sums: Float[Tensor, "B G"]) -> Float[Tensor, "B G"]:
        """Mean 0 and variance 1 within each group of gates."""
        parts = torch.split(sums, self.groups, dim=-1)
        return torch.cat([nn.functional.layer_norm(part, part.shape[-1:]) for part in parts], dim=-1)


def cell_kind(normalisation: LayerNormalisation) -> type[RecurrentCell]:
    """The cells that a setting asks for."""
    return NormalisedCell if normalisation == "cells" else RecurrentCell


def output_normalisations(normalisation: LayerNormalisation, layers: int, size: int) -> nn.ModuleList:
    """One for the outputs of each layer: none of them does anything unless it is outputs that are normalised."""
    chosen = normalisation == "outputs"
    return nn.ModuleList(nn.LayerNorm(size) if chosen else nn.Identity() for _ in range(layers))
