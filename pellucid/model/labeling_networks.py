"""Networks without autoregressive decoding: a tag for each position, one class, both, one position.

No label depends on another, so there is no search. B batch, S source positions, T labels of each source, D
memory, H hidden units, V vocabulary, R attention hops.
"""

from abc import abstractmethod
from typing import Literal

import torch
from torch import Tensor, nn

from pellucid.data.batches import Batch
from pellucid.data.vocabulary import BOS, NUM_SPECIAL
from pellucid.model.attention import Attention
from pellucid.model.decoder import Decoder
from pellucid.model.encoder import Encoder
from pellucid.model.memory import Memory, NetworkOutput
from pellucid.model.network import Network
from pellucid.model.output_layers import ClassAndTagHead, TokenClassificationHead
from pellucid.shapes import Float


class LabelingNetwork(Network):
    """Base of networks that give all labels at once: no label depends on another, nor on the targets."""

    def forward(self, batch: Batch) -> NetworkOutput:
        """Return the logits of all labels.

        Args:
            batch: Sources; targets are not read. Without rows, the output has none.
        """
        if not len(batch.source):
            return self._empty_output(batch)
        return self.forward_memory(self.encoder(batch.source, batch.source_lengths, batch.characters))

    @abstractmethod
    def forward_memory(self, memory: Memory) -> NetworkOutput:
        """Return the logits of all labels over the target vocabulary, and their attention weights if there are any.

        Args:
            memory: Encoder output.
        """


class Tagger(LabelingNetwork):
    """logits_s = W h_s + b: each position is tagged from its own state.

    References:
        Graves & Schmidhuber 2005.
    """

    def __init__(self, encoder: Encoder, head: TokenClassificationHead) -> None:
        """Store both parts.

        Args:
            encoder: The encoder.
            head: The output layer.
        """
        super().__init__(encoder)
        self.head = head

    @property
    def vocabulary_size(self) -> int:
        """Return V, the number of tags, special symbols included."""
        return self.head.projection.out_features

    def forward_memory(self, memory: Memory) -> NetworkOutput:
        """Return one label for each position, without attention weights.

        Args:
            memory: Encoder output.
        """
        states = memory.states[:, : int(memory.lengths.max())]
        return NetworkOutput(self.head(states), states.new_zeros(*states.shape[:2], 0), memory.final)


class Classifier(LabelingNetwork):
    """A decoder without feedback takes R steps; the class is predicted from the last: logits = W [s_R; c_R] + b.

    References:
        Sønderby et al. 2015, section 2.2, which reads the last context alone
        (`decoder.output_layer_inputs = "context"`).
    """

    def __init__(self, encoder: Encoder, decoder: Decoder, steps: int) -> None:
        """Store both parts.

        Args:
            encoder: The encoder.
            decoder: The decoder, whose embedding has size 0.
            steps: R, the number of attention hops.
        """
        super().__init__(encoder)
        self.decoder = decoder
        self.steps = steps

    @property
    def vocabulary_size(self) -> int:
        """Return V, the number of classes, special symbols included."""
        return self.decoder.table.weight.shape[0]

    def forward_memory(self, memory: Memory) -> NetworkOutput:
        """Return one label with the weights of the last hop; `hop_weights` holds those of all hops.

        Args:
            memory: Encoder output.
        """
        symbols = torch.full((len(memory.lengths), self.steps), BOS, device=memory.states.device)
        unrolled = self.decoder.unroll(symbols, self.decoder.init_state(memory), self.decoder.build_cache(memory))
        return NetworkOutput(
            unrolled.logits[:, -1:], unrolled.weights[:, -1:], unrolled.state, hop_weights=unrolled.weights
        )


