"""Decoders: what all have in common, one step, and the same steps unrolled over known symbols for training.

B batch, S source positions, T target positions, R hypotheses of all sources, E embedding, H hidden, D memory, F what is
fed to the first cell beside the symbol, G all gates (3H or 4H), V vocabulary.
"""

from abc import ABC, abstractmethod
from typing import ClassVar, NamedTuple, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from pellucid.config.settings import AttentionConfig, DecoderConfig
from pellucid.data.vocabulary import UNK
from pellucid.kernels.backend import Computation, Request, parts_given, settings_of
from pellucid.kernels.dispatch import use_kernel
from pellucid.kernels.types import Head, Looked, Parameters
from pellucid.model.attention import (
    AdditiveAttention,
    Attention,
    DotAttention,
    GeneralAttention,
    LocationAttention,
    MonotonicAttention,
    MultiHeadAttention,
    NoAttention,
    ScaledDotAttention,
)
from pellucid.model.embedding import SymbolTable
from pellucid.model.heads import NextSymbol, Reads, TiedSymbol, joined, size_read
from pellucid.model.memory import Attendable, Attended, DecoderKernel, Memory, State, Step, Unrolled
from pellucid.model.pointer_generator import Copying
from pellucid.model.recurrence import (
    GATES,
    NO_NOISE,
    Inputs,
    LayerState,
    Noise,
    Stack,
    cell_kind,
    draw_cells,
    draw_mask,
    output_normalizations,
)
from pellucid.model.requests import kind_of, request_of


class Sizes(NamedTuple):
    """What the rest of the network decides of a decoder."""

    memory: int
    vocabulary: int
    copied: Int[Tensor, " N"] | None = None
    """What each source symbol is called as a target (`copied_ids`), for decoders that copy."""


class Running(NamedTuple):
    """A state taken apart, so that no step copies its layers."""

    layers: list[LayerState]
    looked: Float[Tensor, "R S"] | None = None
    fed: Float[Tensor, "R F"] | None = None

    def whole(self) -> State:
        """The state."""
        cells = [layer.cell for layer in self.layers if layer.cell is not None]
        hidden = torch.stack([layer.hidden for layer in self.layers], dim=1)
        return State(hidden, torch.stack(cells, dim=1) if cells else None, self.fed, self.looked)


class Moved(NamedTuple):
    """Where a step came to: what is carried on, what was seen, and the state that the next symbol is read from."""

    running: Running
    attended: Attended
    output: Float[Tensor, "R H"]


class Made(NamedTuple):
    """What the next symbols are read from, of some steps."""

    outputs: Float[Tensor, "R *steps H"]
    contexts: Float[Tensor, "R *steps D"]
    weights: Float[Tensor, "R *steps S"]


