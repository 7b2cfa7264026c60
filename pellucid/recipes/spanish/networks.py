"""Networks of the Spanish post, with cells and attention as in TensorFlow 0.11.

B batch, S source positions, T target positions, E embedding, H hidden units, Z state size, M heads.
"""

import math
from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from pellucid.recipes.spanish.sentences import GO
from pellucid.shapes import Float, Int

CellKind = Literal["gru", "lstm"]


class TensorFlowGRU(nn.Module):
    """GRU cell of TensorFlow, with the reset gate before the product.

        [r, u] = σ(W [x; h] + b), b from 1    c = tanh(W_c [x; r ⊙ h] + b_c)    h' = u ⊙ h + (1 − u) ⊙ c

    The update gate weights the old state (Cho et al. 2014). PyTorch and Pellucid apply the reset gate after the
    product.
    """

    def __init__(self, input_size: int, hidden_size: int) -> None:
        """Draw weights from U(±√(3 / (E + H))).

        Args:
            input_size: Size E of an input.
            hidden_size: Number H of units, also the size of the state.
        """
        super().__init__()
        self.hidden_size = self.state_size = hidden_size
        self.gates = unit_scaled_linear(input_size + hidden_size, 2 * hidden_size, 1.0)
        self.candidate = unit_scaled_linear(input_size + hidden_size, hidden_size)

    def forward(
        self, inputs: Float[Tensor, "B E"], state: Float[Tensor, "B Z"]
    ) -> tuple[Float[Tensor, "B H"], Float[Tensor, "B Z"]]:
        """Compute one step.

        Args:
            inputs: Inputs of one step.
            state: Previous state.

        Returns:
            Output and new state, which are equal.
        """
        reset, update = self.gates(torch.cat([inputs, state], dim=1)).sigmoid().chunk(2, dim=1)
        candidate = self.candidate(torch.cat([inputs, reset * state], dim=1)).tanh()
        new_state = update * state + (1 - update) * candidate
        return new_state, new_state


class TensorFlowLSTM(nn.Module):
    """LSTM cell of TensorFlow, without peepholes.

        [i, j, f, o] = W [x; h] + b    c' = σ(f + 1) ⊙ c + σ(i) ⊙ tanh(j)    h' = σ(o) ⊙ tanh(c')

    The state is [c; h]; all of it passes from encoder to decoder and is the query of the attention.
    """

    def __init__(self, input_size: int, hidden_size: int) -> None:
        """Draw weights from U(±√(3 / (E + H))); biases start at 0.

        Args:
            input_size: Size E of an input.
            hidden_size: Number H of units; the state has size 2 H.
        """
        super().__init__()
        self.hidden_size, self.state_size = hidden_size, 2 * hidden_size
        self.gates = unit_scaled_linear(input_size + hidden_size, 4 * hidden_size)

    def forward(
        self, inputs: Float[Tensor, "B E"], state: Float[Tensor, "B Z"]
    ) -> tuple[Float[Tensor, "B H"], Float[Tensor, "B Z"]]:
        """Compute one step.

        Args:
            inputs: Inputs of one step.
            state: Previous state [c; h].

        Returns:
            Output h' and new state [c'; h'].
        """
        cell, hidden = state.chunk(2, dim=1)
        input_gate, candidate, forget_gate, output_gate = self.gates(torch.cat([inputs, hidden], dim=1)).chunk(4, dim=1)
        cell = (forget_gate + 1).sigmoid() * cell + input_gate.sigmoid() * candidate.tanh()
        hidden = output_gate.sigmoid() * cell.tanh()
        return hidden, torch.cat([cell, hidden], dim=1)


TensorFlowCell = TensorFlowGRU | TensorFlowLSTM


def build_cell(kind: CellKind, input_size: int, hidden_size: int) -> TensorFlowCell:
    """Return a new cell; its parameters are drawn from PyTorch's generator.

    Args:
        kind: Kind of the cell.
        input_size: Size E of an input.
        hidden_size: Number H of units.
    """
    match kind:
        case "gru":
            return TensorFlowGRU(input_size, hidden_size)
        case "lstm":
            return TensorFlowLSTM(input_size, hidden_size)


