"""States to answers."""

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from pellucid.kernels.operands import Head


class NextSymbol(nn.Module):
    """logits = W [h; c] + b, from the decoder's state h, the context c, or both. Bahdanau et al. 2015 use both."""

    def __init__(
        self,
        reads: Literal["state", "context", "state-and-context"],
        hidden_size: int,
        memory_size: int,
        vocabulary_size: int,
    ) -> None:
        """The input's size follows from what is read."""
        super().__init__()
        self.reads = reads
        self.hidden_size = hidden_size
        size = {"state": hidden_size, "context": memory_size, "state-and-context": hidden_size + memory_size}[reads]
        self.projection = nn.Linear(size, vocabulary_size)

    def parts(self) -> Head:
        """The weights of the state and of the context apart, for a kernel."""
        weight, size = self.projection.weight, self.hidden_size if self.reads != "context" else 0
        none = weight.new_zeros(0, 0)
        context = weight[:, size:] if self.reads != "state" else none
        return Head(weight[:, :size] if size else none, context, self.projection.bias)

    def forward(
        self, hidden: Float[Tensor, "*shape H"], context: Float[Tensor, "*shape D"]
    ) -> Float[Tensor, "*shape V"]:
        """One score a symbol, before the softmax."""
        match self.reads:
            case "state":
                logits: Tensor = self.projection(hidden)
            case "context":
                logits = self.projection(context)
            case "state-and-context":
                logits = self.projection(torch.cat([hidden, context], dim=-1))
        return logits
