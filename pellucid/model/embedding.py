"""Ids to vectors: learnt, frozen, one-hot, or of no size, where symbols are not to be read."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from pellucid.config import Feedback


class SymbolTable(nn.Module):
    """One vector a symbol. Frozen tables are random vectors that stay; one-hot tables are the identity."""

    weight: Tensor

    def __init__(self, kind: Feedback, vocabulary_size: int, embedding_size: int, dropout: float) -> None:
        """Vectors start as N(0, 1/√E), so that each has about unit length."""
        super().__init__()
        self.dropout = dropout
        if kind == "one-hot":
            self.register_buffer("weight", torch.eye(vocabulary_size), persistent=False)
        elif kind == "none":
            self.register_buffer("weight", torch.empty(vocabulary_size, 0), persistent=False)
        else:
            weight = torch.randn(vocabulary_size, embedding_size) * embedding_size**-0.5
            if kind == "learnt":
                self.weight = nn.Parameter(weight)
            else:
                self.register_buffer("weight", weight)

    @property
    def size(self) -> int:
        """E, which for a one-hot table is V, and 0 where there is none."""
        return self.weight.shape[1]

    def vectors(self) -> Float[Tensor, "V E"]:
        """Every symbol's vector, with dropout in training.

        Dropout falls on the table, not on positions: within one batch a symbol misses the same units everywhere it
        stands (Gal & Ghahramani 2016, section 4.2, for units instead of whole words). That regularises as well here,
        costs V × E instead of B × S × E, and lets a kernel project the table once instead of every position.
        """
        return nn.functional.dropout(self.weight, self.dropout, self.training)

    def forward(self, ids: Int[Tensor, "*shape"]) -> Float[Tensor, "*shape E"]:
        """The vectors of ids."""
        return nn.functional.embedding(ids, self.vectors())
