"""The networks of the digit lessons, as their authors built them, and the variants that their exercises ask for.

B batch, S input positions, T target positions, D memory, H hidden units, A attention units, V symbols written.

All of them read one-hot symbols, have one bias a gate, and feed no symbol back: what is written at t depends on the
source alone. The authors' weights start as N(0, 0.1), their biases at zero.
"""

from typing import Literal, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from pellucid.config.settings import Cell as CellKind
from pellucid.config.settings import EncoderConfig
from pellucid.data.synthetic import OUTPUTS, SYMBOLS
from pellucid.model.attention import AdditiveAttention
from pellucid.model.bottleneck import InitialCode, RepeatedCode
from pellucid.model.cells import Peepholes, PeepholeState, PeepholeStep, RecurrentCell, late_peephole_step
from pellucid.model.encoder import Encoder
from pellucid.model.memory import Memory

Kind = Literal["repeat", "initialize", "attention"]
"""The code at every step, the code as the first state, or attention."""
UNITS, ATTENTION_UNITS, SPREAD = 10, 20, 0.1


class Design(NamedTuple):
    """Which network: the lessons' own, unless told otherwise."""

    decoder: Kind = "repeat"
    cell: CellKind = "gru"
    """The cell of the encoder."""
    directions: Literal["forward", "both"] = "forward"
    merge: Literal["concatenate", "sum", "product"] = "concatenate"
    embedding: Literal["one-hot", "learned"] = "one-hot"
    """Learned ones start as one-hot: the lesson's line that froze them, taken away."""
    attends_padding: bool = True
    """Whether attention sees what lies beyond an input's end, as the 2016 notebook's did."""
    initial: Literal["narrow", "scaled"] = "narrow"
    """Weights from N(0, 0.1), or uniform by their sizes (Glorot & Bengio 2010), orthogonal from state to state."""


class Written(NamedTuple):
    """What a network writes for each input, and where it looked."""

    logits: Float[Tensor, "B T V"]
    attention: Float[Tensor, "B T S"] | None


class DigitsNetwork(nn.Module):
    """Encoder, decoder, and a softmax over digits and the end."""

    def __init__(self, design: Design) -> None:
        """Build the network and draw its parameters from PyTorch's generator."""
        super().__init__()
        self.design = design
        self.encoder = _encoder(design)
        size = UNITS * (2 if design.directions == "both" and design.merge == "concatenate" else 1)
        self.decoder: nn.Module
        match design.decoder:
            case "repeat":
                self.decoder = RepeatedCode(size, UNITS)
            case "initialize":
                self.decoder = InitialCode(size, UNITS)
            case "attention":
                self.decoder = ContextDecoder(size, UNITS, ATTENTION_UNITS)
        self.output = nn.Linear(size if design.decoder == "attention" else UNITS, OUTPUTS)
        for module in self.modules():
            if isinstance(module, RecurrentCell):
                _one_bias(module)
        if design.initial == "narrow":
            for name, parameter in self.named_parameters():
                (nn.init.zeros_ if "bias" in name else _spread)(parameter.data)
        elif isinstance(self.decoder, ContextDecoder):
            self.decoder.scale()
        nn.init.xavier_uniform_(self.output.weight)
        if design.embedding == "learned":
            nn.init.eye_(self.encoder.table.weight)

    def forward(self, inputs: Int[Tensor, "B S"], lengths: Int[Tensor, " B"], steps: int) -> Written:
        """So many symbols for each input."""
        memory = self.encoder(inputs, lengths)
        if not isinstance(self.decoder, ContextDecoder):
            return Written(self.output(self.decoder(memory.final.hidden[:, -1], steps)), None)
        if self.design.attends_padding:
            memory = with_padding(memory)
        contexts, attention = self.decoder(memory, steps)
        return Written(self.output(contexts), attention)


