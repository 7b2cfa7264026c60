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
from pellucid.kernels.types import SCORES, AttentionInputs, DecoderWeights, Head
from pellucid.model.attention import build_attention
from pellucid.model.cells import CELLS, LayerState, StackedCells, cell_class
from pellucid.model.embedding import Embedding
from pellucid.model.heads import OutputLayer, Reads, TiedOutputLayer, joined, size_read
from pellucid.model.memory import AttentionCache, AttentionOutput, DecoderKernel, Memory, Seq2SeqOutput, State, Step
from pellucid.model.pointer_generator import PointerGenerator
from pellucid.model.recurrence import (
    NO_MASKS,
    DropoutMasks,
    Inputs,
    draw_mask,
    draw_recurrent_masks,
    output_norms,
)
from pellucid.model.requests import kind_of, request_of


class DecoderDims(NamedTuple):
    """Dimensions of a decoder that the rest of the network decides."""

    memory: int
    vocabulary: int
    copied: Int[Tensor, " N"] | None = None
    """Target id of each source symbol (`copied_ids`), for decoders that copy."""


class UnstackedState(NamedTuple):
    """Decoder state with one tensor per layer, so that no step restacks the layers."""

    layers: list[LayerState]
    attention_state: Float[Tensor, "R S"] | None = None
    input_feed: Float[Tensor, "R F"] | None = None

    def stack(self) -> State:
        """Return the state with the layers stacked."""
        cells = [layer.cell for layer in self.layers if layer.cell is not None]
        hidden = torch.stack([layer.hidden for layer in self.layers], dim=1)
        return State(hidden, torch.stack(cells, dim=1) if cells else None, self.input_feed, self.attention_state)


class DecoderStep(NamedTuple):
    """Results of one step: the state after it, the attention, and the vector that the output layer reads."""

    state: UnstackedState
    attended: AttentionOutput
    output: Float[Tensor, "R H"]


class ReadoutInputs(NamedTuple):
    """Inputs of the output layer, for one or more steps."""

    outputs: Float[Tensor, "R *steps H"]
    contexts: Float[Tensor, "R *steps D"]
    weights: Float[Tensor, "R *steps S"]


