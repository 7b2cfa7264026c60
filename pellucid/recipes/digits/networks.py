"""The networks of the 2016 notebook on spelled digits, and the variants of its exercises.

B batch, S input positions, T target positions, D memory, H hidden units, A attention units, V output symbols.

All of them read one-hot symbols, have one bias per gate, and feed no output symbol back: the output at step t depends
on the source alone. Weights of the notebook start as N(0, 0.1), biases at zero.
"""

from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from pellucid.config.settings import Cell as CellKind
from pellucid.config.settings import EncoderConfig
from pellucid.data.synthetic import NUM_OUTPUTS, SYMBOLS
from pellucid.model.attention import AdditiveAttention
from pellucid.model.bottleneck import InitialCode, RepeatedCode
from pellucid.model.cells import Peepholes, PeepholeState, PeepholeStep, RecurrentCell, late_peephole_step
from pellucid.model.encoder import Encoder
from pellucid.model.memory import Memory
from pellucid.shapes import Float, Int

DecoderKind = Literal["repeat", "initialize", "attention"]
"""Code as input of every step, code as initial state, or attention."""
HIDDEN_SIZE, ATTENTION_SIZE, INIT_STD = 10, 20, 0.1


class DigitsArchitecture(NamedTuple):
    """Architecture of a digit network; the defaults are those of the notebook."""

    decoder: DecoderKind = "repeat"
    cell: CellKind = "gru"
    """Recurrent cell of the encoder."""
    bidirectional: bool = False
    """Bidirectional encoder."""
    merge: Literal["concatenate", "sum", "product"] = "concatenate"
    """Combination of both directions of a bidirectional encoder."""
    embedding: Literal["one-hot", "learned"] = "one-hot"
    """Learned embeddings start as one-hot vectors: the notebook freezes them there."""
    attends_padding: bool = True
    """Attention includes the positions after an input's end, as in the 2016 notebook."""
    initialization: Literal["narrow", "scaled"] = "narrow"
    """Weights from N(0, 0.1), or uniform scaled by size (Glorot & Bengio 2010) with orthogonal recurrent weights."""


class DigitsOutput(NamedTuple):
    """Logits and attention weights for each input."""

    logits: Float[Tensor, "B T V"]
    attention: Float[Tensor, "B T S"] | None
    """None for a decoder without attention."""


class SpelledDigitsNetwork(nn.Module):
    """Network from spelled numbers to digits: encoder, decoder, and a softmax over digits and the end symbol."""

    def __init__(self, architecture: DigitsArchitecture) -> None:
        """Build the network and draw its parameters from PyTorch's generator.

        Args:
            architecture: Decoder, cell, directions, embedding and initialization.
        """
        super().__init__()
        self.architecture = architecture
        self.encoder = _build_encoder(architecture)
        size = HIDDEN_SIZE * (2 if architecture.bidirectional and architecture.merge == "concatenate" else 1)
        self.decoder: nn.Module
        match architecture.decoder:
            case "repeat":
                self.decoder = RepeatedCode(size, HIDDEN_SIZE)
            case "initialize":
                self.decoder = InitialCode(size, HIDDEN_SIZE)
            case "attention":
                self.decoder = ContextDecoder(size, HIDDEN_SIZE, ATTENTION_SIZE)
        self.output = nn.Linear(size if architecture.decoder == "attention" else HIDDEN_SIZE, NUM_OUTPUTS)
        for module in self.modules():
            if isinstance(module, RecurrentCell):
                _freeze_hidden_bias(module)
        if architecture.initialization == "narrow":
            for name, parameter in self.named_parameters():
                (nn.init.zeros_ if "bias" in name else _init_normal)(parameter.data)
        elif isinstance(self.decoder, ContextDecoder):
            self.decoder.init_scaled()
        nn.init.xavier_uniform_(self.output.weight)
        if architecture.embedding == "learned":
            nn.init.eye_(self.encoder.table.weight)

    def forward(self, inputs: Int[Tensor, "B S"], lengths: Int[Tensor, " B"], steps: int) -> DigitsOutput:
        """Return the outputs of `steps` decoder steps for each input.

        Args:
            inputs: Ids of the letters of spelled numbers, padded with 0.
            lengths: Number of letters of each input.
            steps: Number T of decoder steps.

        Returns:
            Logits, and attention weights, which are None for a decoder without attention.
        """
        memory = self.encoder(inputs, lengths)
        if not isinstance(self.decoder, ContextDecoder):
            return DigitsOutput(self.output(self.decoder(memory.final.hidden[:, -1], steps)), None)
        if self.architecture.attends_padding:
            memory = unmask_padding(memory)
        contexts, attention = self.decoder(memory, steps)
        return DigitsOutput(self.output(contexts), attention)


