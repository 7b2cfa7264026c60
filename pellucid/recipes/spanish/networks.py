"""Networks of the Spanish post: cells and attention as TensorFlow has them."""

import math
from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from pellucid.recipes.spanish.sentences import GO

CellKind = Literal["gru", "lstm"]


class TensorFlowGRU(nn.Module):
    """[r, u] = σ(W [x; h] + b), b from 1;  c = tanh(W_c [x; r ⊙ h] + b_c);  h' = u ⊙ h + (1 − u) ⊙ c.

    The reset gate acts before the product, and the update gate says what is kept (Cho et al. 2014); in PyTorch, and in
    Pellucid's own cell, the reset gate acts after it.
    """

    def __init__(self, input_size: int, hidden_size: int) -> None:
        """Weights of U(±√(3 / (E + H)))."""
        super().__init__()
        self.hidden_size = self.state_size = hidden_size
        self.gates = unit_scaled_linear(input_size + hidden_size, 2 * hidden_size, 1.0)
        self.candidate = unit_scaled_linear(input_size + hidden_size, hidden_size)

    def forward(
        self, inputs: Float[Tensor, "B E"], state: Float[Tensor, "B Z"]
    ) -> tuple[Float[Tensor, "B H"], Float[Tensor, "B Z"]]:
        """Output and new state, which are the same here."""
        reset, update = self.gates(torch.cat([inputs, state], dim=1)).sigmoid().chunk(2, dim=1)
        candidate = self.candidate(torch.cat([inputs, reset * state], dim=1)).tanh()
        new = update * state + (1 - update) * candidate
        return new, new


class TensorFlowLSTM(nn.Module):
    """[i, j, f, o] = W [x; h] + b;  c' = σ(f + 1) ⊙ c + σ(i) ⊙ tanh(j);  h' = σ(o) ⊙ tanh(c'). No peepholes.

    The state is [c; h], and all of it passes from the encoder to the decoder, and asks the attention.
    """

    def __init__(self, input_size: int, hidden_size: int) -> None:
        """Weights of U(±√(3 / (E + H))), biases from 0."""
        super().__init__()
        self.hidden_size, self.state_size = hidden_size, 2 * hidden_size
        self.gates = unit_scaled_linear(input_size + hidden_size, 4 * hidden_size)

    def forward(
        self, inputs: Float[Tensor, "B E"], state: Float[Tensor, "B Z"]
    ) -> tuple[Float[Tensor, "B H"], Float[Tensor, "B Z"]]:
        """Output h' and new state [c'; h']."""
        cell, hidden = state.chunk(2, dim=1)
        enter, new, keep, leave = self.gates(torch.cat([inputs, hidden], dim=1)).chunk(4, dim=1)
        cell = (keep + 1).sigmoid() * cell + enter.sigmoid() * new.tanh()
        hidden = leave.sigmoid() * cell.tanh()
        return hidden, torch.cat([cell, hidden], dim=1)


TensorFlowCell = TensorFlowGRU | TensorFlowLSTM


def build_cell(kind: CellKind, input_size: int, hidden_size: int) -> TensorFlowCell:
    """A new cell."""
    match kind:
        case "gru":
            return TensorFlowGRU(input_size, hidden_size)
        case "lstm":
            return TensorFlowLSTM(input_size, hidden_size)


def unit_scaled_linear(inputs: int, outputs: int, bias: float = 0.0) -> nn.Linear:
    """W x + b, W of uniform unit scaling, b from one value."""
    layer = nn.Linear(inputs, outputs)
    init_unit_scaling(layer.weight, inputs)
    nn.init.constant_(layer.bias, bias)
    return layer


def init_unit_scaling(weights: Tensor, inputs: int) -> None:
    """U(±√(3 / n)) for n inputs: the size of what passes through stays (TensorFlow's uniform_unit_scaling).

    A vector has one input by its rule, so that v and the softmax's bias are of U(±1.7321).
    """
    bound = math.sqrt(3 / inputs)
    nn.init.uniform_(weights, -bound, bound)


AttentionNormalization = Callable[[Float[Tensor, "B S"], Int[Tensor, " B"]], Float[Tensor, "B S"]]
"""Scores and lengths to weights."""


def attend_all(scores: Float[Tensor, "B S"], lengths: Int[Tensor, " B"]) -> Float[Tensor, "B S"]:
    """A softmax over all positions: padding is looked at like words, as in 2016 (its states are zero)."""
    return scores.softmax(dim=1)