class Decoder(nn.Module, ABC):
    """Decoder without the order of attention and step, which its subclasses define.

    Stacked cells each read the one below: y_l = LN(h_l), residual ones y_l = y_{l−1} + LN(h_l) (Wu et al. 2016, section
    3.1). LN is there where outputs are normalized. Dropout falls on what is read of y, not on the sum.
    """

    def __init__(
        self, config: DecoderConfig, attention: AttentionConfig, sizes: DecoderDims, fed: int, reads: Reads
    ) -> None:
        """Build all parts. `fed` numbers enter the first cell beside the symbol; the output layer takes `reads`."""
        super().__init__()
        self.config = config
        self.attention_config = attention
        self.table = Embedding(
            config.embedding, sizes.vocabulary, config.embedding_size, config.dropout, config.embedding_dropout
        )
        self.attention = build_attention(attention, config.hidden_size, sizes.memory)
        inputs = [self.table.size] + [config.hidden_size] * (config.num_layers - 1)
        self.cells = StackedCells(config.cell, inputs, config.hidden_size, cell_class(config.layer_normalization))
        spec = CELLS[config.cell]
        rows = len(spec.gates) * config.hidden_size
        self.context_projection = nn.Linear(fed, rows, bias=False) if fed else None
        parts = config.num_layers * (2 if spec.has_cell_state else 1)
        self.bridge = nn.Linear(sizes.memory, parts * config.hidden_size) if config.init_hidden != "zero" else None
        if config.tie_embeddings:
            self.head: TiedOutputLayer | OutputLayer = TiedOutputLayer(
                reads, (config.hidden_size, sizes.memory), self.table.weight
            )
        else:
            self.head = OutputLayer(reads, config.hidden_size, sizes.memory, sizes.vocabulary)
        self.normalizations = output_norms(config.layer_normalization, config.num_layers, config.hidden_size)
        self.copying: PointerGenerator | None = None
        if config.pointer_generator:
            assert sizes.copied is not None, "a decoder that copies needs the target ids of source symbols"
            read = config.hidden_size + sizes.memory + self.table.size
            self.copying = PointerGenerator(sizes.copied, sizes.vocabulary, read)

    @abstractmethod
    def forward_step(
        self,
        projected: Float[Tensor, "R G"],
        state: UnstackedState,
        attendable: AttentionCache,
        override: Float[Tensor, "R S"] | None,
    ) -> DecoderStep:
        """Take one step from the symbol's part of the first cell's preactivations."""

    def prepare(self, memory: Memory) -> AttentionCache:
        """Return the memory with the keys of attention; in training with dropout masks."""
        attendable = self.attention.prepare(memory)
        if self.copying is not None:
            attendable = attendable._replace(places=self.copying.places(memory))
        return attendable._replace(dropout_masks=self._draw(memory)) if self.training else attendable

    def request(self, computation: Computation, attendable: AttentionCache) -> Request:
        """Return what is asked of a backend that takes steps over a memory: every setting, layer and optional part."""
        masks = attendable.dropout_masks or NO_MASKS
        facts = (
            ("training", self.training),
            ("decoder.kind", kind_of(self)),
            *(("decoder.cell_kind", kind_of(cell)) for cell in self.cells),
            ("decoder.head_kind", kind_of(self.head)),
            ("attention.kind", kind_of(self.attention)),
            *settings_of("decoder", self.config),
            *settings_of("attention", self.attention_config),
            *parts_given("memory", attendable.memory),
            *parts_given("masks", masks),
            *(fact for cell in masks.cells for fact in parts_given("recurrent_mask", cell)),
        )
        return request_of(computation, attendable.keys, facts)

    def init_hidden(self, memory: Memory) -> State:
        """Return s_0: zero, or h = tanh(W m + b) and c = W' m + b' from the final or the mean encoder state m."""
        shape = len(memory.states), self.config.num_layers, self.config.hidden_size
        before, has_cell_state = self.attention.initial_state(memory), CELLS[self.config.cell].has_cell_state
        if self.bridge is None:
            zero = memory.states.new_zeros(shape)
            return State(zero, zero if has_cell_state else None, attention_state=before)
        if self.config.init_hidden == "mean":
            summary = memory.states.sum(dim=1) / memory.lengths[:, None]
        else:
            summary = memory.final.hidden[:, -1]
        parts = self.bridge(summary).to(summary.dtype).unflatten(-1, (-1, *shape[1:]))
        return State(torch.tanh(parts[:, 0]), parts[:, 1] if has_cell_state else None, attention_state=before)

    def step(
        self,
        symbols: Int[Tensor, " R"],
        state: State,
        attendable: AttentionCache,
        override: Float[Tensor, "R S"] | None = None,
    ) -> Step:
        """Take one step of any decoding.

        There are as many rows as sources, or a multiple: then the hypotheses of each source stand one after the other.
        `override` forces this step's attention weights.
        """
        attendable, symbols = attendable.materialize(), self.oov_to_unk(symbols)
        done = self.forward_step(self.project(symbols, attendable.dropout_masks), unstack(state), attendable, override)
        readout = ReadoutInputs(done.output, done.attended.context, done.attended.weights)
        return Step(self.logits(symbols, readout, attendable), done.state.stack(), done.attended)

    def unroll(self, symbols: Int[Tensor, "B T"], state: State, attendable: AttentionCache) -> Seq2SeqOutput:
        """Take the same steps over known symbols (the target shifted by one, BOS first).

        The projection of the symbols and the logits are computed for all steps together.
        """
        symbols = self.oov_to_unk(symbols)
        carried, looks, outputs = unstack(state), list[AttentionOutput](), list[Tensor]()
        for projected in self.project(symbols, attendable.dropout_masks).unbind(dim=1):
            done = self.forward_step(projected, carried, attendable, None)
            carried = done.state
            looks.append(done.attended)
            outputs.append(done.output)
        contexts = torch.stack([look.context for look in looks], dim=1)
        weights = torch.stack([look.weights for look in looks], dim=1)
        readout = ReadoutInputs(torch.stack(outputs, dim=1), contexts, weights)
        unrolled = self.output_of_steps(symbols, readout, attendable, carried)
        heads = [look.heads for look in looks if look.heads is not None]
        return unrolled._replace(heads=torch.stack(heads, dim=1)) if heads else unrolled

    def output_of_steps(
        self, symbols: Int[Tensor, "B T"], readout: ReadoutInputs, attendable: AttentionCache, after: UnstackedState
    ) -> Seq2SeqOutput:
        """Return the logits of all steps, from the symbols fed back and the inputs of the output layer."""
        readout = self._dropped(readout, attendable.dropout_masks)
        own = self._own_logits(readout)
        logits = self.mix_copy(own, symbols, readout, attendable)
        return Seq2SeqOutput(logits, readout.weights, after.stack(), generated=None if self.copying is None else own)

    def oov_to_unk(self, symbols: Int[Tensor, "R *steps"]) -> Int[Tensor, "R *steps"]:
        """Return the symbols with UNK for those that were copied and that the vocabulary lacks."""
        return symbols if self.copying is None else torch.where(symbols < len(self.table.weight), symbols, UNK)

    def logits(
        self, symbols: Int[Tensor, "R *steps"], readout: ReadoutInputs, attendable: AttentionCache
    ) -> Float[Tensor, "R *steps W"]:
        """Return the next symbols' logits, in training with dropout.

        With copying they are log-probabilities of V + S symbols.
        """
        readout = self._dropped(readout, attendable.dropout_masks)
        return self.mix_copy(self._own_logits(readout), symbols, readout, attendable)

    def mix_copy(
        self,
        logits: Float[Tensor, "R *steps V"],
        symbols: Int[Tensor, "R *steps"],
        readout: ReadoutInputs,
        attendable: AttentionCache,
    ) -> Float[Tensor, "R *steps W"]:
        """Return the logits, or log-probabilities over the vocabulary and the copies, W = V + S."""
        if self.copying is None:
            return logits
        assert attendable.places is not None, "copying was prepared"
        read = torch.cat(
            [readout.outputs, readout.contexts, self.embed(symbols, attendable.dropout_masks).to_dense()], dim=-1
        )
        log_probabilities: Tensor = self.copying(logits, readout.weights, read, attendable.places)
        return log_probabilities

    def embed(self, symbols: Int[Tensor, "R *steps"], masks: DropoutMasks | None) -> Inputs:
        """Return the vectors of fed-back symbols."""
        return self.table.embed(symbols, None if masks is None else masks.dropped_tokens)

    def step_layers(
        self, preactivations: Float[Tensor, "R G"], layers: list[LayerState], masks: DropoutMasks | None
    ) -> tuple[list[LayerState], Float[Tensor, "R H"]]:
        """Take every cell one step, the first from its preactivations; return the new states and the top's output."""
        after: list[LayerState] = []
        output = layers[0].hidden
        for layer, (cell, old) in enumerate(zip(self.cells, layers, strict=True)):
            if layer:
                preactivations = cell.project(self.dropped(output, layer - 1, masks))
            after.append(
                cell.step(preactivations, old) if masks is None else cell.step(preactivations, old, masks.cells[layer])
            )
            own = self.normalizations[layer](after[-1].hidden)
            output = output + own if self.config.residual and layer else own
        return after, output

    def dropped(
        self, outputs: Float[Tensor, "R *steps H"], layer: int, masks: DropoutMasks | None
    ) -> Float[Tensor, "R *steps H"]:
        """Return a layer's outputs with dropout, in training: drawn anew at each step, or the same at all steps."""
        if masks is None or not masks.outputs:
            return nn.functional.dropout(outputs, self.config.dropout, self.training)
        mask = masks.outputs[layer]
        return outputs * (mask if outputs.dim() == mask.dim() else mask[:, None])

    def _dropped(self, readout: ReadoutInputs, masks: DropoutMasks | None) -> ReadoutInputs:
        """Return the inputs with dropout of the top layer's outputs, in training."""
        return readout._replace(outputs=self.dropped(readout.outputs, self.config.num_layers - 1, masks))

    def _own_logits(self, readout: ReadoutInputs) -> Float[Tensor, "R *steps V"]:
        """Return the logits of the output layer, before anything is copied."""
        if isinstance(self.head, TiedOutputLayer):
            logits: Tensor = self.head(readout.outputs, readout.contexts, self.table.weight)
            return logits
        own: Tensor = self.head(readout.outputs, readout.contexts)
        return own

    def project(self, symbols: Int[Tensor, "R *steps"], masks: DropoutMasks | None) -> Float[Tensor, "R *steps G"]:
        """Return the part of the first cell's preactivations that fed-back symbols give."""
        return self.cells[0].project(self.embed(symbols, masks).to_dense())

    def _draw(self, memory: Memory) -> DropoutMasks:
        """Return dropout masks for the sequences of a batch."""
        config, rows = self.config, len(memory.lengths)
        cells = draw_recurrent_masks([cell.hidden_weight for cell in self.cells], rows, config)
        layers = config.num_layers if config.dropout_mask == "sequence" else 0
        shape = (rows, config.hidden_size)
        outputs = tuple(draw_mask(memory.states, shape, config.dropout) for _ in range(layers))
        return DropoutMasks(cells, outputs, self.table.draw_dropped_tokens(rows))