def unit_scaled_linear(inputs: int, outputs: int, bias: float = 0.0) -> nn.Linear:
    """Return a linear layer W x + b with uniform unit scaling of W and a constant b.

    Args:
        inputs: Input size.
        outputs: Output size.
        bias: Initial value of the bias.
    """
    layer = nn.Linear(inputs, outputs)
    init_unit_scaling(layer.weight, inputs)
    nn.init.constant_(layer.bias, bias)
    return layer


def init_unit_scaling(weights: Tensor, inputs: int) -> None:
    """Draw parameters from U(±√(3 / n)) for n inputs, in place, which preserves scale (`uniform_unit_scaling`).

    A vector counts as one input, so that v and the bias of the softmax come from U(±1.7321).

    Args:
        weights: Parameters to initialize in place.
        inputs: Number n of inputs.
    """
    bound = math.sqrt(3 / inputs)
    nn.init.uniform_(weights, -bound, bound)


AttentionNormalization = Callable[[Float[Tensor, "B S"], Int[Tensor, " B"]], Float[Tensor, "B S"]]
"""Function from scores and lengths to attention weights."""


def softmax_with_padding(scores: Float[Tensor, "B S"], lengths: Int[Tensor, " B"]) -> Float[Tensor, "B S"]:
    """Return the softmax over all positions, including padding, as in 2016 (the encoder outputs there are zero).

    Args:
        scores: Score of each source position.
        lengths: Length of each source; ignored.
    """
    return scores.softmax(dim=1)


def masked_softmax(scores: Float[Tensor, "B S"], lengths: Int[Tensor, " B"]) -> Float[Tensor, "B S"]:
    """Return the softmax over the words only, zero on padding, which the post recommends and leaves out.

    Args:
        scores: Score of each source position.
        lengths: Length of each source.
    """
    is_padding = torch.arange(scores.shape[1]) >= lengths[:, None]
    return scores.masked_fill(is_padding, -torch.inf).softmax(dim=1)


class AttentionFeatures(NamedTuple):
    """Encoder outputs with their keys, which attention needs at every step."""

    states: Float[Tensor, "B S H"]
    keys: Float[Tensor, "M B S H"]
    """Keys of each head."""
    lengths: Int[Tensor, " B"]


class HeadOutputs(NamedTuple):
    """Context and attention weights of each head."""

    contexts: Float[Tensor, "B M H"]
    weights: Float[Tensor, "B M S"]


class TensorFlowAttention(nn.Module):
    """Attention of `seq2seq.attention_decoder`; each head has its own K, W, b, v.

        e_s = vᵀ tanh(K h_s + W q + b)    α = softmax(e)    a = Σ_s α_s h_s

    K is the 1×1 convolution, a product at each position. q is the decoder's new state.

    References:
        TensorFlow 0.11; Vinyals et al. 2015 (arXiv:1412.7449), section 3.
    """

    def __init__(self, state_size: int, hidden_size: int, heads: int, normalize: AttentionNormalization) -> None:
        """Draw the parameters from PyTorch's generator.

        Args:
            state_size: Size Z of the decoder state.
            hidden_size: Size H of an encoder state, of a key and of a query.
            heads: Number M of heads.
            normalize: Softmax over all positions, or over the words only.
        """
        super().__init__()
        self.normalize = normalize
        self.projections = nn.ParameterList(nn.Parameter(torch.empty(hidden_size, hidden_size)) for _ in range(heads))
        self.queries = nn.ModuleList(unit_scaled_linear(state_size, hidden_size) for _ in range(heads))
        self.vectors = nn.ParameterList(nn.Parameter(torch.empty(hidden_size)) for _ in range(heads))
        for projection, vector in zip(self.projections, self.vectors, strict=True):
            init_unit_scaling(projection, hidden_size)
            init_unit_scaling(vector, 1)

    def build_features(self, states: Float[Tensor, "B S H"], lengths: Int[Tensor, " B"]) -> AttentionFeatures:
        """Return the encoder states with their keys, which all steps share.

        Args:
            states: Encoder outputs.
            lengths: Length of each source.
        """
        return AttentionFeatures(states, torch.stack([states @ projection for projection in self.projections]), lengths)

    def compute_scores(self, state: Float[Tensor, "B Z"], features: AttentionFeatures) -> Float[Tensor, "B M S"]:
        """Return the score e of each source position and head, before the softmax.

        Args:
            state: Decoder state, the query.
            features: Encoder states with their keys.
        """
        scores = [
            (features.keys[head] + query(state)[:, None]).tanh() @ self.vectors[head]
            for head, query in enumerate(self.queries)
        ]
        return torch.stack(scores, dim=1)

    def forward(self, state: Float[Tensor, "B Z"], features: AttentionFeatures) -> HeadOutputs:
        """Return context and attention weights of each head for one step.

        Args:
            state: Decoder state, the query.
            features: Encoder states with their keys.
        """
        scores = self.compute_scores(state, features)
        weights = torch.stack([self.normalize(head, features.lengths) for head in scores.unbind(dim=1)], dim=1)
        return HeadOutputs(weights @ features.states, weights)


