"""Networks of the Spanish post, with cells and attention as in TensorFlow 0.11.

B batch, S source positions, T target positions, E embedding, H hidden units, Z state size, M heads.
"""

import math
from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from pellucid.recipes.spanish.sentences import GO

CellKind = Literal["gru", "lstm"]


class TensorFlowGRU(nn.Module):
    """GRU cell of TensorFlow, with the reset gate before the product.

        [r, u] = σ(W [x; h] + b), b from 1    c = tanh(W_c [x; r ⊙ h] + b_c)    h' = u ⊙ h + (1 − u) ⊙ c

    The update gate weights the old state (Cho et al. 2014). PyTorch and Pellucid apply the reset gate after the
    product.
    """

    def __init__(self, input_size: int, hidden_size: int) -> None:
        """Draw weights from U(±√(3 / (E + H)))."""
        super().__init__()
        self.hidden_size = self.state_size = hidden_size
        self.gates = unit_scaled_linear(input_size + hidden_size, 2 * hidden_size, 1.0)
        self.candidate = unit_scaled_linear(input_size + hidden_size, hidden_size)

    def forward(
        self, inputs: Float[Tensor, "B E"], state: Float[Tensor, "B Z"]
    ) -> tuple[Float[Tensor, "B H"], Float[Tensor, "B Z"]]:
        """Return output and new state, which are equal."""
        reset, update = self.gates(torch.cat([inputs, state], dim=1)).sigmoid().chunk(2, dim=1)
        candidate = self.candidate(torch.cat([inputs, reset * state], dim=1)).tanh()
        new = update * state + (1 - update) * candidate
        return new, new


class TensorFlowLSTM(nn.Module):
    """LSTM cell of TensorFlow, without peepholes.

        [i, j, f, o] = W [x; h] + b    c' = σ(f + 1) ⊙ c + σ(i) ⊙ tanh(j)    h' = σ(o) ⊙ tanh(c')

    The state is [c; h]; all of it passes from encoder to decoder and is the query of the attention.
    """

    def __init__(self, input_size: int, hidden_size: int) -> None:
        """Draw weights from U(±√(3 / (E + H))); biases start at 0."""
        super().__init__()
        self.hidden_size, self.state_size = hidden_size, 2 * hidden_size
        self.gates = unit_scaled_linear(input_size + hidden_size, 4 * hidden_size)

    def forward(
        self, inputs: Float[Tensor, "B E"], state: Float[Tensor, "B Z"]
    ) -> tuple[Float[Tensor, "B H"], Float[Tensor, "B Z"]]:
        """Return output h' and new state [c'; h']."""
        cell, hidden = state.chunk(2, dim=1)
        enter, new, keep, leave = self.gates(torch.cat([inputs, hidden], dim=1)).chunk(4, dim=1)
        cell = (keep + 1).sigmoid() * cell + enter.sigmoid() * new.tanh()
        hidden = leave.sigmoid() * cell.tanh()
        return hidden, torch.cat([cell, hidden], dim=1)


TensorFlowCell = TensorFlowGRU | TensorFlowLSTM


def build_cell(kind: CellKind, input_size: int, hidden_size: int) -> TensorFlowCell:
    """Return a new cell."""
    match kind:
        case "gru":
            return TensorFlowGRU(input_size, hidden_size)
        case "lstm":
            return TensorFlowLSTM(input_size, hidden_size)


def unit_scaled_linear(inputs: int, outputs: int, bias: float = 0.0) -> nn.Linear:
    """Return W x + b with uniform unit scaling of W and a constant b."""
    layer = nn.Linear(inputs, outputs)
    init_unit_scaling(layer.weight, inputs)
    nn.init.constant_(layer.bias, bias)
    return layer


def init_unit_scaling(weights: Tensor, inputs: int) -> None:
    """Draw weights from U(±√(3 / n)) for n inputs, which preserves scale (`uniform_unit_scaling`).

    A vector counts as one input, so that v and the bias of the softmax come from U(±1.7321).
    """
    bound = math.sqrt(3 / inputs)
    nn.init.uniform_(weights, -bound, bound)


AttentionNormalization = Callable[[Float[Tensor, "B S"], Int[Tensor, " B"]], Float[Tensor, "B S"]]
"""Function from scores and lengths to attention weights."""


