"""The two networks of 2016: an encoder-decoder, and the same with TensorFlow's attention decoder.

B batch, S source positions, T target positions, E embedding, H hidden, Z state, M heads, V Spanish words.
"""

from typing import Literal, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from pellucid.recipes.spanish.attention import Attention, Features, Looked, attend_all, attend_words
from pellucid.recipes.spanish.cells import CellKind, cell_of, linear, unit_scaling
from pellucid.recipes.spanish.sentences import GO

KEPT = 0.5
"""The share of a cell's outputs that dropout leaves, in training."""


class Design(NamedTuple):
    """Which network: the author's, unless told otherwise."""

    decoder: Literal["attention", "plain"] = "attention"
    hidden: int = 300
    embedding: int = 300
    """The author's is as large as H; it need not be."""
    cell: CellKind = "gru"
    heads: int = 1
    padding: Literal["attended", "masked"] = "attended"
    initial_state_attention: bool = False
    """Whether the first step is given a look from the encoder's state in place of zeros."""


class Encoded(NamedTuple):
    """What the encoder leaves behind: its outputs, zero behind the end of a sentence, and its last relevant state."""

    outputs: Float[Tensor, "B S H"]
    state: Float[Tensor, "B Z"]
    lengths: Int[Tensor, " B"]


class Written(NamedTuple):
    """What a decoder writes, before the softmax; the weights of its looks, and the words it was given."""

    outputs: Float[Tensor, "B T H"]
    weights: Float[Tensor, "B T M S"]
    given: Int[Tensor, "B T"]


class Carried(NamedTuple):
    """What one step hands to the next; a plain decoder has no contexts."""

    state: Float[Tensor, "B Z"]
    looked: Looked


class Step(NamedTuple):
    """What one step comes to, with all that happens on the way."""

    merged: Float[Tensor, "B E"]
    cell_output: Float[Tensor, "B H"]
    output: Float[Tensor, "B H"]
    carried: Carried


class SpanishNetwork(nn.Module):
    """Embeddings, a one-way encoder, a decoder, and the softmax's weights: the post's "output projection"."""

    def __init__(self, design: Design, english: int, spanish: int) -> None:
        """So many words of either language; parameters are drawn from PyTorch's generator."""
        super().__init__()
        self.design = design
        E, H = design.embedding, design.hidden
        self.source_embedding = nn.Parameter(torch.empty(english, E))
        self.target_embedding = nn.Parameter(torch.empty(spanish, E))
        unit_scaling(self.source_embedding, english)
        unit_scaling(self.target_embedding, spanish)
        self.encoder, self.cell = cell_of(design.cell, E, H), cell_of(design.cell, E, H)
        self.attention: Attention | None = None
        if design.decoder == "attention":
            weigh = attend_all if design.padding == "attended" else attend_words
            self.attention = Attention(self.cell.state_size, H, design.heads, weigh)
            self.merge = linear(E + design.heads * H, E)
            self.project = linear(H + design.heads * H, H)
        self.softmax = linear(H, spanish)
        unit_scaling(self.softmax.bias, 1)

    def encode(self, source: Int[Tensor, "B S"], lengths: Int[Tensor, " B"]) -> Encoded:
        """Read the sentences; a state stays as it is behind the end of its sentence (TensorFlow's dynamic_rnn)."""
        state = torch.zeros(len(source), self.encoder.state_size)
        outputs = []
        for at, embedded in enumerate(self.source_embedding[source].unbind(dim=1)):
            output, new = self.encoder(embedded, state)
            here = (at < lengths)[:, None]
            state = torch.where(here, new, state)
            outputs.append(torch.where(here, self._dropped(output), 0.0))
        return Encoded(torch.stack(outputs, dim=1), state, lengths)

    def begin(self, encoded: Encoded) -> tuple[Carried, Features | None]:
        """What the first step is handed, and what all steps look at."""
        B, S, H = encoded.outputs.shape
        M = self.design.heads if self.attention is not None else 0
        nothing = Looked(torch.zeros(B, M, H), torch.zeros(B, M, S))
        if self.attention is None:
            return Carried(encoded.state, nothing), None
        features = self.attention.prepare(encoded.outputs, encoded.lengths)
        first = self.attention(encoded.state, features) if self.design.initial_state_attention else nothing
        return Carried(encoded.state, first), features

    def step(self, embedded: Float[Tensor, "B E"], carried: Carried, features: Features | None) -> Step:
        """x = W_x [y; a] + b;  o, s' = cell(x, s);  a' = look(s');  output W_o [o; a'] + b. Without attention, o is it.

        a is the last context, zero before the first step; the query is the new state, where the post says the last one.
        """
        if self.attention is None or features is None:
            output, state = self.cell(embedded, carried.state)
            output = self._dropped(output)
            return Step(embedded, output, output, carried._replace(state=state))
        merged = self.merge(torch.cat([embedded, carried.looked.contexts.flatten(1)], dim=1))
        output, state = self.cell(merged, carried.state)
        output = self._dropped(output)
        looked = self.attention(state, features)
        projected = self.project(torch.cat([output, looked.contexts.flatten(1)], dim=1))
        return Step(merged, output, projected, Carried(state, looked))

    def forward(self, encoded: Encoded, given: Int[Tensor, "B T"]) -> Written:
        """Each step is given the word that belongs before it (the post's loop function None)."""
        carried, features = self.begin(encoded)
        outputs, weights = [], []
        for embedded in self.target_embedding[given].unbind(dim=1):
            step = self.step(embedded, carried, features)
            carried = step.carried
            outputs.append(step.output)
            weights.append(carried.looked.weights)
        return Written(torch.stack(outputs, dim=1), torch.stack(weights, dim=1), given)

    def feed_previous(self, encoded: Encoded, steps: int, update_embedding_for_previous: bool) -> Written:
        """Each step is given the likeliest word of the step before (`_extract_argmax_and_embed`), the first one _GO.

        Without `update_embedding_for_previous` no gradient reaches the embedding through what was fed back: of all its
        rows only that of _GO is trained then.
        """
        carried, features = self.begin(encoded)
        words = torch.full((len(encoded.outputs),), GO)
        outputs, weights, given = [], [], []
        for at in range(steps):
            embedded = self.target_embedding[words]
            if at and not update_embedding_for_previous:
                embedded = embedded.detach()
            given.append(words)
            step = self.step(embedded, carried, features)
            carried = step.carried
            outputs.append(step.output)
            weights.append(carried.looked.weights)
            words = self.softmax(step.output).argmax(dim=1)
        return Written(torch.stack(outputs, dim=1), torch.stack(weights, dim=1), torch.stack(given, dim=1))

    def _dropped(self, outputs: Float[Tensor, "B H"]) -> Float[Tensor, "B H"]:
        """Dropout of a cell's outputs, in training; its state is never dropped (DropoutWrapper, output_keep_prob)."""
        return nn.functional.dropout(outputs, 1 - KEPT, self.training)
