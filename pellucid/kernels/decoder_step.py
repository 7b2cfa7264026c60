"""One decoder step of all hypotheses of a search: attend from the previous state, then step the cell; no gradients.

B sources, b of them active, R hypotheses (a multiple of b), S source positions, A units of the keys, D memory, H
hidden, L layers, V vocabulary. C, N and M are lengths of optional arrays, and 0 without them: C = R for cell states;
N = R for the attention weights of the previous step; N = V and M = V for the matrices of the output layer.
"""

from functools import partial
from typing import NamedTuple

import numpy as np

from pellucid.kernels.argument_checks import check_decoder, check_output_layer
from pellucid.kernels.arithmetic import Flat, gemm, gemm_add
from pellucid.kernels.attention import (
    AttentionScorer,
    KeyMatrix,
    LocationBuffers,
    attention_scorer,
    attention_weights,
    location_buffers,
    prepare_keys,
    project_queries,
)
from pellucid.kernels.cells import FlatState, GateBuffers, cell_forward
from pellucid.kernels.compilation import njit, njit_no_refcount
from pellucid.kernels.runtime import concat_rows, contiguous, defer_signals, num_slices, split_rows, thread_map
from pellucid.kernels.stacked_layers import UpperCells, layer_output, upper_preactivations
from pellucid.kernels.types import (
    DOT_PRODUCT,
    GRU,
    NO_ROWS,
    AttentionInputs,
    DecoderParameters,
    KernelDecoderState,
    KernelStepOutput,
    OutputLayerParameters,
)
from pellucid.kernels.unroll import DecoderCellParameters, StackedStates, cell_parameters, compute_preactivations
from pellucid.shapes import Float, Int


class SearchAttention(NamedTuple):
    """Score, keys and memory of a search. The memory keeps its order: the contexts of one source are one product."""

    scorer: AttentionScorer
    keys: KeyMatrix
    """Keys as `prepare_keys` returns them."""
    memory: Float[np.ndarray, "B S D"]
    lengths: Int[np.ndarray, " B"]
    rows: Int[np.ndarray, " b"]
    """Indices of the active sources; a search drops finished sources without copying keys or memory."""


class SearchState(NamedTuple):
    """State of the hypotheses before a step, as contiguous arrays, layers first."""

    hidden: Float[np.ndarray, "L R H"]
    cell_state: Float[np.ndarray, "L C H"]
    """Cell state; without rows where the cell has none."""
    attention_state: Float[np.ndarray, "N S"]
    """Attention weights of the previous step; without rows unless the score is location-sensitive."""

    def slice_rows(self, rows: slice) -> "SearchState":
        """Return the state of some rows.

        Args:
            rows: Slice of the rows.
        """
        hidden, cell_state = (contiguous(array[:, rows]) for array in (self.hidden, self.cell_state))
        return SearchState(hidden, cell_state, self.attention_state[rows])


class TransposedOutputLayer(NamedTuple):
    """Parameters of the output layer: W_h and W_c transposed, and b; a matrix that it does not use has no columns."""

    state: Float[np.ndarray, "H N"]
    context: Float[np.ndarray, "D M"]
    bias: Flat


class PreparedDecoder(NamedTuple):
    """Parameters and sources of a search, arranged as kernels read them at every step."""

    parameters: DecoderCellParameters
    output_layer: TransposedOutputLayer
    attention: SearchAttention

    def index_select(self, rows: Int[np.ndarray, " r"]) -> "PreparedDecoder":
        """Return the decoder with a selection of the active sources; neither keys nor memory are copied.

        Args:
            rows: Indices among the active sources.
        """
        return self._replace(attention=self.attention._replace(rows=self.attention.rows[rows]))

    def step(
        self,
        symbols: Int[np.ndarray, " R"],
        hidden: Float[np.ndarray, "R L H"],
        cell_state: Float[np.ndarray, "R L H"] | None,
        attention_state: Float[np.ndarray, "R S"] | None = None,
    ) -> KernelStepOutput:
        """Return states, contexts, attention weights and logits of one step of all hypotheses.

        Each active source has the same number of hypotheses, which are consecutive.

        Args:
            symbols: Previous symbol of each hypothesis: an id of the vocabulary, which is not checked at each step.
            hidden: h, as many rows as symbols.
            cell_state: c, of the same shape; None where the cell has none.
            attention_state: Attention weights of the previous step; only the location-sensitive score reads them.

        Raises:
            AssertionError: The score is location-sensitive and `attention_state` is None.
        """
        has_weights = not self.attention.scorer.layout.reads_weights or attention_state is not None
        assert has_weights, "a location-sensitive score needs the previous weights"
        state = search_state(KernelDecoderState(hidden, cell_state, attention_state))
        task = partial(_step_rows, self, contiguous(symbols), state)
        active = len(self.attention.rows)
        parts = thread_map(task, split_rows(active, min(active, num_slices(len(hidden)))))
        rows_first = (
            output._replace(hidden=output.hidden.swapaxes(0, 1), cell_state=output.cell_state.swapaxes(0, 1))
            for output in (KernelStepOutput(*part) for part in parts)
        )
        return KernelStepOutput(*(concat_rows(arrays) for arrays in zip(*rows_first, strict=True)))


