"""Networks without autoregressive decoding: a tag for each position, one class, one position.

No answer waits for another, so there is nothing to search. B batch, S source positions, T answers of each source, D
memory, H hidden units, V vocabulary, R looks.
"""

from abc import abstractmethod
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from pellucid.data.batches import Batch
from pellucid.data.vocabulary import BOS, NUM_SPECIAL
from pellucid.model.attention import Attention
from pellucid.model.decoder import Decoder
from pellucid.model.encoder import Encoder
from pellucid.model.encoder_decoder import Network
from pellucid.model.heads import TokenClassificationHead
from pellucid.model.memory import Memory, Seq2SeqOutput


class EncoderOnlyModel(Network):
    """A network whose answers do not depend on each other."""

    def forward(self, batch: Batch) -> Seq2SeqOutput:
        """The answers' logits; the targets are not looked at."""
        return self.answer(self.encoder(batch.source, batch.source_lengths))

    @abstractmethod
    def answer(self, memory: Memory) -> Seq2SeqOutput:
        """The logits of all answers to what was read, in the target vocabulary, and where each was looked for."""


class Tagger(EncoderOnlyModel):
    """logits_s = W h_s + b: each position is tagged from its own state. Graves & Schmidhuber 2005."""

    def __init__(self, encoder: Encoder, head: TokenClassificationHead) -> None:
        """Hold both parts."""
        super().__init__(encoder)
        self.head = head

    @property
    def vocabulary_size(self) -> int:
        """V, how many tags there are, the special ones included."""
        return self.head.projection.out_features

    def answer(self, memory: Memory) -> Seq2SeqOutput:
        """An answer for each position; no weights, for each looks at its own state."""
        states = memory.states[:, : int(memory.lengths.max())]
        return Seq2SeqOutput(self.head(states), states.new_zeros(*states.shape[:2], 0), memory.final)


class Classifier(EncoderOnlyModel):
    """A decoder that feeds nothing back looks and steps R times; the class is read where it has come to.

    logits = W [s_R; c_R] + b. Source: Sønderby et al. 2015, section 2.2, which reads the last context alone
    (`decoder.output = "context"`).
    """

    def __init__(self, encoder: Encoder, decoder: Decoder, steps: int) -> None:
        """`steps` is R; the decoder's symbols have vectors of no size."""
        super().__init__(encoder)
        self.decoder = decoder
        self.steps = steps

    @property
    def vocabulary_size(self) -> int:
        """V, how many classes there are, the special symbols included."""
        return self.decoder.table.weight.shape[0]

    def answer(self, memory: Memory) -> Seq2SeqOutput:
        """One answer, and the weights of the last look; all of them in `looks`."""
        symbols = torch.full((len(memory.lengths), self.steps), BOS, device=memory.states.device)
        made = self.decoder.unroll(symbols, self.decoder.init_hidden(memory), self.decoder.prepare(memory))
        return Seq2SeqOutput(made.logits[:, -1:], made.weights[:, -1:], made.state, looks=made.weights)


class Pointer(EncoderOnlyModel):
    """p(s) = α_s of one look, from q = tanh(W m + b), m the encoder's final or mean state (or q = 0).

    Source: Vinyals et al. 2015, section 2.3, with one step.
    """

    def __init__(self, encoder: Encoder, query: "Query", attention: Attention, positions: int) -> None:
        """`positions` is how many there may be."""
        super().__init__(encoder)
        self.query = query
        self.attention = attention
        self.positions = positions

    @property
    def vocabulary_size(self) -> int:
        """V: the special symbols, then all positions that may be."""
        return NUM_SPECIAL + self.positions

    def answer(self, memory: Memory) -> Seq2SeqOutput:
        """ln α as logits of the positions there are, −∞ for the special symbols and beyond a row's length.

        A weight that rounds to zero is replaced by the least positive number.
        """
        attended = self.attention(
            self.query(memory), self.attention.prepare(memory), self.attention.initial_state(memory)
        )
        least = torch.finfo(attended.weights.dtype).tiny
        likely = attended.weights.clamp(min=least).log().masked_fill(~memory.mask(), -torch.inf)
        logits = nn.functional.pad(likely, (NUM_SPECIAL, 0), value=-torch.inf)[:, None]
        return Seq2SeqOutput(logits, attended.weights[:, None], memory.final)


class Query(nn.Module):
    """The query of a pointer: a decoder's first state without layers and cells."""

    def __init__(self, start: Literal["zero", "final", "mean"], memory_size: int, hidden_size: int) -> None:
        """W and b, unless the query is zero."""
        super().__init__()
        self.kind: Literal["zero", "final", "mean"] = start
        self.projection = nn.Linear(memory_size, hidden_size) if start != "zero" else None
        self.hidden_size = hidden_size

    def forward(self, memory: Memory) -> Float[Tensor, "B H"]:
        """One query a source."""
        if self.projection is None:
            return memory.states.new_zeros(len(memory.lengths), self.hidden_size)
        if self.kind == "mean":
            summary = memory.states.sum(dim=1) / memory.lengths[:, None]
        else:
            summary = memory.final.hidden[:, -1]
        return torch.tanh(self.projection(summary).to(summary.dtype))