def unstack(state: State) -> UnstackedState:
    """Return a state layer by layer."""
    hidden = state.hidden.unbind(dim=1)
    cells = state.cell.unbind(dim=1) if state.cell is not None else [None] * len(hidden)
    layers = [LayerState(*parts) for parts in zip(hidden, cells, strict=True)]
    return UnstackedState(layers, state.attention_state, state.input_feed)


class AttendThenStep(Decoder):
    """c_t = attention(s_{t−1}), s_t = cell([y_{t−1}; c_t], s_{t−1}), p(y_t) from [s_t; c_t].

    Source: Bahdanau et al. 2015, appendix A.2.2, with stacked cells above the first, each reading the one below.
    """

    kind: ClassVar[str] = "attend-then-step"

    context_projection: nn.Linear

    def __init__(self, config: DecoderConfig, attention: AttentionConfig, sizes: DecoderDims) -> None:
        """Dimensions follow from the configurations, the memory and the number of target symbols."""
        super().__init__(config, attention, sizes, sizes.memory, config.output)

    def prepare(self, memory: Memory) -> AttentionCache:
        """Return the memory with the keys of attention; for a search also laid out for a kernel."""
        attendable = super().prepare(memory)
        if self.training or not use_kernel(self.request("step", attendable)):
            return attendable
        from pellucid.kernels.autograd import prepare  # Numba takes a second to import

        weights = self._kernel_weights(self.table.vectors(), attendable.dropout_masks)
        return attendable._replace(kernel=prepare(weights, self._head_parts(), _attention_inputs(attendable)))

    def step(
        self,
        symbols: Int[Tensor, " R"],
        state: State,
        attendable: AttentionCache,
        override: Float[Tensor, "R S"] | None = None,
    ) -> Step:
        """Take one step of any decoding; by a kernel where the memory is prepared for one."""
        if attendable.kernel is not None and override is None and not self.training:
            known = self.oov_to_unk(symbols)
            step = _step_compiled(known, state, attendable.kernel)
            readout = ReadoutInputs(step.state.hidden[:, -1], step.attended.context, step.attended.weights)
            return step._replace(logits=self.mix_copy(step.logits, known, readout, attendable))
        return super().step(symbols, state, attendable, override)

    def unroll(self, symbols: Int[Tensor, "B T"], state: State, attendable: AttentionCache) -> Seq2SeqOutput:
        """Take the same steps over known symbols; by a kernel for all steps at once where one supports them."""
        if use_kernel(self.request("unroll", attendable)):
            return self._unroll_compiled(symbols, state, attendable)
        return super().unroll(symbols, state, attendable)

    def forward_step(
        self,
        projected: Float[Tensor, "R G"],
        state: UnstackedState,
        attendable: AttentionCache,
        override: Float[Tensor, "R S"] | None,
    ) -> DecoderStep:
        """Attend from the top state before, then take every cell one step."""
        attended: AttentionOutput = self.attention(state.layers[-1].hidden, attendable, state.attention_state, override)
        preactivations = projected + self.context_projection(attended.context)
        layers, output = self.step_layers(preactivations, state.layers, attendable.dropout_masks)
        return DecoderStep(UnstackedState(layers, attended.attention_state), attended, output)

    def _unroll_compiled(self, symbols: Int[Tensor, "B T"], state: State, attendable: AttentionCache) -> Seq2SeqOutput:
        """Take all steps by a kernel."""
        from pellucid.kernels.autograd import unroll_decoder  # Numba takes a second to import

        symbols = self.oov_to_unk(symbols)
        inputs, start = self.embed(symbols, attendable.dropout_masks), unstack(state).layers[0]
        weights = self._kernel_weights(inputs.vectors, attendable.dropout_masks)
        ids = cast(Tensor, inputs.symbols)
        given = _attention_inputs(attendable), start.hidden, start.cell, state.attention_state
        done = unroll_decoder(weights, ids, *given)
        last = LayerState(done.last, None if start.cell is None else done.cell)
        after = UnstackedState([last], None if state.attention_state is None else done.weights[:, -1])
        readout = ReadoutInputs(self.normalizations[0](done.hidden), done.contexts, done.weights)
        return self.output_of_steps(symbols, readout, attendable, after)

    def _kernel_weights(self, vectors: Float[Tensor, "N E"], masks: DropoutMasks | None) -> DecoderWeights:
        """Return the parameters that a kernel reads: the projected table, and the weights of cell and attention."""
        cell, score = self.cells[0], SCORES[kind_of(self.attention)]
        table = nn.functional.linear(vectors, cell.input_weight, cell.added_bias())
        dropped = None if masks is None else masks.cells[0].weight
        recurrent = cell.hidden_weight if dropped is None else dropped
        own = table, cell.bias_n(), recurrent, self.context_projection.weight
        return DecoderWeights(cell.layout, score, *own, *self.attention.score_params())

    def _head_parts(self) -> Head:
        """Return the parameters of the output layer as a kernel reads them."""
        return self.head.parts(self.table.weight) if isinstance(self.head, TiedOutputLayer) else self.head.parts()