def attend_words(scores: Float[Tensor, "B S"], lengths: Int[Tensor, " B"]) -> Float[Tensor, "B S"]:
    """A softmax over the words alone: what the post names as the better way, and leaves out."""
    beyond = torch.arange(scores.shape[1]) >= lengths[:, None]
    return scores.masked_fill(beyond, -torch.inf).softmax(dim=1)


class AttentionFeatures(NamedTuple):
    """What is looked at, and its projections."""

    states: Float[Tensor, "B S H"]
    keys: Float[Tensor, "M B S H"]
    lengths: Int[Tensor, " B"]


class HeadOutputs(NamedTuple):
    """What each head found, and where it looked."""

    contexts: Float[Tensor, "B M H"]
    weights: Float[Tensor, "B M S"]


class TensorFlowAttention(nn.Module):
    """e_s = vᵀ tanh(K h_s + W q + b)    α = softmax(e)    a = Σ_s α_s h_s, for each head with K, W, b, v of its own.

    K is the 1×1 convolution: a product at each position by itself. q is the decoder's new state. Source: TensorFlow
    0.11, `seq2seq.attention_decoder`, after Vinyals et al. 2015 (arXiv:1412.7449), section 3.
    """

    def __init__(self, state_size: int, hidden_size: int, heads: int, weigh: AttentionNormalization) -> None:
        """`weigh` says whether padding is looked at."""
        super().__init__()
        self.weigh = weigh
        self.projections = nn.ParameterList(nn.Parameter(torch.empty(hidden_size, hidden_size)) for _ in range(heads))
        self.queries = nn.ModuleList(unit_scaled_linear(state_size, hidden_size) for _ in range(heads))
        self.vectors = nn.ParameterList(nn.Parameter(torch.empty(hidden_size)) for _ in range(heads))
        for projection, vector in zip(self.projections, self.vectors, strict=True):
            init_unit_scaling(projection, hidden_size)
            init_unit_scaling(vector, 1)

    def prepare(self, states: Float[Tensor, "B S H"], lengths: Int[Tensor, " B"]) -> AttentionFeatures:
        """The projections, once for all steps."""
        return AttentionFeatures(states, torch.stack([states @ projection for projection in self.projections]), lengths)

    def scores(self, state: Float[Tensor, "B Z"], features: AttentionFeatures) -> Float[Tensor, "B M S"]:
        """e of each head, before the softmax."""
        found = [
            (features.keys[head] + query(state)[:, None]).tanh() @ self.vectors[head]
            for head, query in enumerate(self.queries)
        ]
        return torch.stack(found, dim=1)

    def forward(self, state: Float[Tensor, "B Z"], features: AttentionFeatures) -> HeadOutputs:
        """One look of each head."""
        scores = self.scores(state, features)
        weights = torch.stack([self.weigh(own, features.lengths) for own in scores.unbind(dim=1)], dim=1)
        return HeadOutputs(weights @ features.states, weights)


KEEP_PROBABILITY = 0.5
"""The share of a cell's outputs that dropout leaves, in training."""


class SpanishArchitecture(NamedTuple):
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


class EncodedSentences(NamedTuple):
    """What the encoder leaves behind: its outputs, zero behind the end of a sentence, and its last relevant state."""

    outputs: Float[Tensor, "B S H"]
    state: Float[Tensor, "B Z"]
    lengths: Int[Tensor, " B"]


class SpanishOutput(NamedTuple):
    """What a decoder writes, before the softmax; the weights of its looks, and the words it was given."""

    outputs: Float[Tensor, "B T H"]
    weights: Float[Tensor, "B T M S"]
    given: Int[Tensor, "B T"]


class SpanishStepState(NamedTuple):
    """What one step hands to the next; a plain decoder has no contexts."""

    state: Float[Tensor, "B Z"]
    looked: HeadOutputs


class SpanishStep(NamedTuple):
    """What one step comes to, with all that happens on the way."""

    merged: Float[Tensor, "B E"]
    cell_output: Float[Tensor, "B H"]
    output: Float[Tensor, "B H"]
    carried: SpanishStepState


