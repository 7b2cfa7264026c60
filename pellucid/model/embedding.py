"""Ids to vectors: learned, frozen, one-hot, or of size 0, where symbols are not read.

B sequences, E embedding, V vocabulary, N symbols.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from pellucid.config.settings import TargetEmbedding
from pellucid.model.recurrence import InputVectors
from pellucid.shapes import Bool, Float, Int

MIN_GATHERED_TABLE = 1000
"""Number of symbols above which a batch with fewer positions reads only the rows of its own symbols."""


class Embedding(nn.Module):
    """One vector for each symbol. Frozen tables are random and not trained; one-hot tables are the identity.

    With "none" the vectors have size 0: symbols are not read.
    """

    weight: Tensor

    def __init__(
        self,
        kind: TargetEmbedding,
        vocabulary_size: int,
        embedding_size: int,
        dropout: float,
        embedding_dropout: float = 0.0,
    ) -> None:
        """Initialize vectors from a normal distribution with standard deviation 1/√E: each has about unit length.

        Args:
            kind: "learned", "frozen", "one-hot" or "none".
            vocabulary_size: V.
            embedding_size: E; not read for one-hot tables and "none".
            dropout: Probability of dropping a unit of a vector, in training mode.
            embedding_dropout: Probability that a sequence drops a symbol at all its positions, in training mode;
                default 0.
        """
        super().__init__()
        self.dropout = dropout
        self.embedding_dropout = embedding_dropout
        if kind == "one-hot":
            identity = torch.zeros(vocabulary_size, vocabulary_size).fill_diagonal_(1.0)
            self.register_buffer("weight", identity, persistent=False)
        elif kind == "none":
            self.register_buffer("weight", torch.empty(vocabulary_size, 0), persistent=False)
        else:
            weight = torch.empty(vocabulary_size, embedding_size)
            if not weight.is_meta:  # a table on the meta device has a size only
                weight.normal_().mul_(embedding_size**-0.5)
            if kind == "learned":
                self.weight = nn.Parameter(weight)
            else:
                self.register_buffer("weight", weight)

    @property
    def size(self) -> int:
        """Return E, which is V for a one-hot table, and 0 without vectors."""
        return self.weight.shape[1]

    def vectors(self) -> Float[Tensor, "V E"]:
        """Return every symbol's vector, with dropout in training.

        Dropout is applied to the table, not to positions: within one batch a symbol lacks the same units at all its
        positions (Gal & Ghahramani 2016, section 4.2, for units instead of whole words). That regularizes as well here,
        costs V × E instead of B × S × E, and lets a kernel project the table once instead of every position.
        """
        return nn.functional.dropout(self.weight, self.dropout, self.training)

    def draw_dropped_symbols(self, rows: int) -> Bool[Tensor, "B V"] | None:
        """Draw the symbols that each sequence drops (True); None outside training mode and without embedding dropout.

        Args:
            rows: Number of sequences.
        """
        if not (self.training and self.embedding_dropout):
            return None
        return torch.rand(rows, len(self.weight), device=self.weight.device) < self.embedding_dropout

    def embed(self, ids: Int[Tensor, "B *steps"], dropped: Bool[Tensor, "B V"] | None) -> InputVectors:
        """Return a table of vectors and the row of each id, so that a kernel can project the table only once.

        The table has the vectors of all symbols; or, on a CPU, those of the distinct ids alone, if there are more than
        `MIN_GATHERED_TABLE` symbols and fewer positions than symbols. Dropout is applied to the rows of the table.

        If symbols are dropped, the others are divided by 1 − the probability, and dropped ones read an added zero row.

        Args:
            ids: Ids of the symbols.
            dropped: Symbols that each sequence drops; None if there is none.

        References:
            Gal & Ghahramani 2016, section 4.2, with one draw for each sequence.
        """
        if ids.device.type == "cpu" and len(self.weight) > max(MIN_GATHERED_TABLE, ids.numel()):
            used, rows = torch.unique(ids, return_inverse=True)
            vectors = nn.functional.dropout(nn.functional.embedding(used, self.weight), self.dropout, self.training)
        else:
            vectors = self.vectors()
            rows = ids
        if dropped is None:
            return InputVectors(vectors, rows)
        is_dropped = dropped.gather(1, ids.view(len(ids), -1)).view_as(ids)
        extended_table = torch.cat([vectors / (1 - self.embedding_dropout), vectors.new_zeros(1, self.size)])
        return InputVectors(extended_table, rows.masked_fill(is_dropped, len(vectors)))

    def load_pretrained(self, ids: Sequence[int], vectors: Float[Tensor, "N E"]) -> None:
        """Replace the vectors of some symbols, in place.

        Args:
            ids: Ids of the symbols.
            vectors: One vector for each id.
        """
        with torch.no_grad():
            self.weight[list(ids)] = vectors.to(self.weight)

    def forward(self, ids: Int[Tensor, "*shape"]) -> Float[Tensor, "*shape E"]:
        """Return the vectors of ids, in training mode with dropout of units (not of symbols).

        Args:
            ids: Ids of any shape.
        """
        return nn.functional.embedding(ids, self.vectors())