def _attention_inputs(attendable: AttentionCache) -> AttentionInputs:
    """Return keys and memory for a kernel."""
    return AttentionInputs(attendable.keys, attendable.memory.states, attendable.memory.lengths)


def _step_compiled(symbols: Int[Tensor, " R"], state: State, prepared: DecoderKernel) -> Step:
    """Take one step by a kernel."""
    layer = unstack(state).layers[0]
    done = prepared.step(symbols, layer.hidden, layer.cell, state.attention_state)
    after = LayerState(done.hidden, None if layer.cell is None else done.cell)
    weights = None if state.attention_state is None else done.weights
    attended = AttentionOutput(done.contexts, done.weights, weights)
    return Step(done.logits, UnstackedState([after], weights).stack(), attended)


class StepThenAttend(Decoder):
    """s_t = cell(y_{t−1}, s_{t−1}), c_t = attention(s_t), a_t = tanh(W_c [s_t; c_t]), p(y_t) from a_t.

    With input feeding the cell reads [y_{t−1}; a_{t−1}], a_0 = 0. In a stack, s_t is the output of the top. Source:
    Luong et al. 2015, sections 3 (equation 5), 3.1 and 3.3.
    """

    kind: ClassVar[str] = "step-then-attend"

    def __init__(self, config: DecoderConfig, attention: AttentionConfig, sizes: DecoderDims) -> None:
        """W_c reads what `config.output` names, and gives as many numbers as a state has."""
        super().__init__(config, attention, sizes, config.hidden_size if config.input_feeding else 0, "state")
        read = size_read(config.output, config.hidden_size, sizes.memory)
        self.combination = nn.Linear(read, config.hidden_size, bias=False)

    def init_hidden(self, memory: Memory) -> State:
        """Return s_0; the attentional state before the first step is zero."""
        state = super().init_hidden(memory)
        return (
            state
            if self.context_projection is None
            else state._replace(input_feed=torch.zeros_like(state.hidden[:, 0]))
        )

    def forward_step(
        self,
        projected: Float[Tensor, "R G"],
        state: UnstackedState,
        attendable: AttentionCache,
        override: Float[Tensor, "R S"] | None,
    ) -> DecoderStep:
        """Take every cell one step, attend from the output of the top, and combine the two."""
        preactivations = projected
        if self.context_projection is not None:
            preactivations = projected + self.context_projection(state.input_feed)
        layers, top = self.step_layers(preactivations, state.layers, attendable.dropout_masks)
        attended: AttentionOutput = self.attention(top, attendable, state.attention_state, override)
        combined = torch.tanh(self.combination(joined(self.config.output, top, attended.context)))
        fed = None if self.context_projection is None else combined
        return DecoderStep(UnstackedState(layers, attended.attention_state, fed), attended, combined)