KEEP_PROBABILITY = 0.5
"""Probability that dropout keeps an output of a cell."""


class SpanishArchitecture(NamedTuple):
    """Architecture of a network; the defaults are the author's."""

    decoder: Literal["attention", "plain"] = "attention"
    hidden: int = 300
    embedding: int = 300
    """Size E of the embeddings; the post uses H."""
    cell: CellKind = "gru"
    heads: int = 1
    padding: Literal["attended", "masked"] = "attended"
    initial_state_attention: bool = False
    """The first step receives a context computed from the encoder's state, not zeros."""


class EncodedSentences(NamedTuple):
    """Encoder outputs, zero after the end of a sentence, and the state at its end."""

    outputs: Float[Tensor, "B S H"]
    state: Float[Tensor, "B Z"]
    lengths: Int[Tensor, " B"]


class SpanishOutput(NamedTuple):
    """Decoder outputs before the softmax layer, attention weights, and the input words."""

    outputs: Float[Tensor, "B T H"]
    weights: Float[Tensor, "B T M S"]
    """Without attention, M is 0."""
    inputs: Int[Tensor, "B T"]
    """Ids of the input words of each step."""


class SpanishStepState(NamedTuple):
    """Decoder state between steps: state of the cell, and contexts and weights of the last step (M is 0 without
    attention).
    """

    state: Float[Tensor, "B Z"]
    head_outputs: HeadOutputs


class SpanishStep(NamedTuple):
    """Intermediate values of one decoder step."""

    merged: Float[Tensor, "B E"]
    """Input of the cell."""
    cell_output: Float[Tensor, "B H"]
    """Output of the cell, after dropout."""
    output: Float[Tensor, "B H"]
    """Output of the step, the input of the softmax layer."""
    new_state: SpanishStepState