def prepare_decoder_numpy(
    parameters: DecoderParameters, output_layer: OutputLayerParameters, inputs: AttentionInputs
) -> PreparedDecoder:
    """Return a decoder with all sources active, arranged as kernels read it at every step.

    Args:
        parameters: Parameters of the decoder's step.
        output_layer: Parameters of the output layer.
        inputs: Keys, memory and lengths of the sources.

    Raises:
        ArgumentError: An argument has a wrong type, the shapes do not fit each other, or a length is out of range.
    """
    check_decoder(parameters, inputs)
    check_output_layer(parameters, output_layer, inputs.memory.shape[2])
    _, memory, lengths = (contiguous(array) for array in inputs)
    state, context = contiguous(output_layer.state.T), contiguous(output_layer.context.T)
    with defer_signals():
        keys = prepare_keys(inputs.keys, lengths, parameters.score_layout)
    attention = SearchAttention(attention_scorer(parameters), keys, memory, lengths, np.arange(len(keys)))
    return PreparedDecoder(
        cell_parameters(parameters), TransposedOutputLayer(state, context, output_layer.bias), attention
    )


def search_state(state: KernelDecoderState) -> SearchState:
    """Return the state before a step as contiguous arrays, layers first; absent parts have no rows.

    Args:
        state: State, rows first.
    """
    hidden = contiguous(state.hidden.swapaxes(0, 1))
    weights = state.attention_state
    cell_state = (
        np.empty((len(hidden), 0, hidden.shape[2]), np.float32)
        if state.cell_state is None
        else contiguous(state.cell_state.swapaxes(0, 1))
    )
    return SearchState(hidden, cell_state, NO_ROWS if weights is None else contiguous(weights))


def _step_rows(
    decoder: PreparedDecoder, symbols: Int[np.ndarray, " R"], state: SearchState, active_rows: slice
) -> tuple[np.ndarray, ...]:
    """Take the step of a slice of the active sources."""
    attention = decoder.attention
    num_hypotheses = len(symbols) // len(decoder.attention.rows)
    rows = slice(active_rows.start * num_hypotheses, active_rows.stop * num_hypotheses)
    active = attention._replace(rows=attention.rows[active_rows])
    return step(decoder.parameters, decoder.output_layer, active, symbols[rows], state.slice_rows(rows))


@njit
def step(
    parameters: DecoderCellParameters,
    output_layer: TransposedOutputLayer,
    attention: SearchAttention,
    symbols: Int[np.ndarray, " R"],
    state: SearchState,
) -> tuple[
    Float[np.ndarray, "L R H"],
    Float[np.ndarray, "L C H"],
    Float[np.ndarray, "R D"],
    Float[np.ndarray, "R S"],
    Float[np.ndarray, "R V"],
    Float[np.ndarray, "R H"],
]:
    """Take one step of all hypotheses, in the calling thread.

    Args:
        parameters: Parameters of the cells.
        output_layer: Parameters of the output layer.
        attention: Attention score, keys and memory.
        symbols: Previous symbol of each hypothesis.
        state: State before the step.

    Returns:
        h', c' (without rows where the cell has none), contexts, attention weights, logits, and the top layer's output.
    """
    hidden, cell_state, attention_state = state
    scorer = attention.scorer
    before = hidden[0]
    query_state = hidden[hidden.shape[0] - 1]
    rows = hidden.shape[1]
    after, cell_after = np.empty(hidden.shape, np.float32), np.empty(cell_state.shape, np.float32)
    contexts = np.empty((rows, attention.memory.shape[2]), np.float32)
    attn_weights = np.zeros((rows, attention.memory.shape[1]), np.float32)
    location = location_buffers(scorer, attention.memory.shape[1])
    if scorer.layout.projects_query:
        queries = np.empty((rows, attention.keys.shape[1]), np.float32)
        project_queries(scorer, query_state, queries)
        attend_hypotheses(attention, queries, attention_state, location, attn_weights, contexts)
    else:
        attend_hypotheses(attention, query_state, attention_state, location, attn_weights, contexts)
    buffers = np.empty((parameters.layout.buffers, before.size), np.float32)
    compute_preactivations(parameters, symbols, contexts, before, buffers, 0)
    cell_forward(
        parameters.layout,
        buffers,
        0,
        FlatState(before.ravel(), cell_state[0].ravel()),
        FlatState(after[0].ravel(), cell_after[0].ravel()),
    )
    outputs = after[0]
    if hidden.shape[0] > 1 or parameters.upper.norm_weights.shape[0] > 0:
        outputs = np.empty(before.shape, np.float32)
        _step_upper_layers(parameters.upper, state, StackedStates(after, cell_after), buffers, outputs)
    return after, cell_after, contexts, attn_weights, logits_of(output_layer, outputs, contexts), outputs