class SpanishNetwork(nn.Module):
    """Embeddings, a one-way encoder, a decoder, and the softmax's weights: the post's "output projection"."""

    def __init__(self, design: SpanishArchitecture, english: int, spanish: int) -> None:
        """So many words of either language; parameters are drawn from PyTorch's generator."""
        super().__init__()
        self.design = design
        E, H = design.embedding, design.hidden
        self.source_embedding = nn.Parameter(torch.empty(english, E))
        self.target_embedding = nn.Parameter(torch.empty(spanish, E))
        init_unit_scaling(self.source_embedding, english)
        init_unit_scaling(self.target_embedding, spanish)
        self.encoder, self.cell = build_cell(design.cell, E, H), build_cell(design.cell, E, H)
        self.attention: TensorFlowAttention | None = None
        if design.decoder == "attention":
            weigh = attend_all if design.padding == "attended" else attend_words
            self.attention = TensorFlowAttention(self.cell.state_size, H, design.heads, weigh)
            self.merge = unit_scaled_linear(E + design.heads * H, E)
            self.project = unit_scaled_linear(H + design.heads * H, H)
        self.softmax = unit_scaled_linear(H, spanish)
        init_unit_scaling(self.softmax.bias, 1)

    def encode(self, source: Int[Tensor, "B S"], lengths: Int[Tensor, " B"]) -> EncodedSentences:
        """Read the sentences; a state stays as it is behind the end of its sentence (TensorFlow's dynamic_rnn)."""
        state = torch.zeros(len(source), self.encoder.state_size)
        outputs = []
        for at, embedded in enumerate(self.source_embedding[source].unbind(dim=1)):
            output, new = self.encoder(embedded, state)
            here = (at < lengths)[:, None]
            state = torch.where(here, new, state)
            outputs.append(torch.where(here, self._dropped(output), 0.0))
        return EncodedSentences(torch.stack(outputs, dim=1), state, lengths)

    def begin(self, encoded: EncodedSentences) -> tuple[SpanishStepState, AttentionFeatures | None]:
        """What the first step is handed, and what all steps look at."""
        B, S, H = encoded.outputs.shape
        M = self.design.heads if self.attention is not None else 0
        nothing = HeadOutputs(torch.zeros(B, M, H), torch.zeros(B, M, S))
        if self.attention is None:
            return SpanishStepState(encoded.state, nothing), None
        features = self.attention.prepare(encoded.outputs, encoded.lengths)
        first = self.attention(encoded.state, features) if self.design.initial_state_attention else nothing
        return SpanishStepState(encoded.state, first), features

    def step(
        self, embedded: Float[Tensor, "B E"], carried: SpanishStepState, features: AttentionFeatures | None
    ) -> SpanishStep:
        """x = W_x [y; a] + b;  o, s' = cell(x, s);  a' = look(s');  output W_o [o; a'] + b. Without attention, o is it.

        a is the last context, zero before the first step; the query is the new state, where the post says the last one.
        """
        if self.attention is None or features is None:
            output, state = self.cell(embedded, carried.state)
            output = self._dropped(output)
            return SpanishStep(embedded, output, output, carried._replace(state=state))
        merged = self.merge(torch.cat([embedded, carried.looked.contexts.flatten(1)], dim=1))
        output, state = self.cell(merged, carried.state)
        output = self._dropped(output)
        looked = self.attention(state, features)
        projected = self.project(torch.cat([output, looked.contexts.flatten(1)], dim=1))
        return SpanishStep(merged, output, projected, SpanishStepState(state, looked))

    def forward(self, encoded: EncodedSentences, given: Int[Tensor, "B T"]) -> SpanishOutput:
        """Each step is given the word that belongs before it (the post's loop function None)."""
        carried, features = self.begin(encoded)
        outputs, weights = [], []
        for embedded in self.target_embedding[given].unbind(dim=1):
            step = self.step(embedded, carried, features)
            carried = step.carried
            outputs.append(step.output)
            weights.append(carried.looked.weights)
        return SpanishOutput(torch.stack(outputs, dim=1), torch.stack(weights, dim=1), given)

    def feed_previous(
        self, encoded: EncodedSentences, steps: int, update_embedding_for_previous: bool
    ) -> SpanishOutput:
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
        return SpanishOutput(torch.stack(outputs, dim=1), torch.stack(weights, dim=1), torch.stack(given, dim=1))

    def _dropped(self, outputs: Float[Tensor, "B H"]) -> Float[Tensor, "B H"]:
        """Dropout of a cell's outputs, in training; its state is never dropped (DropoutWrapper, output_keep_prob)."""
        return nn.functional.dropout(outputs, 1 - KEEP_PROBABILITY, self.training)
