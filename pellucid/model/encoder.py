"""Ids to Memory: a recurrent encoder, one-way or both ways, stacked.

B batch, S source positions, N directions, E embedding, H hidden units a direction, D memory (2H where directions are
concatenated).
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from pellucid.config import EncoderConfig, memory_size
from pellucid.data.vocabulary import UNK
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
        known = torch.where(source < len(self.table.weight), source, UNK)  # ids beyond tell a decoder what to copy
        inputs = Inputs(self.table.vectors(), known)
        finals: list[Float[Tensor, "B D"]] = []
        for layer in range(self.config.layers):
            cells = [stack[layer] for stack in (self.forward_cells, self.backward_cells) if len(stack)]
            ran = run(cells, inputs, lengths)
            states = nn.functional.dropout(self._merge(ran.states), self.config.dropout, self.training)
            inputs = Inputs(states)
            finals.append(self._merge(ran.last))
        return Memory(states, lengths, State(torch.stack(finals, dim=1)), source)

    def _merge(self, directions: Float[Tensor, "*shape N H"]) -> Float[Tensor, "*shape D"]:
        """The states of all directions as one."""
        match self.config.merge:
            case "concatenate":
                return directions.flatten(-2)
            case "sum":
                return directions.sum(dim=-2)
            case "product":
                return directions.prod(dim=-2)
