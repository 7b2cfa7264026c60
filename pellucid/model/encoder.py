"""Ids to Memory: a recurrent encoder, one-way or both ways, stacked.

B batch, S source positions, E embedding, H hidden units a direction, D memory (2H where directions are concatenated).
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from pellucid.config import EncoderConfig, memory_size
from pellucid.model.embedding import SymbolTable
from pellucid.model.memory import Memory, State
from pellucid.model.recurrence import Inputs, Stack, run


class Encoder(nn.Module):
    """h_s = merge(forward RNN over x_1 … x_s, backward RNN over x_n … x_s); layer l reads layer l − 1.

    Source: Schuster & Paliwal 1997; merging as in Bahdanau et al. 2015, section 3.2.
    """

    def __init__(self, config: EncoderConfig, vocabulary_size: int) -> None:
        """Sizes follow from the configuration and the number of source symbols."""
        super().__init__()
        self.config = config
        self.table = SymbolTable(config.embedding, vocabulary_size, config.embedding_size, config.dropout)
        inputs = [self.table.size] + [memory_size(config)] * (config.layers - 1)
        self.forward_cells = Stack(config.cell, inputs, config.hidden_size)
        self.backward_cells = Stack(config.cell, inputs if config.directions == "both" else [], config.hidden_size)

    def forward(self, source: Int[Tensor, "B S"], lengths: Int[Tensor, " B"]) -> Memory:
        """Read sources of the given lengths (each at least 1). What stands beyond a length changes nothing."""
        inside = (torch.arange(source.shape[1], device=source.device) < lengths[:, None])[:, :, None]
        inputs = Inputs(self.table.vectors(), source)
        finals: list[Float[Tensor, "B D"]] = []
        for layer in range(self.config.layers):
            states, final = self._layer(layer, inputs, lengths)
            # Contiguous, because which units dropout takes goes by the order in memory, and that by what computed.
            states = nn.functional.dropout(states.contiguous(), self.config.dropout, self.training)
            inputs = Inputs(states)
            finals.append(final)
        return Memory(states * inside, lengths, State(torch.stack(finals, dim=1)))

    def _layer(
        self, layer: int, inputs: Inputs, lengths: Int[Tensor, " B"]
    ) -> tuple[Float[Tensor, "B S D"], Float[Tensor, "B D"]]:
        """The states of one layer, and its final state: forward at the last position, backward at the first."""
        ahead, last = run(self.forward_cells[layer], inputs, lengths, backward=False)
        if self.config.directions == "forward":
            return ahead, last
        back, first = run(self.backward_cells[layer], inputs, lengths, backward=True)
        return self._merge(ahead, back), self._merge(last, first)

    def _merge(self, ahead: Float[Tensor, "*shape H"], back: Float[Tensor, "*shape H"]) -> Float[Tensor, "*shape D"]:
        """The states of both directions as one."""
        match self.config.merge:
            case "concatenate":
                return torch.cat([ahead, back], dim=-1)
            case "sum":
                return ahead + back
            case "product":
                return ahead * back
