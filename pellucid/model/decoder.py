"""The decoder: one step, and the same steps unrolled over known symbols for training.

B batch, S source positions, T target positions, R hypotheses of all sources, E embedding, H hidden, D memory, G all
gates (3H or 4H), V vocabulary.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from pellucid.config import AttentionConfig, DecoderConfig
from pellucid.data.vocabulary import UNK
from pellucid.kernels.choice import chosen
from pellucid.kernels.operands import Looked, Parameters, Prepared
from pellucid.model.attention import (
    AdditiveAttention,
    Attention,
    DotAttention,
    GeneralAttention,
    LocationAttention,
    NoAttention,
    ScaledDotAttention,
)
from pellucid.model.copying import Copying
from pellucid.model.embedding import SymbolTable
from pellucid.model.heads import NextSymbol
from pellucid.model.memory import Attendable, Attended, Memory, State, Step, Unrolled
from pellucid.model.monotonic import MonotonicAttention
from pellucid.model.recurrence import GATES, LayerState, Stack

Made = tuple[Tensor, Tensor, Tensor]
"""The states, contexts and weights of some steps."""


class Decoder(nn.Module):
    """Attend, then step: c_t = attention(s_{t−1}), s_t = cell([y_{t−1}; c_t], s_{t−1}), p(y_t) from [s_t; c_t].

    Source: Bahdanau et al. 2015, appendix A.2.2, with stacked cells above the first, each reading the one below.
    """

    def __init__(
        self,
        config: DecoderConfig,
        attention: AttentionConfig,
        memory_size: int,
        vocabulary_size: int,
        copied: Int[Tensor, " N"] | None = None,
    ) -> None:
        """Sizes follow from the configurations, the memory and the number of target symbols.

        With `config.copying`, `copied` is what each source symbol is called as a target (`copied_ids`).
        """
        super().__init__()
        self.config = config
        self.table = SymbolTable(config.embedding, vocabulary_size, config.embedding_size, config.dropout)
        self.attention = build_attention(attention, config.hidden_size, memory_size)
        inputs = [self.table.size] + [config.hidden_size] * (config.layers - 1)
        self.cells = Stack(config.cell, inputs, config.hidden_size)
        self.context_projection = nn.Linear(memory_size, GATES[config.cell] * config.hidden_size, bias=False)
        parts = config.layers * (2 if config.cell == "lstm" else 1)
        self.bridge = nn.Linear(memory_size, parts * config.hidden_size) if config.start != "zero" else None
        self.head = NextSymbol(config.output, config.hidden_size, memory_size, vocabulary_size)
        self.copying: Copying | None = None
        if config.copying:
            assert copied is not None, "a decoder that copies is told what"
            self.copying = Copying(copied, vocabulary_size, config.hidden_size + memory_size + self.table.size)

    def prepare(self, memory: Memory) -> Attendable:
        """The memory with the keys of attention: computed once a source; for answers, laid out as a kernel reads it."""
        attendable = self.attention.prepare(memory)
        if self.copying is not None:
            attendable = attendable._replace(places=self.copying.places(memory))
        if torch.is_grad_enabled() or not self._has_kernel(attendable):
            return attendable
        from pellucid.kernels.stepping import prepare  # Numba takes a second to import

        return attendable._replace(stepping=prepare(self._step_parameters(), self.head.parts(), _looked(attendable)))

    def start(self, memory: Memory) -> State:
        """s_0: zero, or hidden = tanh(W m + b) and cell = W' m + b' from the final or the mean encoder state m."""
        shape, looked = (len(memory.states), self.config.layers, self.config.hidden_size), self.attention.start(memory)
        if self.bridge is None:
            zero = memory.states.new_zeros(shape)
            return State(zero, zero if self.config.cell == "lstm" else None, looked=looked)
        if self.config.start == "mean":
            summary = memory.states.sum(dim=1) / memory.lengths[:, None]
        else:
            summary = memory.final.hidden[:, -1]
        parts = self.bridge(summary).to(summary.dtype).unflatten(-1, (-1, *shape[1:]))
        return State(torch.tanh(parts[:, 0]), parts[:, 1] if self.config.cell == "lstm" else None, looked=looked)

    def step(
        self,
        symbols: Int[Tensor, " R"],
        state: State,
        attendable: Attendable,
        override: Float[Tensor, "R S"] | None = None,
    ) -> Step:
        """One step of any decoding: the symbols written last, the state they left, and the memory.

        There are as many rows as sources, or a multiple: then the hypotheses of each source stand one after the other.
        `override` forces this step's attention weights.
        """
        layers, symbols = _layers(state), self._fed(symbols)
        if attendable.stepping is not None and override is None and not self.training:
            step = _step_compiled(symbols, state, attendable.stepping)
            if self.copying is None:
                return step
            looked = (step.state.hidden[:, -1], *step.attended[:2])
            return step._replace(logits=self._mixed(step.logits, symbols, looked, attendable))
        attended = self._look(layers, attendable.whole(), state.looked, override)
        layers = self._advance(self._project(symbols), layers, attended)
        logits = self._answers(symbols, (layers[-1].hidden, *attended[:2]), attendable)
        return Step(logits, _stacked(layers, attended.looked), attended)

    def unroll(self, symbols: Int[Tensor, "B T"], state: State, attendable: Attendable) -> Unrolled:
        """The same steps over symbols known beforehand (the target shifted by one, BOS first).

        What no step waits for is done for all steps together: the projection of the symbols and the logits. A kernel
        takes all steps at once where there is one: for a single layer with attention.
        """
        symbols = self._fed(symbols)
        if self._has_kernel(attendable):
            return self._unroll_compiled(symbols, state, attendable)
        return self._unroll_plain(symbols, state, attendable)

    def _has_kernel(self, attendable: Attendable) -> bool:
        """Whether kernels take the steps: of a single layer whose attention has scores, where kernels are chosen."""
        return self.config.layers == 1 and chosen(attendable.keys) and self.attention.query_weights() is not None

    def _step_parameters(self) -> Parameters:
        """What a kernel reads: the symbols' table projected, and the weights of cell and attention."""
        cell, score = self.cells[0], self.attention.query_weights()
        assert score is not None, "an attention without scores has no kernel"
        table = nn.functional.linear(self.table.vectors(), cell.input_weight, cell.added_bias())
        return Parameters(table, cell.reset_bias(), cell.hidden_weight, self.context_projection.weight, *score)

    def _unroll_compiled(self, symbols: Int[Tensor, "B T"], state: State, attendable: Attendable) -> Unrolled:
        """All steps by a kernel."""
        from pellucid.kernels.decoding import unroll_decoder  # Numba takes a second to import

        start = _layers(state)[0]
        parameters, looked = self._step_parameters(), _looked(attendable)
        done = unroll_decoder(parameters, symbols, looked, start.hidden, start.cell, state.looked)
        last = LayerState(done.last, None if start.cell is None else done.cell)
        after = _stacked([last], None if state.looked is None else done.weights[:, -1])
        logits = self._answers(symbols, (done.hidden, done.contexts, done.weights), attendable)
        return Unrolled(logits, done.weights, after)

    def _unroll_plain(self, symbols: Int[Tensor, "B T"], state: State, attendable: Attendable) -> Unrolled:
        """Step by step in PyTorch."""
        layers, looked = _layers(state), state.looked
        looks: list[Attended] = []
        tops: list[Float[Tensor, "B H"]] = []
        for projected in self._project(symbols).unbind(dim=1):
            attended = self._look(layers, attendable, looked, None)
            layers, looked = self._advance(projected, layers, attended), attended.looked
            looks.append(attended)
            tops.append(layers[-1].hidden)
        contexts = torch.stack([look.context for look in looks], dim=1)
        weights = torch.stack([look.weights for look in looks], dim=1)
        logits = self._answers(symbols, (torch.stack(tops, dim=1), contexts, weights), attendable)
        return Unrolled(logits, weights, _stacked(layers, looked))

    def _fed(self, symbols: Int[Tensor, "*shape"]) -> Int[Tensor, "*shape"]:
        """What is fed back of symbols written: UNK for one that was copied and that the vocabulary lacks."""
        return symbols if self.copying is None else torch.where(symbols < len(self.table.weight), symbols, UNK)

    def _answers(self, symbols: Int[Tensor, "*shape"], made: Made, attendable: Attendable) -> Float[Tensor, "*shape V"]:
        """One score a symbol, from states, contexts and weights of some steps; with copying log-probabilities."""
        hidden = self._dropped(made[0])
        logits: Tensor = self.head(hidden, made[1])
        return logits if self.copying is None else self._mixed(logits, symbols, (hidden, *made[1:]), attendable)

    def _mixed(
        self, logits: Float[Tensor, "*shape V"], symbols: Int[Tensor, "*shape"], made: Made, attendable: Attendable
    ) -> Float[Tensor, "*shape W"]:
        """ln p of what is written and what is copied, W = V + S."""
        assert self.copying is not None and attendable.places is not None, "copying was prepared"
        hidden, context, weights = made
        read = torch.cat([hidden, context, self.table(symbols)], dim=-1)
        log_probabilities: Tensor = self.copying(logits, weights, read, attendable.places)
        return log_probabilities

    def _project(self, symbols: Int[Tensor, "*shape"]) -> Float[Tensor, "*shape G"]:
        """The fed-back symbols' share of the first cell's gates, its bias included."""
        return nn.functional.linear(self.table(symbols), self.cells[0].input_weight, self.cells[0].input_bias)

    def _look(
        self,
        layers: list[LayerState],
        attendable: Attendable,
        looked: Float[Tensor, "R S"] | None,
        override: Float[Tensor, "R S"] | None,
    ) -> Attended:
        """Attend from the state before, which the look before belongs to."""
        attended: Attended = self.attention(layers[-1].hidden, attendable, looked, override)
        return attended

    def _advance(
        self, projected: Float[Tensor, "R G"], layers: list[LayerState], attended: Attended
    ) -> list[LayerState]:
        """Take every cell one step."""
        gates = projected + self.context_projection(attended.context)
        advanced: list[LayerState] = []
        for cell, old in zip(self.cells, layers, strict=True):
            if advanced:
                below = self._dropped(advanced[-1].hidden)
                gates = nn.functional.linear(below, cell.input_weight, cell.input_bias)
            advanced.append(cell.advance(gates, old))
        return advanced

    def _dropped(self, values: Float[Tensor, "*shape H"]) -> Float[Tensor, "*shape H"]:
        """Dropout, in training."""
        return nn.functional.dropout(values, self.config.dropout, self.training)