@njit_no_refcount
def _step_upper_layers(
    cells: UpperCells,
    state: SearchState,
    after: StackedStates,
    buffers: GateBuffers,
    outputs: Float[np.ndarray, "R H"],
) -> None:
    """Take the step of the layers above the first, and write the output of the top layer.

    Args:
        cells: Parameters of the layers.
        state: State before the step.
        after: h' and c' of all layers; those of the first layer are given.
        buffers: Scratch memory for the gates of one layer.
        outputs: Output of the top layer.
    """
    layer_output(cells, 0, after.hidden[0], outputs)
    for layer in range(1, after.hidden.shape[0]):
        before, cell_before = state.hidden[layer], state.cell_state[layer]
        upper_preactivations(cells, layer - 1, outputs, before, buffers, 0)
        states_before = FlatState(before.reshape(-1), cell_before.reshape(-1))
        states_after = FlatState(after.hidden[layer].reshape(-1), after.cell_state[layer].reshape(-1))
        cell_forward(cells.layout, buffers, 0, states_before, states_after)
        layer_output(cells, layer, after.hidden[layer], outputs)


@njit_no_refcount
def attend_hypotheses(
    attention: SearchAttention,
    queries: Float[np.ndarray, "R A"],
    attention_state: Float[np.ndarray, "N S"],
    buffers: LocationBuffers,
    attn_weights: Float[np.ndarray, "R S"],
    contexts: Float[np.ndarray, "R D"],
) -> None:
    """Compute the attention weights α of every hypothesis, and the contexts Σ_s α_s h_s.

    Args:
        attention: Attention score, keys and memory.
        queries: Queries as `project_queries` computes them; the hidden states for dot products.
        attention_state: Weights of the previous step; without rows unless the score is location-sensitive.
        buffers: Scratch memory as `location_buffers` returns it.
        attn_weights: Output: zeros that become α.
        contexts: Output.
    """
    num_hypotheses = queries.shape[0] // attention.rows.shape[0]
    scorer = attention.scorer
    for index in range(attention.rows.shape[0]):
        row = attention.rows[index]
        first = index * num_hypotheses
        length = attention.lengths[row]
        for query in range(first, first + num_hypotheses):
            query_weights = attn_weights[query, :length]
            previous_weights = attention_state[query, :length] if scorer.layout.reads_weights else query_weights
            attention_weights(scorer, attention.keys[row], queries[query], previous_weights, buffers, query_weights)
        if num_hypotheses == 1:
            _weighted_sum(attention.memory[row], attn_weights[first, :length], contexts[first])
        else:
            source_weights = attn_weights[first : first + num_hypotheses, :length]
            gemm(source_weights, attention.memory[row, :length], contexts[first : first + num_hypotheses])


@njit_no_refcount
def _weighted_sum(memory: Float[np.ndarray, "S D"], weights: Flat, context: Flat) -> None:
    """Compute Σ α h of one hypothesis, four positions at once: half the time of a product if units are few."""
    context[:] = 0
    num_grouped = weights.shape[0] // 4 * 4
    for s in range(0, num_grouped, 4):
        first, second, third, fourth = memory[s], memory[s + 1], memory[s + 2], memory[s + 3]
        a, b, c, d = weights[s], weights[s + 1], weights[s + 2], weights[s + 3]
        for unit in range(context.shape[0]):
            context[unit] += a * first[unit] + b * second[unit] + c * third[unit] + d * fourth[unit]
    for s in range(num_grouped, weights.shape[0]):
        state, weight = memory[s], weights[s]
        for unit in range(context.shape[0]):
            context[unit] += weight * state[unit]


@njit
def logits_of(
    output_layer: TransposedOutputLayer, outputs: Float[np.ndarray, "R H"], contexts: Float[np.ndarray, "R D"]
) -> Float[np.ndarray, "R V"]:
    """Return the logits W_h y + W_c c + b of all hypotheses.

    Args:
        output_layer: Parameters of the output layer.
        outputs: Output y of the top layer, after the step.
        contexts: c.
    """
    logits = np.empty((outputs.shape[0], output_layer.bias.shape[0]), np.float32)
    for row in range(outputs.shape[0]):
        logits[row] = output_layer.bias
    if output_layer.state.shape[1] > 0:
        gemm_add(outputs, output_layer.state, logits)
    if output_layer.context.shape[1] > 0:
        gemm_add(contexts, output_layer.context, logits)
    return logits


def warm_up() -> None:
    """Compile every kernel of this module by running the smallest example."""
    empty = np.zeros((3, 1), np.float32)
    square = np.zeros((1, 1), np.float32)
    one = np.ones(1, np.int64)
    parameters = DecoderParameters(GRU, DOT_PRODUCT, np.zeros((2, 3), np.float32), square[0], empty, empty)
    output_layer = OutputLayerParameters(square, square, square[0])
    inputs = AttentionInputs(square[None], square[None], one)
    prepare_decoder_numpy(parameters, output_layer, inputs).step(one, square[None], None)