class Decoder(nn.Module, ABC):
    """From the symbols written so far, and a memory, to the next: an order of looking and stepping makes it whole.

    Stacked cells each read the one below: y_l = LN(h_l), residual ones y_l = y_{l−1} + LN(h_l) (Wu et al. 2016, section
    3.1). LN is there where outputs are normalized. Dropout falls on what is read of y, not on the sum.
    """

    def __init__(self, config: DecoderConfig, attention: AttentionConfig, sizes: Sizes, fed: int, reads: Reads) -> None:
        """`fed` numbers are fed to the first cell beside the symbol; `reads` is what the next symbol is read from."""
        super().__init__()
        self.config = config
        self.attention_config = attention
        self.table = SymbolTable(
            config.embedding, sizes.vocabulary, config.embedding_size, config.dropout, config.embedding_dropout
        )
        self.attention = build_attention(attention, config.hidden_size, sizes.memory)
        inputs = [self.table.size] + [config.hidden_size] * (config.num_layers - 1)
        self.cells = Stack(config.cell, inputs, config.hidden_size, cell_kind(config.layer_normalization))
        rows = GATES[config.cell] * config.hidden_size
        self.context_projection = nn.Linear(fed, rows, bias=False) if fed else None
        parts = config.num_layers * (2 if config.cell == "lstm" else 1)
        self.bridge = nn.Linear(sizes.memory, parts * config.hidden_size) if config.init_hidden != "zero" else None
        if config.tie_embeddings:
            self.head: TiedSymbol | NextSymbol = TiedSymbol(
                reads, (config.hidden_size, sizes.memory), self.table.weight
            )
        else:
            self.head = NextSymbol(reads, config.hidden_size, sizes.memory, sizes.vocabulary)
        self.normalizations = output_normalizations(config.layer_normalization, config.num_layers, config.hidden_size)
        self.copying: Copying | None = None
        if config.pointer_generator:
            assert sizes.copied is not None, "a decoder that copies is told what"
            read = config.hidden_size + sizes.memory + self.table.size
            self.copying = Copying(sizes.copied, sizes.vocabulary, read)

    @abstractmethod
    def move(
        self,
        projected: Float[Tensor, "R G"],
        running: Running,
        attendable: Attendable,
        override: Float[Tensor, "R S"] | None,
    ) -> Moved:
        """One step, from the symbol's share of the first cell's gates."""

    def prepare(self, memory: Memory) -> Attendable:
        """The memory with the keys of attention, computed once a source; in training with what dropout takes away."""
        attendable = self.attention.prepare(memory)
        if self.copying is not None:
            attendable = attendable._replace(places=self.copying.places(memory))
        return attendable._replace(noise=self._draw(memory)) if self.training else attendable

    def request(self, computation: Computation, attendable: Attendable) -> Request:
        """Return what is asked of a backend that takes steps over a memory: every setting, layer and optional part."""
        noise = attendable.noise or NO_NOISE
        facts = (
            ("training", self.training),
            ("decoder.kind", kind_of(self)),
            *(("decoder.cell_kind", kind_of(cell)) for cell in self.cells),
            ("decoder.head_kind", kind_of(self.head)),
            ("attention.kind", kind_of(self.attention)),
            *settings_of("decoder", self.config),
            *settings_of("attention", self.attention_config),
            *parts_given("memory", attendable.memory),
            *parts_given("masks", noise),
            *(fact for cell in noise.cells for fact in parts_given("recurrent_mask", cell)),
        )
        return request_of(computation, attendable.keys, facts)

    def start(self, memory: Memory) -> State:
        """s_0: zero, or hidden = tanh(W m + b) and cell = W' m + b' from the final or the mean encoder state m."""
        shape, looked = (
            (len(memory.states), self.config.num_layers, self.config.hidden_size),
            self.attention.start(memory),
        )
        if self.bridge is None:
            zero = memory.states.new_zeros(shape)
            return State(zero, zero if self.config.cell == "lstm" else None, looked=looked)
        if self.config.init_hidden == "mean":
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
        attendable, symbols = attendable.whole(), self.fed(symbols)
        moved = self.move(self.project(symbols, attendable.noise), taken_apart(state), attendable, override)
        made = Made(moved.output, moved.attended.context, moved.attended.weights)
        return Step(self.logits(symbols, made, attendable), moved.running.whole(), moved.attended)

    def unroll(self, symbols: Int[Tensor, "B T"], state: State, attendable: Attendable) -> Unrolled:
        """The same steps over symbols known beforehand (the target shifted by one, BOS first).

        What no step waits for is done for all steps together: the projection of the symbols and the logits.
        """
        symbols = self.fed(symbols)
        running, looks, outputs = taken_apart(state), list[Attended](), list[Tensor]()
        for projected in self.project(symbols, attendable.noise).unbind(dim=1):
            moved = self.move(projected, running, attendable, None)
            running = moved.running
            looks.append(moved.attended)
            outputs.append(moved.output)
        contexts = torch.stack([look.context for look in looks], dim=1)
        weights = torch.stack([look.weights for look in looks], dim=1)
        unrolled = self.unrolled(symbols, Made(torch.stack(outputs, dim=1), contexts, weights), attendable, running)
        heads = [look.heads for look in looks if look.heads is not None]
        return unrolled._replace(heads=torch.stack(heads, dim=1)) if heads else unrolled

    def unrolled(self, symbols: Int[Tensor, "B T"], made: Made, attendable: Attendable, after: Running) -> Unrolled:
        """The logits of all steps, from the symbols fed back and what the steps made of them."""
        made = self._dropped(made, attendable.noise)
        own = self._own_logits(made)
        logits = self.mixed(own, symbols, made, attendable)
        return Unrolled(logits, made.weights, after.whole(), generated=None if self.copying is None else own)

    def fed(self, symbols: Int[Tensor, "R *steps"]) -> Int[Tensor, "R *steps"]:
        """What is fed back of symbols written: UNK for one that was copied and that the vocabulary lacks."""
        return symbols if self.copying is None else torch.where(symbols < len(self.table.weight), symbols, UNK)

    def logits(
        self, symbols: Int[Tensor, "R *steps"], made: Made, attendable: Attendable
    ) -> Float[Tensor, "R *steps W"]:
        """The next symbols' scores, from those fed back and what steps made of them; in training with dropout.

        With copying they are log-probabilities, of V + S symbols.
        """
        made = self._dropped(made, attendable.noise)
        return self.mixed(self._own_logits(made), symbols, made, attendable)

    def mixed(
        self, logits: Float[Tensor, "R *steps V"], symbols: Int[Tensor, "R *steps"], made: Made, attendable: Attendable
    ) -> Float[Tensor, "R *steps W"]:
        """The same where nothing is copied; else ln p of what is written and what is copied, W = V + S."""
        if self.copying is None:
            return logits
        assert attendable.places is not None, "copying was prepared"
        read = torch.cat([made.outputs, made.contexts, self.read(symbols, attendable.noise).spread()], dim=-1)
        log_probabilities: Tensor = self.copying(logits, made.weights, read, attendable.places)
        return log_probabilities

    def read(self, symbols: Int[Tensor, "R *steps"], noise: Noise | None) -> Inputs:
        """The vectors of fed-back symbols."""
        return self.table.read(symbols, None if noise is None else noise.missed)

    def climb(
        self, gates: Float[Tensor, "R G"], layers: list[LayerState], noise: Noise | None
    ) -> tuple[list[LayerState], Float[Tensor, "R H"]]:
        """Take every cell one step, the first from what its gates are given; the new states, and the top's output."""
        advanced: list[LayerState] = []
        output = layers[0].hidden
        for layer, (cell, old) in enumerate(zip(self.cells, layers, strict=True)):
            if layer:
                gates = cell.project(self.dropped(output, layer - 1, noise))
            advanced.append(cell.advance(gates, old) if noise is None else cell.advance(gates, old, noise.cells[layer]))
            risen = self.normalizations[layer](advanced[-1].hidden)
            output = output + risen if self.config.residual and layer else risen
        return advanced, output

    def dropped(
        self, outputs: Float[Tensor, "R *steps H"], layer: int, noise: Noise | None
    ) -> Float[Tensor, "R *steps H"]:
        """Dropout of a layer's outputs, in training: anew at each step, or the same units at all steps."""
        if noise is None or not noise.outputs:
            return nn.functional.dropout(outputs, self.config.dropout, self.training)
        mask = noise.outputs[layer]
        return outputs * (mask if outputs.dim() == mask.dim() else mask[:, None])

    def _dropped(self, made: Made, noise: Noise | None) -> Made:
        """The same with dropout of the top layer's outputs, in training."""
        return made._replace(outputs=self.dropped(made.outputs, self.config.num_layers - 1, noise))

    def _own_logits(self, made: Made) -> Float[Tensor, "R *steps V"]:
        """The head's scores, before anything is copied."""
        if isinstance(self.head, TiedSymbol):
            logits: Tensor = self.head(made.outputs, made.contexts, self.table.weight)
            return logits
        own: Tensor = self.head(made.outputs, made.contexts)
        return own

    def project(self, symbols: Int[Tensor, "R *steps"], noise: Noise | None) -> Float[Tensor, "R *steps G"]:
        """The fed-back symbols' share of the first cell's gates."""
        return self.cells[0].project(self.read(symbols, noise).spread())

    def _draw(self, memory: Memory) -> Noise:
        """What dropout takes away for the sequences of a batch."""
        config, rows = self.config, len(memory.lengths)
        cells = draw_cells([cell.hidden_weight for cell in self.cells], rows, config)
        layers = config.num_layers if config.dropout_mask == "sequence" else 0
        shape = (rows, config.hidden_size)
        outputs = tuple(draw_mask(memory.states, shape, config.dropout) for _ in range(layers))
        return Noise(cells, outputs, self.table.draw_missed(rows))