class SpanishNetwork(nn.Module):
    """Embeddings, a unidirectional encoder, a decoder, and the softmax weights ("output projection")."""

    def __init__(self, architecture: SpanishArchitecture, source_size: int, target_size: int) -> None:
        """Build the network and draw its parameters from PyTorch's generator.

        Args:
            architecture: Sizes, cell and attention.
            source_size: Size of the English vocabulary.
            target_size: Size of the Spanish vocabulary.
        """
        super().__init__()
        self.architecture = architecture
        E, H = architecture.embedding, architecture.hidden
        self.source_embedding = nn.Parameter(torch.empty(source_size, E))
        self.target_embedding = nn.Parameter(torch.empty(target_size, E))
        init_unit_scaling(self.source_embedding, source_size)
        init_unit_scaling(self.target_embedding, target_size)
        self.encoder, self.cell = build_cell(architecture.cell, E, H), build_cell(architecture.cell, E, H)
        self.attention: TensorFlowAttention | None = None
        if architecture.decoder == "attention":
            normalize = softmax_with_padding if architecture.padding == "attended" else masked_softmax
            self.attention = TensorFlowAttention(self.cell.state_size, H, architecture.heads, normalize)
            self.merge = unit_scaled_linear(E + architecture.heads * H, E)
            self.project = unit_scaled_linear(H + architecture.heads * H, H)
        self.softmax = unit_scaled_linear(H, target_size)
        init_unit_scaling(self.softmax.bias, 1)

    def encode(self, source: Int[Tensor, "B S"], lengths: Int[Tensor, " B"]) -> EncodedSentences:
        """Encode the sentences; after the end of a sentence its state is copied (`dynamic_rnn`).

        Args:
            source: Source word ids, padded.
            lengths: Length of each source.

        Returns:
            Encoder outputs, which are zero on padding, and the last state of each sentence.
        """
        state = torch.zeros(len(source), self.encoder.state_size)
        outputs = []
        for position, embedded in enumerate(self.source_embedding[source].unbind(dim=1)):
            output, new_state = self.encoder(embedded, state)
            mask = (position < lengths)[:, None]
            state = torch.where(mask, new_state, state)
            outputs.append(torch.where(mask, self._apply_dropout(output), 0.0))
        return EncodedSentences(torch.stack(outputs, dim=1), state, lengths)

    def init_decoder(self, encoded: EncodedSentences) -> tuple[SpanishStepState, AttentionFeatures | None]:
        """Return the initial decoder state and the keys of the encoder outputs.

        Args:
            encoded: Encoded sentences.

        Returns:
            Initial state, which is the last encoder state; and the encoder outputs with their keys, or None without
            attention.
        """
        B, S, H = encoded.outputs.shape
        M = self.architecture.heads if self.attention is not None else 0
        zeros = HeadOutputs(torch.zeros(B, M, H), torch.zeros(B, M, S))
        if self.attention is None:
            return SpanishStepState(encoded.state, zeros), None
        features = self.attention.build_features(encoded.outputs, encoded.lengths)
        initial = self.attention(encoded.state, features) if self.architecture.initial_state_attention else zeros
        return SpanishStepState(encoded.state, initial), features

    def step(
        self, embedded: Float[Tensor, "B E"], state: SpanishStepState, features: AttentionFeatures | None
    ) -> SpanishStep:
        """Compute one decoder step.

            x = W_x [y; a] + b    o, s' = cell(x, s)    a' = attention(s')    output = W_o [o; a'] + b

        a is the last context, zero before the first step. The query is the new state; the post says the last one.
        Without attention the output is o.

        Args:
            embedded: Embedded input words.
            state: Decoder state before the step.
            features: Encoder states with their keys; None without attention.

        Returns:
            Intermediate values, the output and the new state.
        """
        if self.attention is None or features is None:
            output, cell_state = self.cell(embedded, state.state)
            output = self._apply_dropout(output)
            return SpanishStep(embedded, output, output, state._replace(state=cell_state))
        merged = self.merge(torch.cat([embedded, state.head_outputs.contexts.flatten(1)], dim=1))
        output, cell_state = self.cell(merged, state.state)
        output = self._apply_dropout(output)
        head_outputs = self.attention(cell_state, features)
        projected = self.project(torch.cat([output, head_outputs.contexts.flatten(1)], dim=1))
        return SpanishStep(merged, output, projected, SpanishStepState(cell_state, head_outputs))

    def forward(self, encoded: EncodedSentences, inputs: Int[Tensor, "B T"]) -> SpanishOutput:
        """Decode with teacher forcing (the post's loop function None).

        Args:
            encoded: Encoded sentences.
            inputs: Ids of the input words of each step, _GO first.

        Returns:
            Decoder outputs, attention weights, and `inputs`.
        """
        state, features = self.init_decoder(encoded)
        outputs, weights = [], []
        for embedded in self.target_embedding[inputs].unbind(dim=1):
            step = self.step(embedded, state, features)
            state = step.new_state
            outputs.append(step.output)
            weights.append(state.head_outputs.weights)
        return SpanishOutput(torch.stack(outputs, dim=1), torch.stack(weights, dim=1), inputs)

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

        Returns:
            Decoder outputs, attention weights and the input words.
        """
        state, features = self.init_decoder(encoded)
        words = torch.full((len(encoded.outputs),), GO)
        outputs, weights, inputs = [], [], []
        for index in range(steps):
            embedded = self.target_embedding[words]
            if index and not update_embedding_for_previous:
                embedded = embedded.detach()
            inputs.append(words)
            step = self.step(embedded, state, features)
            state = step.new_state
            outputs.append(step.output)
            weights.append(state.head_outputs.weights)
            words = self.softmax(step.output).argmax(dim=1)
        return SpanishOutput(torch.stack(outputs, dim=1), torch.stack(weights, dim=1), torch.stack(inputs, dim=1))

    def _apply_dropout(self, outputs: Float[Tensor, "B H"]) -> Float[Tensor, "B H"]:
        """Apply dropout to outputs in training, but never to the state (`output_keep_prob`)."""
        return nn.functional.dropout(outputs, 1 - KEEP_PROBABILITY, self.training)