class TaggingClassifier(LabelingNetwork):
    """One attention step from a query gives the class, and the state of each position its tag.

        q = tanh(W_0 m + b_0),  c = Σ_s α_s h_s,  logits = W [q; c] + b,  logits_s = W_t h_s + b_t

    m is the encoder's final or mean state (or q = 0).

    References:
        Liu & Lane 2016, "Attention-Based Recurrent Neural Network Models for Joint Intent Detection and Slot Filling",
            section 3.2, of which the tags are predicted without attention here.
    """

    def __init__(self, encoder: Encoder, query: "Query", attention: Attention, head: ClassAndTagHead) -> None:
        """Store all parts.

        Args:
            encoder: The encoder.
            query: The module that computes q.
            attention: The attention.
            head: The output layers.
        """
        super().__init__(encoder)
        self.query = query
        self.attention = attention
        self.head = head

    @property
    def vocabulary_size(self) -> int:
        """Return V, the number of classes and tags, special symbols included."""
        return self.head.tags.projection.out_features

    def forward_memory(self, memory: Memory) -> NetworkOutput:
        """Return the class with its attention weights, then one tag for each position, which has none.

        Args:
            memory: Encoder output.
        """
        query = self.query(memory)
        attention = self.attention(
            query, self.attention.build_cache(memory), self.attention.initial_attention_state(memory)
        )
        states = memory.states[:, : int(memory.lengths.max())]
        logits = self.head(query, attention.context, states)
        return NetworkOutput(logits, attention.weights[:, None], memory.final)


class Pointer(LabelingNetwork):
    """p(s) = α_s of one attention step, from q = tanh(W m + b), m the encoder's final or mean state (or q = 0).

    References:
        Vinyals et al. 2015, section 2.3, with one step.
    """

    def __init__(self, encoder: Encoder, query: "Query", attention: Attention, positions: int) -> None:
        """Store all parts.

        Args:
            encoder: The encoder.
            query: The module that computes q.
            attention: The attention.
            positions: Largest number of source positions.
        """
        super().__init__(encoder)
        self.query = query
        self.attention = attention
        self.positions = positions

    @property
    def vocabulary_size(self) -> int:
        """Return V, the number of special symbols and positions."""
        return NUM_SPECIAL + self.positions

    def forward_memory(self, memory: Memory) -> NetworkOutput:
        """Return log α as logits of the positions, −∞ for the special symbols and beyond a row's length.

        A weight that rounds to zero is replaced by the least positive number.

        Args:
            memory: Encoder output.
        """
        attention = self.attention(
            self.query(memory), self.attention.build_cache(memory), self.attention.initial_attention_state(memory)
        )
        least = torch.finfo(attention.weights.dtype).tiny
        log_weights = attention.weights.clamp(min=least).log().masked_fill(~memory.length_mask(), -torch.inf)
        logits = nn.functional.pad(log_weights, (NUM_SPECIAL, 0), value=-torch.inf)[:, None]
        return NetworkOutput(logits, attention.weights[:, None], memory.final)


class Query(nn.Module):
    """Query q of the only attention step of a pointer, or of a network that predicts a class and tags.

    It is 0, or tanh(W m + b) of the final or the mean encoder state m.
    """

    def __init__(self, init_hidden: Literal["zero", "final", "mean"], memory_size: int, hidden_size: int) -> None:
        """Build W and b, unless the query is zero.

        Args:
            init_hidden: Encoder state m: the final state of the top layer, the mean over positions, or none ("zero").
            memory_size: D.
            hidden_size: H.
        """
        super().__init__()
        self.init_hidden: Literal["zero", "final", "mean"] = init_hidden
        self.projection = nn.Linear(memory_size, hidden_size) if init_hidden != "zero" else None
        self.hidden_size = hidden_size

    def forward(self, memory: Memory) -> Float[Tensor, "B H"]:
        """Return one query for each source.

        Args:
            memory: Encoder output.
        """
        if self.projection is None:
            return memory.states.new_zeros(len(memory.lengths), self.hidden_size)
        summary = memory.summary("mean" if self.init_hidden == "mean" else "final")
        return torch.tanh(self.projection(summary).to(summary.dtype))