def taken_apart(state: State) -> Running:
    """A state, layer by layer."""
    hidden = state.hidden.unbind(dim=1)
    cells = state.cell.unbind(dim=1) if state.cell is not None else [None] * len(hidden)
    layers = [LayerState(*parts) for parts in zip(hidden, cells, strict=True)]
    return Running(layers, state.looked, state.context)


def build_attention(config: AttentionConfig, query_size: int, memory_size: int) -> Attention:
    """The attention a configuration names."""
    match config.type:
        case "additive" if config.num_heads > 1:
            return MultiHeadAttention(query_size, memory_size, config.size, config.num_heads)
        case "additive":
            return AdditiveAttention(query_size, memory_size, config.size)
        case "dot":
            return DotAttention()
        case "scaled-dot":
            return ScaledDotAttention()
        case "general":
            return GeneralAttention(query_size, memory_size)
        case "location":
            return LocationAttention(query_size, memory_size, config.size, config.filters, config.filter_radius)
        case "monotonic":
            return MonotonicAttention(query_size, memory_size, config.size)
        case "none":
            return NoAttention()


class AttendThenStep(Decoder):
    """c_t = attention(s_{t−1}), s_t = cell([y_{t−1}; c_t], s_{t−1}), p(y_t) from [s_t; c_t].

    Source: Bahdanau et al. 2015, appendix A.2.2, with stacked cells above the first, each reading the one below.
    """

    kind: ClassVar[str] = "attend-then-step"

    context_projection: nn.Linear

    def __init__(self, config: DecoderConfig, attention: AttentionConfig, sizes: Sizes) -> None:
        """Sizes follow from the configurations, the memory and the number of target symbols."""
        super().__init__(config, attention, sizes, sizes.memory, config.output)

    def prepare(self, memory: Memory) -> Attendable:
        """As any decoder; for answers, laid out as a kernel reads it."""
        attendable = super().prepare(memory)
        if not use_kernel(self.request("step", attendable)):
            return attendable
        from pellucid.kernels.autograd import prepare  # Numba takes a second to import

        parameters = self._step_parameters(self.table.vectors(), attendable.noise)
        return attendable._replace(stepping=prepare(parameters, self._head_parts(), _looked(attendable)))

    def step(
        self,
        symbols: Int[Tensor, " R"],
        state: State,
        attendable: Attendable,
        override: Float[Tensor, "R S"] | None = None,
    ) -> Step:
        """As any decoder; by a kernel where the memory is prepared for one."""
        if attendable.stepping is not None and override is None and not self.training:
            fed = self.fed(symbols)
            step = _step_compiled(fed, state, attendable.stepping)
            made = Made(step.state.hidden[:, -1], step.attended.context, step.attended.weights)
            return step._replace(logits=self.mixed(step.logits, fed, made, attendable))
        return super().step(symbols, state, attendable, override)

    def unroll(self, symbols: Int[Tensor, "B T"], state: State, attendable: Attendable) -> Unrolled:
        """As any decoder; a kernel takes all steps at once where there is one."""
        if use_kernel(self.request("unroll", attendable)):
            return self._unroll_compiled(symbols, state, attendable)
        return super().unroll(symbols, state, attendable)

    def move(
        self,
        projected: Float[Tensor, "R G"],
        running: Running,
        attendable: Attendable,
        override: Float[Tensor, "R S"] | None,
    ) -> Moved:
        """Attend from the top state before, which the look before belongs to; then take every cell one step."""
        attended: Attended = self.attention(running.layers[-1].hidden, attendable, running.looked, override)
        gates = projected + self.context_projection(attended.context)
        layers, output = self.climb(gates, running.layers, attendable.noise)
        return Moved(Running(layers, attended.looked), attended, output)

    def _unroll_compiled(self, symbols: Int[Tensor, "B T"], state: State, attendable: Attendable) -> Unrolled:
        """All steps by a kernel."""
        from pellucid.kernels.autograd import unroll_decoder  # Numba takes a second to import

        symbols = self.fed(symbols)
        inputs, start = self.read(symbols, attendable.noise), taken_apart(state).layers[0]
        parameters, looked = self._step_parameters(inputs.vectors, attendable.noise), _looked(attendable)
        ids = cast(Tensor, inputs.symbols)
        done = unroll_decoder(parameters, ids, looked, start.hidden, start.cell, state.looked)
        last = LayerState(done.last, None if start.cell is None else done.cell)
        after = Running([last], None if state.looked is None else done.weights[:, -1])
        made = Made(self.normalizations[0](done.hidden), done.contexts, done.weights)
        return self.unrolled(symbols, made, attendable, after)

    def _step_parameters(self, vectors: Float[Tensor, "N E"], noise: Noise | None) -> Parameters:
        """What a kernel reads: the symbols' table projected, and the weights of cell and attention."""
        cell, score = self.cells[0], self.attention.query_weights()
        assert score is not None, "an attention without scores has no kernel"
        table = nn.functional.linear(vectors, cell.input_weight, cell.added_bias())
        dropped = None if noise is None else noise.cells[0].weight
        recurrent = cell.hidden_weight if dropped is None else dropped
        return Parameters(table, cell.reset_bias(), recurrent, self.context_projection.weight, *score)

    def _head_parts(self) -> Head:
        """The head as a kernel reads it."""
        return self.head.parts(self.table.weight) if isinstance(self.head, TiedSymbol) else self.head.parts()