def _looked(attendable: Attendable) -> Looked:
    """What a kernel looks at."""
    return Looked(attendable.keys, attendable.memory.states, attendable.memory.lengths)


def _step_compiled(symbols: Int[Tensor, " R"], state: State, prepared: Prepared) -> Step:
    """One step by a kernel."""
    layer = _layers(state)[0]
    taken = prepared.step(symbols, layer.hidden, layer.cell, state.looked)
    after = LayerState(taken.hidden, None if layer.cell is None else taken.cell)
    looked = None if state.looked is None else taken.looks
    return Step(taken.logits, _stacked([after], looked), Attended(taken.contexts, taken.looks, looked))


def _layers(state: State) -> list[LayerState]:
    """A state, layer by layer."""
    hidden = state.hidden.unbind(dim=1)
    cells = state.cell.unbind(dim=1) if state.cell is not None else [None] * len(hidden)
    return [LayerState(*parts) for parts in zip(hidden, cells, strict=True)]


def _stacked(layers: list[LayerState], looked: Float[Tensor, "R S"] | None) -> State:
    """The layers as one state, and what attention carries."""
    cells = [layer.cell for layer in layers if layer.cell is not None]
    hidden = torch.stack([layer.hidden for layer in layers], dim=1)
    return State(hidden, torch.stack(cells, dim=1) if cells else None, looked=looked)


def build_attention(config: AttentionConfig, query_size: int, memory_size: int) -> Attention:
    """The attention a configuration names."""
    match config.score:
        case "additive":
            return AdditiveAttention(query_size, memory_size, config.units)
        case "dot":
            return DotAttention()
        case "scaled-dot":
            return ScaledDotAttention()
        case "general":
            return GeneralAttention(query_size, memory_size)
        case "location":
            return LocationAttention(query_size, memory_size, config.units, config.filters, config.filter_radius)
        case "monotonic":
            return MonotonicAttention(query_size, memory_size, config.units)
        case "none":
            return NoAttention()
