"""Output layers.

H hidden, D memory, E embedding, V vocabulary.
"""

from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from pellucid.kernels.types import Head

Reads = Literal["state", "context", "state-and-context"]


class OutputLayer(nn.Module):
    """logits = W [h; c] + b, from the decoder's state h, the context c, or both. Bahdanau et al. 2015 use both."""

    kind: ClassVar[str] = "linear"

    def __init__(self, reads: Reads, hidden_size: int, memory_size: int, vocabulary_size: int) -> None:
        """The input's size follows from what is read."""
        super().__init__()
        self.reads: Reads = reads
        self.hidden_size = hidden_size
        self.projection = nn.Linear(size_read(reads, hidden_size, memory_size), vocabulary_size)

    def parts(self) -> Head:
        """The weights of the state and of the context apart, for a kernel."""
        return _apart(self.projection.weight, self.projection.bias, self.reads, self.hidden_size)

    def forward(
        self, hidden: Float[Tensor, "*shape H"], context: Float[Tensor, "*shape D"]
    ) -> Float[Tensor, "*shape V"]:
        """One score a symbol, before the softmax."""
        logits: Tensor = self.projection(joined(self.reads, hidden, context))
        return logits


class TiedOutputLayer(nn.Module):
    """logits = Y A [h; c] + b: the vectors Y of the target symbols score them too.

    A brings what is read to the size of a vector, and is not there where the sizes agree. The vectors belong to the
    table that feeds symbols back, and are given at each call. Source: Press & Wolf 2017.
    """

    kind: ClassVar[str] = "tied"

    def __init__(self, reads: Reads, sizes: tuple[int, int], vectors: Float[Tensor, "V E"]) -> None:
        """`sizes` are H and D; the vectors tell theirs and their number."""
        super().__init__()
        self.reads: Reads = reads
        self.hidden_size = sizes[0]
        count, own = vectors.shape
        size = size_read(reads, *sizes)
        self.adapter = nn.Linear(size, own, bias=False) if size != own else None
        self.bias = nn.Parameter(torch.zeros(count))

    def parts(self, vectors: Float[Tensor, "V E"]) -> Head:
        """The weights of the state and of the context apart, for a kernel: Y A."""
        weight = vectors if self.adapter is None else vectors @ self.adapter.weight
        return _apart(weight, self.bias, self.reads, self.hidden_size)

    def forward(
        self, hidden: Float[Tensor, "*shape H"], context: Float[Tensor, "*shape D"], vectors: Float[Tensor, "V E"]
    ) -> Float[Tensor, "*shape V"]:
        """One score a symbol, before the softmax."""
        read = joined(self.reads, hidden, context)
        return nn.functional.linear(read if self.adapter is None else self.adapter(read), vectors, self.bias)


class TokenClassificationHead(nn.Module):
    """logits_s = W h_s + b, from the encoder's state at each position."""

    def __init__(self, memory_size: int, vocabulary_size: int) -> None:
        """W: memory_size → vocabulary_size."""
        super().__init__()
        self.projection = nn.Linear(memory_size, vocabulary_size)

    def forward(self, states: Float[Tensor, "B S D"]) -> Float[Tensor, "B S V"]:
        """One score a tag, before the softmax."""
        logits: Tensor = self.projection(states)
        return logits


def size_read(reads: Reads, hidden_size: int, memory_size: int) -> int:
    """Return the size of what is read of a state and a context."""
    return {"state": hidden_size, "context": memory_size, "state-and-context": hidden_size + memory_size}[reads]


def joined(reads: Reads, hidden: Float[Tensor, "*shape H"], context: Float[Tensor, "*shape D"]) -> Tensor:
    """Return the state, the context, or both concatenated."""
    match reads:
        case "state":
            return hidden
        case "context":
            return context
        case "state-and-context":
            return torch.cat([hidden, context], dim=-1)


def _apart(weight: Float[Tensor, "V N"], bias: Float[Tensor, " V"], reads: Reads, hidden_size: int) -> Head:
    """The weights of the state and of the context; what is not read has no rows."""
    none, size = weight.new_zeros(0, 0), hidden_size if reads != "context" else 0
    return Head(weight[:, :size] if size else none, weight[:, size:] if reads != "state" else none, bias)
