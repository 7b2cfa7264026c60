"""Decoders: one step, and the same steps unrolled over known symbols for training.

B batch, S source positions, T target positions, R hypotheses of all sources, E embedding, H hidden, D memory, F inputs
of the first cell besides the symbol, G all gates (3H or 4H), V vocabulary, W = V, or V + S with copying, N source ids
or projected vectors.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import ClassVar, NamedTuple, cast

import torch
from torch import Tensor, nn

from pellucid.config.settings import AttentionConfig, DecoderConfig, ReadoutKind, output_layer_input_size
from pellucid.data.vocabulary import UNK
from pellucid.kernels.backend import Computation, ComputationRequest, present_fields, settings_of
from pellucid.kernels.dispatch import use_kernel
from pellucid.kernels.types import (
    SCORES,
    AttentionInputs,
    DecoderParameters,
    KernelDecoderState,
    KernelStepOutput,
    OutputLayerParameters,
)
from pellucid.model.attention import build_attention
from pellucid.model.cells import LayerState, StackedCells, cell_class, get_cell_spec
from pellucid.model.embedding import Embedding
from pellucid.model.linear import linear
from pellucid.model.memory import (
    AttentionOutput,
    DecoderCache,
    DecoderState,
    DecoderStepOutput,
    Memory,
    NetworkOutput,
    SampledOutputs,
)
from pellucid.model.output_layers import OutputLayer, TiedOutputLayer, select_inputs
from pellucid.model.pointer_generator import PointerGenerator
from pellucid.model.recurrence import (
    NO_MASKS,
    DropoutMasks,
    InputVectors,
    draw_mask,
    draw_recurrent_masks,
    output_norms,
)
from pellucid.model.requests import kind_of, request_of
from pellucid.shapes import Float, Int


class DecoderSizes(NamedTuple):
    """Sizes of a decoder that the rest of the network determines."""

    memory_size: int
    """D, the size of an encoder state."""
    vocabulary_size: int
    """V, the number of target ids."""
    source_to_target: Int[Tensor, " N"] | None = None
    """Target id of each source id (`target_ids_of_source_ids`); None for decoders without a pointer-generator."""


class UnstackedState(NamedTuple):
    """Decoder state with one tensor per layer; `Decoder.unroll` stacks it once, after the last step."""

    layers: list[LayerState]
    """State of each layer, from the bottom."""
    attention_state: Float[Tensor, "R ..."] | None = None
    input_feed: Float[Tensor, "R F"] | None = None

    def stack(self) -> DecoderState:
        """Return the state with the layers stacked."""
        cells = [layer.cell_state for layer in self.layers if layer.cell_state is not None]
        hidden = torch.stack([layer.hidden for layer in self.layers], dim=1)
        return DecoderState(hidden, torch.stack(cells, dim=1) if cells else None, self.input_feed, self.attention_state)


class StepWithoutLogits(NamedTuple):
    """Result of `Decoder.step_without_logits`: the state, the attention, and the vector that the output layer reads."""

    state: UnstackedState
    attention: AttentionOutput
    output: Float[Tensor, "R H"]


class ReadoutInputs(NamedTuple):
    """Inputs of the output layer (the readout of Bahdanau et al. 2015), for one or more steps."""

    outputs: Float[Tensor, "R *steps H"]
    """Output of the top layer; with step-then-attend the attentional state a_t."""
    contexts: Float[Tensor, "R *steps D"]
    """Contexts of attention."""
    weights: Float[Tensor, "R *steps S"]
    """Attention weights, which a pointer-generator reads."""


class Decoder(nn.Module, ABC):
    """Base of all decoders; subclasses define the order of attention and step.

    Each stacked cell reads the output of the one below: y_l = LN(h_l), with residuals y_l = y_{l−1} + LN(h_l) (Wu et
    al. 2016, section 3.1). LN is present if outputs are normalized. Dropout is applied to the y that is read, not to
    the sum. Attention uses the top layer: the query is its previous state h in attend-then-step, and its output y in
    step-then-attend.

    References:
        Query from the top layer: Luong et al. 2015, section 3 ("the hidden state h_t at the top layer of a stacking
        LSTM"). Wu et al. 2016, section 3, attend from the bottom layer instead and feed the context to all layers.
    """

    def __init__(
        self,
        config: DecoderConfig,
        attention: AttentionConfig,
        sizes: DecoderSizes,
        extra_input_size: int,
        output_layer_inputs: ReadoutKind,
    ) -> None:
        """Build all parts.

        Args:
            config: Configuration of the decoder.
            attention: Configuration of the attention.
            sizes: Sizes of memory and vocabulary.
            extra_input_size: F, the number of inputs of the first cell besides the symbol.
            output_layer_inputs: Inputs of the output layer.
        """
        super().__init__()
        self.config = config
        self.attention_config = attention
        self.table = Embedding(
            config.embedding, sizes.vocabulary_size, config.embedding_size, config.dropout, config.embedding_dropout
        )
        self.attention = build_attention(attention, config.hidden_size, sizes.memory_size)
        inputs = [self.table.size] + [config.hidden_size] * (config.num_layers - 1)
        self.cells = StackedCells(config.cell, inputs, config.hidden_size, cell_class(config.layer_normalization))
        spec = get_cell_spec(config.cell)
        rows = len(spec.gates) * config.hidden_size
        # Projection of the context, or with input feeding of the attentional vector, into the first cell.
        self.context_projection = nn.Linear(extra_input_size, rows, bias=False) if extra_input_size else None
        parts = config.num_layers * (2 if spec.has_cell_state else 1)
        self.bridge = nn.Linear(sizes.memory_size, parts * config.hidden_size) if config.init_hidden != "zero" else None
        # The output layer is `head` and the embedding is `table` in the names of saved parameters.
        if config.tie_embeddings:
            self.head: TiedOutputLayer | OutputLayer = TiedOutputLayer(
                output_layer_inputs, config.hidden_size, sizes.memory_size, self.table.weight
            )
        else:
            self.head = OutputLayer(output_layer_inputs, config.hidden_size, sizes.memory_size, sizes.vocabulary_size)
        self.normalizations = output_norms(config.layer_normalization, config.num_layers, config.hidden_size)
        self.copying: PointerGenerator | None = None
        if config.pointer_generator:
            assert sizes.source_to_target is not None, (
                "a decoder with a pointer-generator needs the target ids of source symbols"
            )
            gate_size = config.hidden_size + sizes.memory_size + self.table.size
            self.copying = PointerGenerator(sizes.source_to_target, sizes.vocabulary_size, gate_size)

    def vocabulary_tensors(self) -> dict[str, Tensor]:
        """Return the parameters and buffers with one row per target symbol, by their names in this module."""
        table = {"table.weight": self.table.weight}
        if isinstance(self.head, TiedOutputLayer):
            return {**table, "head.bias": self.head.bias}
        projection = self.head.projection
        return {**table, "head.projection.weight": projection.weight, "head.projection.bias": projection.bias}

    @abstractmethod
    def step_without_logits(
        self,
        projected: Float[Tensor, "R G"],
        state: UnstackedState,
        cache: DecoderCache,
        forced_weights: Float[Tensor, "R S"] | None,
    ) -> StepWithoutLogits:
        """Take one step without the output layer: attention and all cells.

        Args:
            projected: The symbol's part of the first cell's preactivations, as `project_symbols` returns it.
            state: State before the step.
            cache: Memory and keys.
            forced_weights: Attention weights that replace those of the step; None if there is none.
        """

    def build_cache(self, memory: Memory) -> DecoderCache:
        """Return what all steps share: the memory, the keys of attention, and the ids that can be copied.

        In training mode it also draws the dropout masks.

        Args:
            memory: Encoder output.
        """
        cache = self.attention.build_cache(memory)
        if self.copying is not None:
            cache = cache._replace(copy_ids=self.copying.copy_ids(memory))
        return cache._replace(dropout_masks=self._draw_masks(memory)) if self.training else cache

    def request(self, computation: Computation, cache: DecoderCache) -> ComputationRequest:
        """Return the request for a computation over a memory; every setting, layer and optional field is a property.

        Args:
            computation: Kind of computation.
            cache: Memory and keys.
        """
        masks = cache.dropout_masks or NO_MASKS
        config = self.config
        is_normalized_single_layer = config.num_layers == 1 and config.layer_normalization == "outputs"
        properties = (
            ("training", self.training),
            ("decoder.kind", kind_of(self)),
            *(("decoder.cell_kind", kind_of(cell)) for cell in self.cells),
            ("decoder.output_layer_kind", kind_of(self.head)),
            ("decoder.is_normalized_single_layer", is_normalized_single_layer),
            ("attention.kind", kind_of(self.attention)),
            *settings_of("decoder", self.config),
            *settings_of("attention", self.attention_config),
            *present_fields("memory", cache.memory),
            *present_fields("masks", masks),
            *(mask for cell in masks.cells for mask in present_fields("recurrent_mask", cell)),
        )
        return request_of(computation, cache.keys, properties)

    def init_state(self, memory: Memory) -> DecoderState:
        """Return s_0: zero, or h = tanh(W m + b) and c = W' m + b' from the final or the mean encoder state m.

        `DecoderConfig.init_hidden` selects one. m is the final state of the top layer, or the mean over positions.

        Args:
            memory: Encoder output.
        """
        shape = len(memory.states), self.config.num_layers, self.config.hidden_size
        attention_state = self.attention.initial_attention_state(memory)
        has_cell_state = get_cell_spec(self.config.cell).has_cell_state
        if self.bridge is None:
            zero = memory.states.new_zeros(shape)
            return DecoderState(zero, zero if has_cell_state else None, attention_state=attention_state)
        summary = memory.summary("mean" if self.config.init_hidden == "mean" else "final")
        parts = self.bridge(summary).to(summary.dtype).unflatten(-1, (-1, *shape[1:]))
        return DecoderState(
            torch.tanh(parts[:, 0]), parts[:, 1] if has_cell_state else None, attention_state=attention_state
        )

    def step(
        self,
        symbols: Int[Tensor, " R"],
        state: DecoderState,
        cache: DecoderCache,
        forced_weights: Float[Tensor, "R S"] | None = None,
    ) -> DecoderStepOutput:
        """Take one step for all hypotheses, and compute the logits of the next symbols.

        Args:
            symbols: Symbol fed back, for each hypothesis. There are as many hypotheses as sources, or a multiple;
                those of a source are consecutive.
            state: State before the step.
            cache: Memory and keys, as `build_cache` returns them.
            forced_weights: Attention weights that replace those of the step; None if there is none.

        Returns:
            The logits of the next symbols, the state after the step, and context and weights of attention.
        """
        cache, symbols = cache.materialize(), self.oov_to_unk(symbols)
        result = self.step_without_logits(
            self.project_symbols(symbols, cache.dropout_masks), unstack(state), cache, forced_weights
        )
        readout = ReadoutInputs(result.output, result.attention.context, result.attention.weights)
        return DecoderStepOutput(self.logits(symbols, readout, cache), result.state.stack(), result.attention)

    def unroll(self, symbols: Int[Tensor, "B T"], state: DecoderState, cache: DecoderCache) -> NetworkOutput:
        """Take all steps over known symbols, as in training (teacher forcing).

        The projections of the symbols and the logits are computed for all steps at once.

        Args:
            symbols: The target shifted right, BOS first.
            state: State before the first step.
            cache: Memory and keys, as `build_cache` returns them.
        """
        symbols = self.oov_to_unk(symbols)
        current = unstack(state)
        attentions = list[AttentionOutput]()
        outputs = list[Tensor]()
        all_projected = self.project_symbols(symbols, cache.dropout_masks)
        layer_masks = self.draw_layer_masks(symbols, cache)
        for step, projected in enumerate(all_projected.unbind(dim=1)):
            result = self.step_without_logits(projected, current, _with_step_masks(cache, layer_masks, step), None)
            current = result.state
            attentions.append(result.attention)
            outputs.append(result.output)
        contexts = torch.stack([attention.context for attention in attentions], dim=1)
        weights = torch.stack([attention.weights for attention in attentions], dim=1)
        readout = ReadoutInputs(torch.stack(outputs, dim=1), contexts, weights)
        unrolled = self.output_of_steps(symbols, readout, cache, current)
        heads = [attention.heads for attention in attentions if attention.heads is not None]
        return unrolled._replace(heads=torch.stack(heads, dim=1)) if heads else unrolled

    def output_of_steps(
        self, symbols: Int[Tensor, "B T"], readout: ReadoutInputs, cache: DecoderCache, final_state: UnstackedState
    ) -> NetworkOutput:
        """Apply the output layer to all steps, and return the result of `unroll` without the weights of heads.

        The logits are those of all symbols, or of `cache.sampled_outputs` alone.

        Args:
            symbols: Symbols fed back.
            readout: Inputs of the output layer, before dropout.
            cache: Memory and keys.
            final_state: State after the last step.
        """
        readout = self._drop_readout(readout, cache.dropout_masks)
        if cache.sampled_outputs is not None:
            assert self.copying is None, "a pointer-generator needs the logits of all symbols"
            logits, target_logits = self._sampled_logits(readout, cache.sampled_outputs)
            return NetworkOutput(logits, readout.weights, final_state.stack(), target_logits=target_logits)
        vocabulary_logits = self._vocabulary_logits(readout)
        logits = self.mix_copy(vocabulary_logits, symbols, readout, cache)
        return NetworkOutput(
            logits,
            readout.weights,
            final_state.stack(),
            vocabulary_logits=None if self.copying is None else vocabulary_logits,
        )

    def oov_to_unk(self, symbols: Int[Tensor, "R *steps"]) -> Int[Tensor, "R *steps"]:
        """Return the symbols, with UNK for copied symbols outside the vocabulary, which have no embedding.

        Args:
            symbols: Ids of the vocabulary or the extended vocabulary.
        """
        return symbols if self.copying is None else torch.where(symbols < len(self.table.weight), symbols, UNK)

    def logits(
        self, symbols: Int[Tensor, "R *steps"], readout: ReadoutInputs, cache: DecoderCache
    ) -> Float[Tensor, "R *steps W"]:
        """Return the logits of the next symbols; with copying, the log-probabilities of W = V + S symbols.

        In training mode, dropout is applied to the outputs of the top layer.

        Args:
            symbols: Symbols fed back.
            readout: Inputs of the output layer.
            cache: Memory and keys.
        """
        readout = self._drop_readout(readout, cache.dropout_masks)
        return self.mix_copy(self._vocabulary_logits(readout), symbols, readout, cache)

    def mix_copy(
        self,
        logits: Float[Tensor, "R *steps V"],
        symbols: Int[Tensor, "R *steps"],
        readout: ReadoutInputs,
        cache: DecoderCache,
    ) -> Float[Tensor, "R *steps W"]:
        """Return the logits unchanged, or with copying the log-probabilities of W = V + S symbols and positions.

        Args:
            logits: Logits over the vocabulary.
            symbols: Symbols fed back.
            readout: Inputs of the output layer.
            cache: Memory and keys.
        """
        if self.copying is None:
            return logits
        assert cache.copy_ids is not None, "expected the cache that `build_cache` returns"
        gate_inputs = torch.cat(
            [readout.outputs, readout.contexts, self.embed(symbols, cache.dropout_masks).to_dense()], dim=-1
        )
        log_probabilities: Tensor = self.copying(logits, readout.weights, gate_inputs, cache.copy_ids)
        return log_probabilities

    def embed(self, symbols: Int[Tensor, "R *steps"], masks: DropoutMasks | None) -> InputVectors:
        """Return the embeddings of fed-back symbols, as a table and the row of each symbol.

        Args:
            symbols: Ids of the vocabulary.
            masks: Dropout masks; None outside training.
        """
        return self.table.embed(symbols, None if masks is None else masks.dropped_symbols)

    def step_layers(
        self, preactivations: Float[Tensor, "R G"], layers: list[LayerState], masks: DropoutMasks | None
    ) -> tuple[list[LayerState], Float[Tensor, "R H"]]:
        """Take one step of every cell; return the new states and the top layer's output.

        Args:
            preactivations: W x + b of the first cell, before U h is added.
            layers: States before the step.
            masks: Dropout masks; None outside training.
        """
        new_states: list[LayerState] = []
        output = layers[0].hidden
        for layer, (cell, old_state) in enumerate(zip(self.cells, layers, strict=True)):
            if layer:
                preactivations = cell.project(self.apply_dropout(output, layer - 1, masks))
            new_states.append(
                cell.step(preactivations, old_state)
                if masks is None
                else cell.step(preactivations, old_state, masks.cells[layer])
            )
            layer_output = self.normalizations[layer](new_states[-1].hidden)
            output = output + layer_output if self.config.residual and layer else layer_output
        return new_states, output

    def apply_dropout(
        self, outputs: Float[Tensor, "R *steps H"], layer: int, masks: DropoutMasks | None
    ) -> Float[Tensor, "R *steps H"]:
        """Return a layer's outputs, in training mode with dropout: drawn for each number, or the same at all steps.

        Args:
            outputs: Outputs of the layer.
            layer: Index of the layer.
            masks: Dropout masks; None outside training.
        """
        if masks is None or not masks.outputs:
            return nn.functional.dropout(outputs, self.config.dropout, self.training)
        mask = masks.outputs[layer]
        return outputs * (mask if outputs.dim() == mask.dim() else mask[:, None])

    def draw_layer_masks(
        self, symbols: Int[Tensor, "B T"], cache: DecoderCache
    ) -> Float[Tensor, "layers B *steps H"] | None:
        """Return the dropout masks of the outputs that the next layer reads; None without dropout or upper layers.

        They are drawn for all steps at once, so that kernels and PyTorch drop the same numbers. There is one step if a
        mask holds for a whole sequence.

        Args:
            symbols: Symbols fed back.
            cache: Memory, keys and the masks that are the same at all steps.
        """
        config = self.config
        masks = cache.dropout_masks
        num_read = config.num_layers - 1
        if masks is None or not num_read or not config.dropout:
            return None
        if masks.outputs:
            return torch.stack(masks.outputs[:num_read]).unsqueeze(2)
        return draw_mask(cache.memory.states, (num_read, *symbols.shape, config.hidden_size), config.dropout)

    def _drop_readout(self, readout: ReadoutInputs, masks: DropoutMasks | None) -> ReadoutInputs:
        """Return the inputs of the output layer, in training with dropout of the top layer's outputs."""
        return readout._replace(outputs=self.apply_dropout(readout.outputs, self.config.num_layers - 1, masks))

    def _vocabulary_logits(self, readout: ReadoutInputs) -> Float[Tensor, "R *steps V"]:
        """Return the logits of the output layer, before copies are mixed in."""
        if isinstance(self.head, TiedOutputLayer):
            logits: Tensor = self.head(readout.outputs, readout.contexts, self.table.weight)
            return logits
        untied_logits: Tensor = self.head(readout.outputs, readout.contexts)
        return untied_logits

    def _sampled_logits(
        self, readout: ReadoutInputs, sampled: SampledOutputs
    ) -> tuple[Float[Tensor, "B T C"], Float[Tensor, "B T"]]:
        """Return the logits of the sampled symbols and of the targets."""
        if isinstance(self.head, TiedOutputLayer):
            return self.head.sampled_logits(readout.outputs, readout.contexts, self.table.weight, sampled)
        return self.head.sampled_logits(readout.outputs, readout.contexts, sampled)

    def project_symbols(
        self, symbols: Int[Tensor, "R *steps"], masks: DropoutMasks | None
    ) -> Float[Tensor, "R *steps G"]:
        """Return W x + b of the first cell for embedded symbols x: its preactivations before U h is added.

        A `NormalizedCell` adds b later.

        Args:
            symbols: Ids of the vocabulary.
            masks: Dropout masks; None outside training.
        """
        return self.cells[0].project(self.embed(symbols, masks).to_dense())

    def _draw_masks(self, memory: Memory) -> DropoutMasks:
        """Return dropout masks for the sequences of a batch."""
        config = self.config
        rows = len(memory.lengths)
        cells = draw_recurrent_masks([cell.hidden_weight for cell in self.cells], rows, config)
        layers = config.num_layers if config.dropout_mask == "sequence" else 0
        shape = (rows, config.hidden_size)
        outputs = tuple(draw_mask(memory.states, shape, config.dropout) for _ in range(layers))
        return DropoutMasks(cells, outputs, self.table.draw_dropped_symbols(rows))


def _with_step_masks(
    cache: DecoderCache, layer_masks: Float[Tensor, "layers B *steps H"] | None, step: int
) -> DecoderCache:
    """Return the cache with the dropout masks of one step, as `Decoder.draw_layer_masks` returns them for all."""
    if layer_masks is None or cache.dropout_masks is None:
        return cache
    step_masks = layer_masks[:, :, min(step, layer_masks.shape[2] - 1)].unbind()
    return cache._replace(dropout_masks=cache.dropout_masks._replace(outputs=step_masks))


def unstack(state: DecoderState) -> UnstackedState:
    """Return a state with one tensor per layer: the inverse of `UnstackedState.stack`.

    Args:
        state: State with stacked layers.
    """
    hidden = state.hidden.unbind(dim=1)
    cells = state.cell_state.unbind(dim=1) if state.cell_state is not None else [None] * len(hidden)
    layers = [LayerState(*parts) for parts in zip(hidden, cells, strict=True)]
    return UnstackedState(layers, state.attention_state, state.input_feed)


class AttendThenStep(Decoder):
    """c_t = attention(s_{t−1}), s_t = cell([y_{t−1}; c_t], s_{t−1}), p(y_t) from [s_t; c_t].

    References:
        Bahdanau et al. 2015, appendix A.2.2, with stacked cells above the first, each reading the one below.
    """

    kind: ClassVar[str] = "attend-then-step"

    context_projection: nn.Linear

    def __init__(self, config: DecoderConfig, attention: AttentionConfig, sizes: DecoderSizes) -> None:
        """Build all parts; the context is the input of the first cell besides the symbol.

        Args:
            config: Configuration of the decoder.
            attention: Configuration of the attention.
            sizes: Sizes of memory and vocabulary.
        """
        super().__init__(config, attention, sizes, sizes.memory_size, config.output_layer_inputs)

    def build_cache(self, memory: Memory) -> DecoderCache:
        """Return the cache of `Decoder.build_cache`; outside training with the arrays of a kernel, if one supports it.

        Args:
            memory: Encoder output.
        """
        cache = super().build_cache(memory)
        if self.training or not use_kernel(self.request("step", cache)):
            return cache
        from pellucid.kernels.tensor_functions import prepare_decoder  # Numba takes a second to import

        weights = self._kernel_weights(self.table.vectors(), cache.dropout_masks)
        weights = self._with_norms(weights, self.config.num_layers)
        return cache._replace(
            kernel=prepare_decoder(weights, self._output_layer_parameters(), _attention_inputs(cache))
        )

    def step(
        self,
        symbols: Int[Tensor, " R"],
        state: DecoderState,
        cache: DecoderCache,
        forced_weights: Float[Tensor, "R S"] | None = None,
    ) -> DecoderStepOutput:
        """Take one step for all hypotheses; a kernel computes it if the cache has one and no weights are forced.

        Args:
            symbols: Symbol fed back, for each hypothesis.
            state: State before the step.
            cache: Memory and keys, as `build_cache` returns them.
            forced_weights: Attention weights that replace those of the step; None if there is none.
        """
        if cache.kernel is not None and forced_weights is None and not self.training:
            known_symbols = self.oov_to_unk(symbols)
            result = cache.kernel.step(known_symbols, state.hidden, state.cell_state, state.attention_state)
            readout = ReadoutInputs(result.outputs, result.contexts, result.weights)
            return _from_kernel_output(result, state, self.mix_copy(result.logits, known_symbols, readout, cache))
        return super().step(symbols, state, cache, forced_weights)

    def unroll(self, symbols: Int[Tensor, "B T"], state: DecoderState, cache: DecoderCache) -> NetworkOutput:
        """Take all steps over known symbols; a kernel computes them at once if one supports the request.

        Args:
            symbols: The target shifted right, BOS first.
            state: State before the first step.
            cache: Memory and keys, as `build_cache` returns them.
        """
        if use_kernel(self.request("unroll", cache)):
            return self._unroll_kernel(symbols, state, cache)
        return super().unroll(symbols, state, cache)

    def step_without_logits(
        self,
        projected: Float[Tensor, "R G"],
        state: UnstackedState,
        cache: DecoderCache,
        forced_weights: Float[Tensor, "R S"] | None,
    ) -> StepWithoutLogits:
        """Attend from the previous top state, then take one step of every cell.

        Args:
            projected: The symbol's part of the first cell's preactivations.
            state: State before the step.
            cache: Memory and keys.
            forced_weights: Attention weights that replace those of the step; None if there is none.
        """
        attention: AttentionOutput = self.attention(
            state.layers[-1].hidden, cache, state.attention_state, forced_weights
        )
        preactivations = projected + self.context_projection(attention.context)
        layers, output = self.step_layers(preactivations, state.layers, cache.dropout_masks)
        return StepWithoutLogits(UnstackedState(layers, attention.attention_state), attention, output)

    def _unroll_kernel(self, symbols: Int[Tensor, "B T"], state: DecoderState, cache: DecoderCache) -> NetworkOutput:
        """Return the logits, attention weights and final state of all steps, which a kernel takes."""
        from pellucid.kernels.tensor_functions import unroll_decoder  # Numba takes a second to import

        symbols = self.oov_to_unk(symbols)
        inputs = self.embed(symbols, cache.dropout_masks)
        layer_masks = self.draw_layer_masks(symbols, cache)
        weights = self._kernel_weights(inputs.vectors, cache.dropout_masks)
        # The output of the top layer is normalized after all steps.
        weights = self._with_norms(weights, self.config.num_layers - 1)
        initial_state = KernelDecoderState(state.hidden, state.cell_state, state.attention_state)
        table_rows = cast(Tensor, inputs.rows)
        attention_inputs = _attention_inputs(cache)
        results = unroll_decoder(weights, table_rows, attention_inputs, initial_state, layer_masks)
        hidden = [results.states, *results.upper_states.unbind()]
        cells = [None] * len(hidden) if state.cell_state is None else results.final_cell_state.unbind(dim=1)
        layers = [LayerState(states[:, -1], cell) for states, cell in zip(hidden, cells, strict=True)]
        final_state = UnstackedState(layers, None if state.attention_state is None else results.weights[:, -1])
        readout = ReadoutInputs(self._top_output(hidden), results.contexts, results.weights)
        return self.output_of_steps(symbols, readout, cache, final_state)

    def _top_output(self, hidden: list[Float[Tensor, "B T H"]]) -> Float[Tensor, "B T H"]:
        """Return the output of the top layer from the hidden states of all layers."""
        if not self.config.residual:
            top: Tensor = self.normalizations[-1](hidden[-1])
            return top
        output: Tensor = self.normalizations[0](hidden[0])
        for layer in range(1, len(hidden)):
            output = output + self.normalizations[layer](hidden[layer])
        return output

    def _kernel_weights(self, vectors: Float[Tensor, "N E"], masks: DropoutMasks | None) -> DecoderParameters:
        """Return the parameters that a kernel reads: projected embeddings, and weights of cells and attention."""
        cell = self.cells[0]
        score = SCORES[kind_of(self.attention)]
        projected_inputs = linear(vectors, cell.input_weight, cell.added_bias())
        recurrent = [
            each.hidden_weight if mask is None or mask.weight is None else mask.weight
            for each, mask in zip(self.cells, (None,) * len(self.cells) if masks is None else masks.cells, strict=True)
        ]
        cell_weights = projected_inputs, cell.bias_n(), recurrent[0], self.context_projection.weight
        parameters = DecoderParameters(cell.layout, score, *cell_weights, *self.attention.score_params())
        upper = [self.cells[layer] for layer in range(1, len(self.cells))]
        if not upper:
            return parameters
        return parameters._replace(
            upper_inputs=torch.stack([each.input_weight for each in upper]),
            upper_biases=torch.stack([each.added_bias() for each in upper]),
            upper_bias_n=torch.stack([each.bias_n() for each in upper]),
            upper_recurrent=torch.stack(recurrent[1:]),
            residual=self.config.residual,
        )

    def _with_norms(self, parameters: DecoderParameters, layers: int) -> DecoderParameters:
        """Return the parameters of a kernel with those of the layer normalization of the first layers, if any."""
        if self.config.layer_normalization != "outputs" or not layers:
            return parameters
        norms = cast(Iterable[nn.LayerNorm], self.normalizations[:layers])
        weights, biases = zip(*((norm.weight, norm.bias) for norm in norms), strict=True)
        return parameters._replace(norm_weights=torch.stack(weights), norm_biases=torch.stack(biases))

    def _output_layer_parameters(self) -> OutputLayerParameters:
        """Return the parameters of the output layer as a kernel reads them."""
        return (
            self.head.kernel_parameters(self.table.weight)
            if isinstance(self.head, TiedOutputLayer)
            else self.head.kernel_parameters()
        )


def _attention_inputs(cache: DecoderCache) -> AttentionInputs:
    """Return keys, memory and lengths for a kernel."""
    return AttentionInputs(cache.keys, cache.memory.states, cache.memory.lengths)


def _from_kernel_output(
    result: KernelStepOutput, before: DecoderState, logits: Float[Tensor, "R W"]
) -> DecoderStepOutput:
    """Return the results of a step that a kernel took from a state, with these logits."""
    cell_state = None if before.cell_state is None else result.cell_state
    weights = None if before.attention_state is None else result.weights
    state = DecoderState(result.hidden, cell_state, attention_state=weights)
    return DecoderStepOutput(logits, state, AttentionOutput(result.contexts, result.weights, weights))


class StepThenAttend(Decoder):
    """s_t = cell(y_{t−1}, s_{t−1}), c_t = attention(s_t), a_t = tanh(W_c [s_t; c_t]), p(y_t) from a_t.

    With input feeding the cell reads [y_{t−1}; a_{t−1}], a_0 = 0. In a stack, s_t is the output of the top layer.

    References:
        Luong et al. 2015, sections 3 (equation 5), 3.1 and 3.3.
    """

    kind: ClassVar[str] = "step-then-attend"

    def __init__(self, config: DecoderConfig, attention: AttentionConfig, sizes: DecoderSizes) -> None:
        """Build all parts; W_c reads what `config.output_layer_inputs` names (state, context or both), and returns a_t.

        Args:
            config: Configuration of the decoder.
            attention: Configuration of the attention.
            sizes: Sizes of memory and vocabulary.
        """
        super().__init__(config, attention, sizes, config.hidden_size if config.input_feeding else 0, "state")
        input_size = output_layer_input_size(config.output_layer_inputs, config.hidden_size, sizes.memory_size)
        self.combination = nn.Linear(input_size, config.hidden_size, bias=False)

    def init_state(self, memory: Memory) -> DecoderState:
        """Return s_0 as `Decoder.init_state` does; with input feeding, the attentional state a_0 is zero.

        Args:
            memory: Encoder output.
        """
        state = super().init_state(memory)
        return (
            state
            if self.context_projection is None
            else state._replace(input_feed=torch.zeros_like(state.hidden[:, 0]))
        )

    def step_without_logits(
        self,
        projected: Float[Tensor, "R G"],
        state: UnstackedState,
        cache: DecoderCache,
        forced_weights: Float[Tensor, "R S"] | None,
    ) -> StepWithoutLogits:
        """Take one step of every cell, attend from the output of the top layer, and combine the two.

        Args:
            projected: The symbol's part of the first cell's preactivations.
            state: State before the step.
            cache: Memory and keys.
            forced_weights: Attention weights that replace those of the step; None if there is none.
        """
        preactivations = projected
        if self.context_projection is not None:
            preactivations = projected + self.context_projection(state.input_feed)
        layers, top = self.step_layers(preactivations, state.layers, cache.dropout_masks)
        attention: AttentionOutput = self.attention(top, cache, state.attention_state, forced_weights)
        combined = torch.tanh(self.combination(select_inputs(self.config.output_layer_inputs, top, attention.context)))
        input_feed = None if self.context_projection is None else combined
        return StepWithoutLogits(UnstackedState(layers, attention.attention_state, input_feed), attention, combined)
