"""Ids to vectors: learned, frozen, one-hot, or of no size, where symbols are not to be read.

B sequences, E embedding, V vocabulary, N symbols.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from pellucid.config.settings import Feedback
from pellucid.model.recurrence import Inputs


class Embedding(nn.Module):
    """One vector a symbol. Frozen tables are random vectors that stay; one-hot tables are the identity."""

    weight: Tensor

    def __init__(
        self, kind: Feedback, vocabulary_size: int, embedding_size: int, dropout: float, symbol_dropout: float = 0.0
    ) -> None:
        """Vectors start as N(0, 1/√E), so that each has about unit length."""
        super().__init__()
        self.dropout = dropout
        self.symbol_dropout = symbol_dropout
        if kind == "one-hot":
            identity = torch.zeros(vocabulary_size, vocabulary_size).fill_diagonal_(1.0)
            self.register_buffer("weight", identity, persistent=False)
        elif kind == "none":
            self.register_buffer("weight", torch.empty(vocabulary_size, 0), persistent=False)
        else:
            weight = torch.empty(vocabulary_size, embedding_size)
            if not weight.is_meta:  # a table that has a size alone draws no vectors
                weight.normal_().mul_(embedding_size**-0.5)
            if kind == "learned":
                self.weight = nn.Parameter(weight)
            else:
                self.register_buffer("weight", weight)

    @property
    def size(self) -> int:
        """E, which for a one-hot table is V, and 0 where there is none."""
        return self.weight.shape[1]

    def vectors(self) -> Float[Tensor, "V E"]:
        """Return every symbol's vector, with dropout in training.

        Dropout falls on the table, not on positions: within one batch a symbol lacks the same units at all its
        positions (Gal & Ghahramani 2016, section 4.2, for units instead of whole words). That regularises as well here,
        costs V × E instead of B × S × E, and lets a kernel project the table once instead of every position.
        """
        return nn.functional.dropout(self.weight, self.dropout, self.training)

    def draw_dropped_tokens(self, rows: int) -> Bool[Tensor, "B V"] | None:
        """Return, in training, the symbols that each of `rows` sequences drops; None where none is dropped."""
        if not (self.training and self.symbol_dropout):
            return None
        return torch.rand(rows, len(self.weight), device=self.weight.device) < self.symbol_dropout

    def embed(self, ids: Int[Tensor, "B *steps"], dropped: Bool[Tensor, "B V"] | None) -> Inputs:
        """Return the table and the rows of it that ids name, those of dropped symbols being zero.

        A dropped symbol reads one more row, of zeros, so that a kernel projects the table once all the same. Source:
        Gal & Ghahramani 2016, section 4.2, with a draw for each sequence.
        """
        vectors = self.vectors()
        if dropped is None:
            return Inputs(vectors, ids)
        gone = dropped.gather(1, ids.view(len(ids), -1)).view_as(ids)
        widened = torch.cat([vectors / (1 - self.symbol_dropout), vectors.new_zeros(1, self.size)])
        return Inputs(widened, ids.masked_fill(gone, len(vectors)))

    def load_pretrained(self, ids: Sequence[int], vectors: Float[Tensor, "N E"]) -> None:
        """Replace the vectors of these symbols."""
        with torch.no_grad():
            self.weight[list(ids)] = vectors.to(self.weight)

    def forward(self, ids: Int[Tensor, "*shape"]) -> Float[Tensor, "*shape E"]:
        """Return the vectors of ids."""
        return nn.functional.embedding(ids, self.vectors())