def _looked(attendable: Attendable) -> Looked:
    """What a kernel looks at."""
    return Looked(attendable.keys, attendable.memory.states, attendable.memory.lengths)


def _step_compiled(symbols: Int[Tensor, " R"], state: State, prepared: DecoderKernel) -> Step:
    """One step by a kernel."""
    layer = taken_apart(state).layers[0]
    taken = prepared.step(symbols, layer.hidden, layer.cell, state.looked)
    after = LayerState(taken.hidden, None if layer.cell is None else taken.cell)
    looked = None if state.looked is None else taken.looks
    return Step(taken.logits, Running([after], looked).whole(), Attended(taken.contexts, taken.looks, looked))


class StepThenAttend(Decoder):
    """s_t = cell(y_{t−1}, s_{t−1}), c_t = attention(s_t), a_t = tanh(W_c [s_t; c_t]), p(y_t) from a_t.

    With input feeding the cell reads [y_{t−1}; a_{t−1}], a_0 = 0. In a stack, s_t is the output of the top. Source:
    Luong et al. 2015, sections 3 (equation 5), 3.1 and 3.3.
    """

    kind: ClassVar[str] = "step-then-attend"

    def __init__(self, config: DecoderConfig, attention: AttentionConfig, sizes: Sizes) -> None:
        """W_c reads what `config.output` names, and gives as many numbers as a state has."""
        super().__init__(config, attention, sizes, config.hidden_size if config.input_feeding else 0, "state")
        read = size_read(config.output, config.hidden_size, sizes.memory)
        self.combination = nn.Linear(read, config.hidden_size, bias=False)

    def start(self, memory: Memory) -> State:
        """As any decoder; before the first step, nothing was come to."""
        state = super().start(memory)
        return (
            state if self.context_projection is None else state._replace(context=torch.zeros_like(state.hidden[:, 0]))
        )

    def move(
        self,
        projected: Float[Tensor, "R G"],
        running: Running,
        attendable: Attendable,
        override: Float[Tensor, "R S"] | None,
    ) -> Moved:
        """Take every cell one step, attend from the output of the top, and join the two."""
        gates = projected
        if self.context_projection is not None:
            gates = projected + self.context_projection(running.fed)
        layers, top = self.climb(gates, running.layers, attendable.noise)
        attended: Attended = self.attention(top, attendable, running.looked, override)
        combined = torch.tanh(self.combination(joined(self.config.output, top, attended.context)))
        fed = None if self.context_projection is None else combined
        return Moved(Running(layers, attended.looked, fed), attended, combined)