class ContextDecoder(nn.Module):
    """Attention decoder of the 2016 notebook (`LSTMAttentionDecodeFeedbackLayer`), reproduced exactly.

        e_s = vᵀ tanh(W h_{t−1} + U m_s)    α = softmax(e)    z_t = Σ_s α_s m_s    h_t = LSTM(z_t, h_{t−1})

    The context z_t is the only input of the LSTM and of the softmax, so h_t acts only through the next attention step
    and the last h_t is unused. The state starts at zero. The LSTM has peepholes; that of the output gate is added after
    the sigmoid.
    """

    def __init__(
        self, memory_size: int, units: int, attention_units: int, step: PeepholeStep = late_peephole_step
    ) -> None:
        """Create the parameters, which the caller initializes; the gates i, f, g, o are stacked.

        Args:
            memory_size: Size D of an encoder state.
            units: Size H of the LSTM.
            attention_units: Size A of additive attention.
            step: LSTM step: with the late output peephole of the notebook, or the usual one.
        """
        super().__init__()
        self.units, self.lstm_step = units, step
        self.attention = AdditiveAttention(units, memory_size, attention_units)
        self.attention.key_projection.bias.requires_grad_(False).zero_()
        self.context_weight = nn.Parameter(torch.empty(4 * units, memory_size))
        self.hidden_weight = nn.Parameter(torch.empty(4 * units, units))
        self.bias = nn.Parameter(torch.zeros(4 * units))
        self.input_peephole, self.forget_peephole, self.output_peephole = (
            nn.Parameter(torch.empty(units)) for _ in range(3)
        )

    def forward(self, memory: Memory, steps: int) -> tuple[Float[Tensor, "B T D"], Float[Tensor, "B T S"]]:
        """Return the contexts and the attention weights of all steps.

        Args:
            memory: Encoder states; attention covers the positions within their lengths.
            steps: Number T of decoder steps.

        Returns:
            Contexts z and attention weights α of all steps.
        """
        cache = self.attention.build_cache(memory)
        zero = memory.states.new_zeros(len(memory.states), self.units)
        state = PeepholeState(zero, zero)
        peepholes = Peepholes(self.input_peephole, self.forget_peephole, self.output_peephole)
        contexts: list[Tensor] = []
        weights: list[Tensor] = []
        for _ in range(steps):
            attended = self.attention(state.hidden, cache, None)
            contexts.append(attended.context)
            weights.append(attended.weights)
            preactivations = attended.context @ self.context_weight.T + state.hidden @ self.hidden_weight.T + self.bias
            state = self.lstm_step(preactivations, state, peepholes)
        return torch.stack(contexts, dim=1), torch.stack(weights, dim=1)

    def init_scaled(self) -> None:
        """Initialize the context weights of each gate by Glorot & Bengio 2010, its hidden weights as an orthogonal
        matrix, and the peepholes with zero; biases and attention stay as they are.
        """
        for gate in range(4):
            rows = slice(gate * self.units, (gate + 1) * self.units)
            nn.init.xavier_uniform_(self.context_weight.data[rows])
            nn.init.orthogonal_(self.hidden_weight.data[rows])
        for peephole in (self.input_peephole, self.forget_peephole, self.output_peephole):
            nn.init.zeros_(peephole)


def unmask_padding(memory: Memory) -> Memory:
    """Return the memory with padding as real positions, so that attention covers it, as in the 2016 notebook.

    The encoder of the notebook repeats its last state after the end of the input, so padding gets copies of the final
    state, and every length is S.

    Args:
        memory: Encoder states with their lengths.
    """
    width = memory.states.shape[1]
    last = memory.final.hidden[:, -1, None]
    states = torch.where(memory.length_mask()[:, :, None], memory.states, last)
    return memory._replace(states=states, lengths=torch.full_like(memory.lengths, width))


def parameter_shapes(network: nn.Module) -> list[tuple[str, tuple[int, ...]]]:
    """Return name and shape of every trained parameter; frozen ones are left out.

    Args:
        network: The network.
    """
    return [(name, tuple(parameter.shape)) for name, parameter in network.named_parameters() if parameter.requires_grad]


def _build_encoder(architecture: DigitsArchitecture) -> Encoder:
    """Return the encoder with ten units per direction."""
    return Encoder(
        EncoderConfig(
            cell=architecture.cell,
            hidden_size=HIDDEN_SIZE,
            bidirectional=architecture.bidirectional,
            merge=architecture.merge,
            embedding=architecture.embedding,
            embedding_size=len(SYMBOLS),
            dropout=0.0,
        ),
        len(SYMBOLS),
    )


def _freeze_hidden_bias(cell: RecurrentCell) -> None:
    """Leave only the input bias trainable; the hidden bias stays zero."""
    cell.hidden_bias.requires_grad_(False)


def _init_normal(weights: Tensor) -> None:
    """Draw weights from N(0, 0.1)."""
    nn.init.normal_(weights, std=INIT_STD)