class ContextDecoder(nn.Module):
    """The attention decoder of the 2016 notebook, `LSTMAttentionDecodeFeedbackLayer`, to the letter.

        e_s = vᵀ tanh(W h_{t−1} + U m_s)    α = softmax(e)    z_t = Σ_s α_s m_s    h_t = LSTM(z_t, h_{t−1})

    The context z_t is all that the LSTM reads and all that the softmax sees, so h_t speaks only through the next look;
    the last one is never used. The state starts at zero, the LSTM has peepholes, the output gate's added late.
    """

    def __init__(
        self, memory_size: int, units: int, attention_units: int, step: PeepholeStep = late_peephole_step
    ) -> None:
        """The gates i, f, g, o lie one below the other; `step` says which LSTM it is."""
        super().__init__()
        self.units, self.take = units, step
        self.attention = AdditiveAttention(units, memory_size, attention_units)
        self.attention.key_projection.bias.requires_grad_(False).zero_()
        self.context_weight = nn.Parameter(torch.empty(4 * units, memory_size))
        self.hidden_weight = nn.Parameter(torch.empty(4 * units, units))
        self.bias = nn.Parameter(torch.zeros(4 * units))
        self.enter_peephole, self.forget_peephole, self.leave_peephole = (
            nn.Parameter(torch.empty(units)) for _ in range(3)
        )

    def forward(self, memory: Memory, steps: int) -> tuple[Float[Tensor, "B T D"], Float[Tensor, "B T S"]]:
        """The contexts of all steps, and the weights."""
        attendable = self.attention.prepare(memory)
        zero = memory.states.new_zeros(len(memory.states), self.units)
        state, peepholes = (
            PeepholeState(zero, zero),
            Peepholes(self.enter_peephole, self.forget_peephole, self.leave_peephole),
        )
        contexts: list[Tensor] = []
        weights: list[Tensor] = []
        for _ in range(steps):
            looked = self.attention(state.hidden, attendable, None)
            contexts.append(looked.context)
            weights.append(looked.weights)
            sums = looked.context @ self.context_weight.T + state.hidden @ self.hidden_weight.T + self.bias
            state = self.take(sums, state, peepholes)
        return torch.stack(contexts, dim=1), torch.stack(weights, dim=1)

    def scale(self) -> None:
        """Take weights of a size that keeps the size of what passes through, gate by gate; peepholes start shut."""
        for gate in range(4):
            rows = slice(gate * self.units, (gate + 1) * self.units)
            nn.init.xavier_uniform_(self.context_weight.data[rows])
            nn.init.orthogonal_(self.hidden_weight.data[rows])
        for peephole in (self.enter_peephole, self.forget_peephole, self.leave_peephole):
            nn.init.zeros_(peephole)


def with_padding(memory: Memory) -> Memory:
    """The memory as if its padding were real: a masked encoder carries its last state through to the end."""
    width = memory.states.shape[1]
    last = memory.final.hidden[:, -1, None]
    states = torch.where(memory.mask()[:, :, None], memory.states, last)
    return memory._replace(states=states, lengths=torch.full_like(memory.lengths, width))


def parameters_of(network: nn.Module) -> list[tuple[str, tuple[int, ...]]]:
    """Every trained parameter and its shape."""
    return [(name, tuple(each.shape)) for name, each in network.named_parameters() if each.requires_grad]


def _encoder(design: Design) -> Encoder:
    """The encoder of ten units a direction."""
    return Encoder(
        EncoderConfig(
            cell=design.cell,
            hidden_size=UNITS,
            bidirectional=design.directions == "both",
            merge=design.merge,
            embedding=design.embedding,
            embedding_size=len(SYMBOLS),
            dropout=0.0,
        ),
        len(SYMBOLS),
    )


def _one_bias(cell: RecurrentCell) -> None:
    """Only the input's bias is trained; the other stays zero."""
    cell.hidden_bias.requires_grad_(False)


def _spread(weights: Tensor) -> None:
    """N(0, 0.1)."""
    nn.init.normal_(weights, std=SPREAD)