def attend_all(scores: Float[Tensor, "B S"], lengths: Int[Tensor, " B"]) -> Float[Tensor, "B S"]:
    """Return a softmax over all positions, including padding, as in 2016 (states there are zero)."""
    return scores.softmax(dim=1)


def attend_words(scores: Float[Tensor, "B S"], lengths: Int[Tensor, " B"]) -> Float[Tensor, "B S"]:
    """Return a softmax over the words only, which the post recommends and leaves out."""
    beyond = torch.arange(scores.shape[1]) >= lengths[:, None]
    return scores.masked_fill(beyond, -torch.inf).softmax(dim=1)


class AttentionFeatures(NamedTuple):
    """Encoder states with their projections."""

    states: Float[Tensor, "B S H"]
    keys: Float[Tensor, "M B S H"]
    lengths: Int[Tensor, " B"]


class HeadOutputs(NamedTuple):
    """Context and attention weights of each head."""

    contexts: Float[Tensor, "B M H"]
    weights: Float[Tensor, "B M S"]


class TensorFlowAttention(nn.Module):
    """Attention of `seq2seq.attention_decoder`, for each head with its own K, W, b, v.

        e_s = vᵀ tanh(K h_s + W q + b)    α = softmax(e)    a = Σ_s α_s h_s

    K is the 1×1 convolution, a product at each position. q is the decoder's new state.

    References:
        TensorFlow 0.11; Vinyals et al. 2015 (arXiv:1412.7449), section 3.
    """

    def __init__(self, state_size: int, hidden_size: int, heads: int, weigh: AttentionNormalization) -> None:
        """Create the parameters; `weigh` masks padding or does not."""
        super().__init__()
        self.normalize = weigh
        self.projections = nn.ParameterList(nn.Parameter(torch.empty(hidden_size, hidden_size)) for _ in range(heads))
        self.queries = nn.ModuleList(unit_scaled_linear(state_size, hidden_size) for _ in range(heads))
        self.vectors = nn.ParameterList(nn.Parameter(torch.empty(hidden_size)) for _ in range(heads))
        for projection, vector in zip(self.projections, self.vectors, strict=True):
            init_unit_scaling(projection, hidden_size)
            init_unit_scaling(vector, 1)

    def prepare(self, states: Float[Tensor, "B S H"], lengths: Int[Tensor, " B"]) -> AttentionFeatures:
        """Return the projections, which serve all steps."""
        return AttentionFeatures(states, torch.stack([states @ projection for projection in self.projections]), lengths)

    def scores(self, state: Float[Tensor, "B Z"], features: AttentionFeatures) -> Float[Tensor, "B M S"]:
        """Return e of each head, before the softmax."""
        found = [
            (features.keys[head] + query(state)[:, None]).tanh() @ self.vectors[head]
            for head, query in enumerate(self.queries)
        ]
        return torch.stack(found, dim=1)

    def forward(self, state: Float[Tensor, "B Z"], features: AttentionFeatures) -> HeadOutputs:
        """Return contexts and weights of one step."""
        scores = self.scores(state, features)
        weights = torch.stack([self.normalize(own, features.lengths) for own in scores.unbind(dim=1)], dim=1)
        return HeadOutputs(weights @ features.states, weights)


KEEP_PROBABILITY = 0.5
"""Probability that dropout keeps an output of a cell."""


class SpanishArchitecture(NamedTuple):
    """Architecture of a network; the defaults are the author's."""

    decoder: Literal["attention", "plain"] = "attention"
    hidden: int = 300
    embedding: int = 300
    """As large as H in the post; other sizes are possible."""
    cell: CellKind = "gru"
    heads: int = 1
    padding: Literal["attended", "masked"] = "attended"
    initial_state_attention: bool = False
    """The first step receives a context computed from the encoder's state, not zeros."""


class EncodedSentences(NamedTuple):
    """Encoder outputs, zero after the end of a sentence, and the last state."""

    outputs: Float[Tensor, "B S H"]
    state: Float[Tensor, "B Z"]
    lengths: Int[Tensor, " B"]


class SpanishOutput(NamedTuple):
    """Decoder outputs before the softmax, attention weights, and the input words."""

    outputs: Float[Tensor, "B T H"]
    weights: Float[Tensor, "B T M S"]
    given: Int[Tensor, "B T"]


class SpanishStepState(NamedTuple):
    """Decoder state between steps; without attention there are no contexts."""

    state: Float[Tensor, "B Z"]
    head_outputs: HeadOutputs


class SpanishStep(NamedTuple):
    """Intermediate values of one decoder step."""

    merged: Float[Tensor, "B E"]
    cell_output: Float[Tensor, "B H"]
    output: Float[Tensor, "B H"]
    carried: SpanishStepState


class SpanishNetwork(nn.Module):
    """Embeddings, a unidirectional encoder, a decoder, and the softmax weights ("output projection")."""

    def __init__(self, design: SpanishArchitecture, english: int, spanish: int) -> None:
        """Build the network and draw its parameters from PyTorch's generator.

        Args:
            design: The architecture.
            english: Size of the English vocabulary.
            spanish: Size of the Spanish vocabulary.
        """
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
        """Encode the sentences; after the end of a sentence its state is copied (`dynamic_rnn`)."""
        state = torch.zeros(len(source), self.encoder.state_size)
        outputs = []
        for at, embedded in enumerate(self.source_embedding[source].unbind(dim=1)):
            output, new = self.encoder(embedded, state)
            here = (at < lengths)[:, None]
            state = torch.where(here, new, state)
            outputs.append(torch.where(here, self._dropped(output), 0.0))
        return EncodedSentences(torch.stack(outputs, dim=1), state, lengths)

    def init_decoder(self, encoded: EncodedSentences) -> tuple[SpanishStepState, AttentionFeatures | None]:
        """Return the initial state and the projected encoder states."""
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
        """Compute one decoder step.

            x = W_x [y; a] + b    o, s' = cell(x, s)    a' = attention(s')    output = W_o [o; a'] + b

        a is the last context, zero before the first step. The query is the new state; the post says the last one.
        Without attention the output is o.
        """
        if self.attention is None or features is None:
            output, state = self.cell(embedded, carried.state)
            output = self._dropped(output)
            return SpanishStep(embedded, output, output, carried._replace(state=state))
        merged = self.merge(torch.cat([embedded, carried.head_outputs.contexts.flatten(1)], dim=1))
        output, state = self.cell(merged, carried.state)
        output = self._dropped(output)
        looked = self.attention(state, features)
        projected = self.project(torch.cat([output, looked.contexts.flatten(1)], dim=1))
        return SpanishStep(merged, output, projected, SpanishStepState(state, looked))

    def forward(self, encoded: EncodedSentences, given: Int[Tensor, "B T"]) -> SpanishOutput:
        """Decode with teacher forcing (the post's loop function None)."""
        carried, features = self.init_decoder(encoded)
        outputs, weights = [], []
        for embedded in self.target_embedding[given].unbind(dim=1):
            step = self.step(embedded, carried, features)
            carried = step.carried
            outputs.append(step.output)
            weights.append(carried.head_outputs.weights)
        return SpanishOutput(torch.stack(outputs, dim=1), torch.stack(weights, dim=1), given)

    def feed_previous(
        self, encoded: EncodedSentences, steps: int, update_embedding_for_previous: bool
    ) -> SpanishOutput:
        """Decode greedily; the input of a step is the output of the step before, of the first step _GO.

        This is `_extract_argmax_and_embed`.

        Args:
            encoded: Encoded sentences.
            steps: Number of steps.
            update_embedding_for_previous: Propagate gradients into the embeddings of fed-back words. Without it only
                the embedding of _GO is trained.
        """
        carried, features = self.init_decoder(encoded)
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
            weights.append(carried.head_outputs.weights)
            words = self.softmax(step.output).argmax(dim=1)
        return SpanishOutput(torch.stack(outputs, dim=1), torch.stack(weights, dim=1), torch.stack(given, dim=1))

    def _dropped(self, outputs: Float[Tensor, "B H"]) -> Float[Tensor, "B H"]:
        """Apply dropout to outputs in training; the state is never dropped (`output_keep_prob`)."""
        return nn.functional.dropout(outputs, 1 - KEEP_PROBABILITY, self.training)
