"""Decoder steps over known symbols, forward and backward, spread over threads: attend from the state, then step.

B rows, T steps, S source positions, A units of the query, D memory, H hidden, L layers, U = L − 1 layers above the
first, P buffers of a step, Q gates, G = Q·H, V target symbols, F = T·B·H, T1 = T + 1, R rows of a slice. C, N, M and K
are lengths of optional arrays, and 0 without them: C = B for cell states, N = B if the score reads weights, M = U with
dropout, K = B if gradients of keys are added; in dropout masks, K is 1 or T.

Training uses it (teacher forcing). Gradients of matrices are products over all steps and are computed by the caller,
tensor_functions.py; the steps store the factors in place of the values of the forward pass.
"""

from functools import partial
from typing import NamedTuple

import numpy as np

from pellucid.kernels.arithmetic import Flat, add_, gemm_add, gemm_tn
from pellucid.kernels.attention import (
    AttentionForwardValues,
    AttentionGradients,
    AttentionScorer,
    AttentionScorerGradients,
    LocationBuffers,
    UnrollAttention,
    attention_backward,
    attention_forward,
    attention_scorer,
    exp_2x,
    location_buffers,
    positions_innermost,
    prepare_keys,
    project_queries,
)
from pellucid.kernels.cells import FlatState, GateBuffers, cell_backward, cell_forward
from pellucid.kernels.compilation import njit, njit_no_refcount
from pellucid.kernels.recurrence import (
    add_recurrent,
    add_recurrent_backward,
    by_gate,
    by_gate_t,
    gather_inputs,
    scatter_add,
)
from pellucid.kernels.runtime import concat_rows, contiguous, num_slices, split_rows, thread_map
from pellucid.kernels.stacked_layers import (
    LayerOutput,
    UpperCells,
    UpperGradients,
    UpperTape,
    upper_cells,
    upper_layers_backward,
    upper_layers_forward,
)
from pellucid.kernels.types import (
    DOT_PRODUCT,
    GRU,
    NO_ROWS,
    Array,
    CellLayout,
    DecoderOutput,
    DecoderParameters,
)
from pellucid.shapes import Float, Int

NO_MASK_ARRAY = np.empty((0, 0, 0, 0), np.float32)
"""Dropout masks of a decoder without dropout between its layers."""


class DecoderCellParameters(NamedTuple):
    """Parameters of the decoder's cells, gate by gate; those ending in `_t` are transposed, for the forward pass.

    All but `upper` are those of the first layer.
    """

    layout: CellLayout
    projected_inputs: Float[np.ndarray, "V G"]
    """W x + b of the embedding x of each target symbol, with every bias except `bias_n`."""
    bias_n: Flat
    """Hidden bias of the gate `layout.gated`; empty where the cell has no such gate."""
    recurrent: Float[np.ndarray, "Q H H"]
    """U of each gate."""
    context: Float[np.ndarray, "Q H D"]
    """C of each gate, the weights of the context."""
    recurrent_t: Float[np.ndarray, "Q H H"]
    context_t: Float[np.ndarray, "Q D H"]
    upper: UpperCells
    """Parameters of the layers above the first."""
    bfloat16: bool
    """Whether products are in bfloat16, with sums in float32."""


class DecoderTape(NamedTuple):
    """Results of the steps, and values for the backward pass. The states begin with the initial one.

    States and buffers are those of the first layer; `upper` holds those of the others.
    """

    hidden: Float[np.ndarray, "T1 B H"]
    cell_state: Float[np.ndarray, "T1 C H"]
    queries: Float[np.ndarray, "T B A"]
    """Queries as `project_queries` computes them; none for a dot product, whose query is the state before."""
    contexts: Float[np.ndarray, "T B D"]
    weights: Float[np.ndarray, "B T S"]
    buffers: GateBuffers
    upper: UpperTape


class DecoderOutputGradients(NamedTuple):
    """Gradients of the fields of `DecoderOutput`, of all rows; None where nothing depends on a field."""

    states: Float[np.ndarray, "B T H"] | None = None
    contexts: Float[np.ndarray, "B T D"] | None = None
    weights: Float[np.ndarray, "B T S"] | None = None
    final_cell_state: Float[np.ndarray, "C L H"] | None = None
    upper_states: Float[np.ndarray, "U B T H"] | None = None


class StackedStates(NamedTuple):
    """h and c of all layers, layers first."""

    hidden: Float[np.ndarray, "L B H"]
    cell_state: Float[np.ndarray, "L C H"]
    """Without rows where the cell has none."""


class TapeGradients(NamedTuple):
    """Gradients of the steps' results of a slice, steps first, which `unroll_backward` overwrites."""

    hidden: Float[np.ndarray, "T1 B H"]
    """Gradients of the hidden states after each step, at the indices from 1 on; index 0 becomes the initial state's."""
    cell_state: Float[np.ndarray, "C H"]
    """Gradient of the last cell state; becomes that of the initial one."""
    contexts: Float[np.ndarray, "T B D"]
    """Gradients of the contexts from the output layer; the backward pass adds those from the cell."""
    weights: Float[np.ndarray, "B T S"]
    """Without rows if nothing depends on the weights."""
    upper: UpperGradients
    """Gradients of the states of the layers above the first."""


class TapeAndGradients(NamedTuple):
    """Results of all steps and their gradients, which the backward pass overwrites."""

    tape: DecoderTape
    gradients: TapeGradients


class StepGradients(NamedTuple):
    """Gradients of projected inputs and score, and the factors of other gradients that the tape does not hold."""

    queries: Float[np.ndarray, "T B A"]
    """Gradients of the queries W s of each step; one step without meaning for dot products."""
    scores: Float[np.ndarray, "B T S"]
    """Gradients of the scores e."""
    projected_inputs: Float[np.ndarray, "V G"]
    scorer: AttentionScorerGradients


class UnrollInputs(NamedTuple):
    """Keys and memory of all rows, and the state before the first step. Gradients flow to all of them but the masks."""

    keys: Float[np.ndarray, "B S A"]
    memory: Float[np.ndarray, "B S D"]
    hidden: Float[np.ndarray, "B L H"]
    cell_state: Float[np.ndarray, "C L H"]
    initial_weights: Float[np.ndarray, "N S"]
    """Attention weights before the first step; without rows unless the score is location-sensitive."""
    masks: Float[np.ndarray, "M B K H"] = NO_MASK_ARRAY
    """Dropout masks of the outputs that the upper layers read, as `UpperTape.masks`."""


class MemoryGradients(NamedTuple):
    """Arrays (or tensors) into which every slice of the batch writes the gradients of its rows."""

    keys: Float[Array, "B S A"]
    """A view with the positions innermost in memory, except for dot products, which are contiguous."""
    memory: Float[Array, "B S D"]


class UnrolledSlice(NamedTuple):
    """A slice of the rows of a batch, and the arguments and results of the kernel for it."""

    rows: slice
    symbols: Int[np.ndarray, "T R"]
    attention: UnrollAttention
    tape: DecoderTape


def unroll_slices(
    parameters: DecoderCellParameters,
    scorer: AttentionScorer,
    inputs: UnrollInputs,
    symbols: Int[np.ndarray, "B T"],
    lengths: Int[np.ndarray, " B"],
) -> list[UnrolledSlice]:
    """Run the decoder over known symbols with one slice of the batch per thread; return the slices in their order.

    Args:
        parameters: Parameters of the cells.
        scorer: Attention score.
        inputs: Keys, memory and initial state.
        symbols: Decoder input ids, which are rows of `parameters.projected_inputs`. The kernels read memory by
            these ids and by the lengths, which the caller checks.
        lengths: Number of source positions of each row, from 1 to S.
    """
    task = partial(_unroll_slice, parameters, scorer, inputs, symbols, lengths)
    return thread_map(task, split_rows(len(symbols), num_slices(len(symbols))))


def join_slices(unrolled: list[UnrolledSlice]) -> DecoderOutput:
    """Return the results of all rows.

    Args:
        unrolled: Slices of the batch in the order of their rows, as `unroll_slices` returns them.
    """
    tapes = [each.tape for each in unrolled]
    cell_states = [np.stack([tape.cell_state[-1], *tape.upper.cell_state[:, -1]], axis=1) for tape in tapes]
    upper_states = [tape.upper.hidden[:, 1:].swapaxes(1, 2) for tape in tapes]
    return DecoderOutput(
        contiguous(concat_rows([tape.hidden[1:].swapaxes(0, 1) for tape in tapes])),
        concat_rows([tape.contexts.swapaxes(0, 1) for tape in tapes]),
        concat_rows([tape.weights for tape in tapes]),
        concat_rows(cell_states),
        contiguous(upper_states[0] if len(tapes) == 1 else np.concatenate(upper_states, axis=1)),
    )


def cell_parameters(parameters: DecoderParameters) -> DecoderCellParameters:
    """Return the parameters of the cells as contiguous arrays, gate by gate.

    Args:
        parameters: Parameters of a decoder step.
    """
    recurrent = contiguous(parameters.recurrent)
    context = contiguous(parameters.context)
    size = recurrent.shape[1]
    return DecoderCellParameters(
        layout=parameters.cell_layout,
        projected_inputs=contiguous(parameters.projected_inputs),
        bias_n=contiguous(parameters.bias_n),
        recurrent=by_gate(recurrent),
        context=by_gate(context, size),
        recurrent_t=by_gate_t(recurrent),
        context_t=by_gate_t(context, size),
        upper=upper_cells(parameters),
        bfloat16=parameters.bfloat16,
    )


def _unroll_slice(
    parameters: DecoderCellParameters,
    scorer: AttentionScorer,
    inputs: UnrollInputs,
    symbols: Int[np.ndarray, "B T"],
    lengths: Int[np.ndarray, " B"],
    rows: slice,
) -> UnrolledSlice:
    """Take all steps of one slice of the rows."""
    memory, initial_weights = (contiguous(array[rows]) for array in (inputs.memory, inputs.initial_weights))
    hidden, cell_state = (contiguous(array[rows].swapaxes(0, 1)) for array in (inputs.hidden, inputs.cell_state))
    masks = contiguous(inputs.masks[:, rows])
    part_lengths = lengths[rows]
    keys = prepare_keys(inputs.keys[rows], part_lengths, scorer.layout)
    attention = UnrollAttention(
        scorer, keys, positions_innermost(memory, part_lengths, False), part_lengths, initial_weights
    )
    step_symbols = np.ascontiguousarray(symbols[rows].T)
    tape = unroll_forward(parameters, step_symbols, attention, StackedStates(hidden, cell_state), masks)
    return UnrolledSlice(rows, step_symbols, attention, tape)


def unroll_slice_backward(
    parameters: DecoderCellParameters,
    gradients: DecoderOutputGradients,
    memory_gradients: MemoryGradients,
    unrolled: UnrolledSlice,
) -> tuple[TapeGradients, StepGradients]:
    """Return the gradients of initial state, projected inputs and score of a slice, and the factors of the others.

    The slice's tape is overwritten, so this runs once.

    Args:
        parameters: Parameters of the cells.
        gradients: Gradients of the results of all rows.
        memory_gradients: Output: gradients of keys and memory, of which the rows of this slice are written.
        unrolled: The slice.
    """
    tape = unrolled.tape
    tape_gradients = _tape_gradients(parameters, gradients, unrolled)
    grad_keys = memory_gradients.keys[unrolled.rows]
    grad_memory = memory_gradients.memory[unrolled.rows]
    adds_key_gradients = unrolled.attention.scorer.layout.adds_key_gradients
    ordered = grad_keys.transpose(0, 2, 1) if adds_key_gradients else np.empty((0, 0, 0), np.float32)
    factors = unroll_backward(parameters, unrolled.symbols, unrolled.attention, tape, tape_gradients, ordered)
    sum_over_steps(tape.weights, tape_gradients.contexts, grad_memory, parameters.bfloat16)
    if not adds_key_gradients:
        sum_over_steps(factors.scores, query_states(tape), grad_keys, parameters.bfloat16)
    return tape_gradients, factors


def _tape_gradients(
    parameters: DecoderCellParameters, gradients: DecoderOutputGradients, unrolled: UnrolledSlice
) -> TapeGradients:
    """Return the gradients of the results of a slice, steps first; zero where nothing depends on a result."""
    tape, rows = unrolled.tape, unrolled.rows
    hidden = np.zeros_like(tape.hidden)
    contexts = np.zeros_like(tape.contexts)
    weights = np.zeros((0, 0, 0), np.float32)
    cell_state = np.zeros_like(tape.cell_state[0])
    upper = _upper_gradients(parameters.upper, tape.upper)
    if gradients.states is not None:
        hidden[1:] = gradients.states[rows].swapaxes(0, 1)
    if gradients.contexts is not None:
        contexts[:] = gradients.contexts[rows].swapaxes(0, 1)
    if gradients.weights is not None:
        weights = contiguous(gradients.weights[rows])
    if gradients.final_cell_state is not None:
        final_cell_state = gradients.final_cell_state[rows]
        cell_state[:] = final_cell_state[:, 0]
        upper.cell_state[:] = final_cell_state[:, 1:].swapaxes(0, 1)
    if gradients.upper_states is not None:
        upper.hidden[:, 1:] = gradients.upper_states[:, rows].swapaxes(1, 2)
    return TapeGradients(hidden, cell_state, contexts, weights, upper)


def query_states(tape: DecoderTape) -> Float[np.ndarray, "T B H"]:
    """Return the hidden states of the top layer before each step, from which the queries are projected.

    Args:
        tape: Results of the steps.
    """
    return (tape.upper.hidden[-1] if len(tape.upper.hidden) else tape.hidden)[:-1]


def _upper_gradients(cells: UpperCells, tape: UpperTape) -> UpperGradients:
    """Return gradients of zero of the layers above the first."""
    return UpperGradients(
        np.zeros_like(tape.hidden),
        np.zeros_like(tape.cell_state[:, 0]),
        np.zeros_like(cells.norm_weights),
        np.zeros_like(cells.norm_biases),
        np.empty_like(tape.outputs),
    )


@njit_no_refcount
def sum_over_steps(
    weights: Float[np.ndarray, "B T S"],
    vectors: Float[np.ndarray, "T B D"],
    result: Float[np.ndarray, "B S D"],
    bfloat16: bool,
) -> None:
    """Compute Σ_t weights_ts vector_t of every row.

    Args:
        weights: Weight of each source position at each step.
        vectors: Vector of each step.
        result: Output, one vector per source position of each row.
        bfloat16: Whether products are in bfloat16.
    """
    for row in range(weights.shape[0]):
        gemm_tn(weights[row], vectors[:, row], result[row], bfloat16)


@njit
def unroll_forward(
    parameters: DecoderCellParameters,
    symbols: Int[np.ndarray, "T B"],
    attention: UnrollAttention,
    initial_states: StackedStates,
    masks: Float[np.ndarray, "M B K H"],
) -> DecoderTape:
    """Take all steps of one slice of the batch in the calling thread; return their results.

    Args:
        parameters: Parameters of the cells.
        symbols: Row of the projected inputs for each step.
        attention: Attention score, keys and memory.
        initial_states: Initial h and c.
        masks: Dropout masks of the outputs that the upper layers read, as `UpperTape.masks`.
    """
    hidden, cell_state = initial_states
    scorer = attention.scorer
    count = symbols.shape[0]
    num_layers, rows, size = hidden.shape
    hiddens = np.empty((count + 1, rows, size), np.float32)
    cells = np.empty((count + 1, cell_state.shape[1], size), np.float32)
    hiddens[0], cells[0] = hidden[0], cell_state[0]
    num_upper = num_layers - 1
    upper = UpperTape(
        np.empty((num_upper, count + 1, rows, size), np.float32),
        np.empty((num_upper, count + 1, cell_state.shape[1], size), np.float32),
        np.empty((num_upper, count, rows, size), np.float32),
        np.empty((num_upper, parameters.layout.buffers, count * rows * size), np.float32),
        masks,
        np.empty((rows if num_upper else 0, size), np.float32),
    )
    for layer in range(num_upper):
        upper.hidden[layer, 0], upper.cell_state[layer, 0] = hidden[layer + 1], cell_state[layer + 1]
    num_projected = count if scorer.layout.projects_query else 0
    queries = np.empty((num_projected, rows, attention.keys.shape[1]), np.float32)
    contexts = np.empty((count, rows, attention.memory.shape[1]), np.float32)
    attn_weights = np.zeros((rows, count, attention.memory.shape[2]), np.float32)
    buffers = np.empty((parameters.layout.buffers, count * rows * size), np.float32)
    tape = DecoderTape(hiddens, cells, queries, contexts, attn_weights, buffers, upper)
    _forward_steps(parameters, symbols, attention, tape, location_buffers(scorer, attention.memory.shape[2]))
    return tape


@njit_no_refcount
def _forward_steps(
    parameters: DecoderCellParameters,
    symbols: Int[np.ndarray, "T B"],
    attention: UnrollAttention,
    tape: DecoderTape,
    buffers: LocationBuffers,
) -> None:
    """Take the steps of `unroll_forward` from the initial state, which is on the tape."""
    num_upper = parameters.upper.inputs.shape[0]
    for step in range(symbols.shape[0]):
        top = tape.hidden[step]
        if num_upper > 0:
            top = tape.upper.hidden[num_upper - 1, step]
        query = top
        if attention.scorer.layout.projects_query:
            query = tape.queries[step]
            project_queries(attention.scorer, top, query)
        attention_forward(attention, query, step, buffers, tape.weights, tape.contexts[step])
        offset = step * tape.hidden[0].size
        compute_preactivations(parameters, symbols[step], tape.contexts[step], tape.hidden[step], tape.buffers, offset)
        before = FlatState(tape.hidden[step].reshape(-1), tape.cell_state[step].reshape(-1))
        after = FlatState(tape.hidden[step + 1].reshape(-1), tape.cell_state[step + 1].reshape(-1))
        cell_forward(parameters.layout, tape.buffers, offset, before, after)
        if num_upper > 0:
            upper_layers_forward(parameters.upper, tape.upper, tape.hidden[step + 1], step)


@njit_no_refcount
def compute_preactivations(
    parameters: DecoderCellParameters,
    symbols: Int[np.ndarray, " B"],
    contexts: Float[np.ndarray, "B D"],
    before: Float[np.ndarray, "B H"],
    buffers: GateBuffers,
    offset: int,
) -> None:
    """Compute the preactivations of the first layer's gates: W x + b, C c and U h, as `cells.cell_forward` reads them.

    Args:
        parameters: Parameters of the cells.
        symbols: Row of the projected inputs for each row.
        contexts: c.
        before: h, before the step.
        buffers: Output: one buffer per gate.
        offset: Index at which the step begins in each buffer.
    """
    gather_inputs(parameters.layout, parameters.projected_inputs, symbols, parameters.bias_n, buffers, offset)
    for gate in range(parameters.layout.gates):
        buffer = buffers[gate, offset : offset + before.size]
        gemm_add(contexts, parameters.context_t[gate], buffer.reshape(before.shape), parameters.bfloat16)
    add_recurrent(parameters.layout, before, parameters.recurrent_t, buffers, offset, parameters.bfloat16)


@njit
def unroll_backward(
    parameters: DecoderCellParameters,
    symbols: Int[np.ndarray, "T B"],
    attention: UnrollAttention,
    tape: DecoderTape,
    tape_gradients: TapeGradients,
    grad_keys: Float[np.ndarray, "K A S"],
) -> StepGradients:
    """Take the backward pass through all steps; gradients of the preactivations replace `tape.buffers`.

    Args:
        parameters: Parameters of the cells.
        symbols: Row of the projected inputs for each step.
        attention: Attention score, keys and memory.
        tape: Results of `unroll_forward`, overwritten.
        tape_gradients: Gradients of the results, overwritten.
        grad_keys: Output: gradients of the keys; without rows for dot products, whose caller computes them.
    """
    count, rows = symbols.shape
    scorer = attention.scorer
    num_gradients = count if scorer.layout.projects_query else 1
    queries = np.empty((num_gradients, rows, attention.keys.shape[1]), np.float32)
    scores = np.zeros(tape.weights.shape, np.float32)
    projected_inputs = np.zeros(parameters.projected_inputs.shape, np.float32)
    grad_keys[:] = 0
    scorer_gradients = AttentionScorerGradients(
        grad_keys,
        np.zeros(scorer.energy.shape, np.float32),
        np.zeros(scorer.location.shape, np.float32),
        np.zeros(scorer.filters.shape, np.float32),
        np.zeros(attention.initial_weights.shape, np.float32),
    )
    gradients = StepGradients(queries, scores, projected_inputs, scorer_gradients)
    buffers = location_buffers(scorer, attention.memory.shape[2])
    tape_and_gradients = TapeAndGradients(tape, tape_gradients)
    _backward_steps(parameters, symbols, attention, tape_and_gradients, gradients, buffers)
    return gradients


@njit_no_refcount
def _backward_steps(
    parameters: DecoderCellParameters,
    symbols: Int[np.ndarray, "T B"],
    attention: UnrollAttention,
    tape_and_gradients: TapeAndGradients,
    gradients: StepGradients,
    buffers: LocationBuffers,
) -> None:
    """Take the steps of `unroll_backward`."""
    tape, tape_gradients = tape_and_gradients
    projected = attention.scorer.layout.projects_query
    num_upper = parameters.upper.inputs.shape[0]
    for step in range(symbols.shape[0] - 1, -1, -1):
        top = tape.hidden[step]
        top_gradient = tape_gradients.hidden[step]
        if num_upper > 0:
            first_layer = LayerOutput(tape.hidden[step + 1], tape_gradients.hidden[step + 1])
            upper_layers_backward(parameters.upper, tape.upper, tape_gradients.upper, first_layer, step)
            top = tape.upper.hidden[num_upper - 1, step]
            top_gradient = tape_gradients.upper.hidden[num_upper - 1, step]
        _step_backward(parameters, symbols[step], tape_and_gradients, gradients.projected_inputs, step)
        query_gradient = gradients.queries[step if projected else 0]
        attention_gradients = AttentionGradients(
            tape_gradients.contexts[step], tape_gradients.weights, gradients.scores, query_gradient
        )
        forward_values = AttentionForwardValues(tape.queries[step] if projected else top, tape.weights)
        attention_backward(attention, attention_gradients, gradients.scorer, step, forward_values, buffers)
        if projected:
            gemm_add(query_gradient, attention.scorer.query, top_gradient, parameters.bfloat16)
        else:
            add_(top_gradient.reshape(-1), query_gradient.reshape(-1))


@njit_no_refcount
def _step_backward(
    parameters: DecoderCellParameters,
    symbols: Int[np.ndarray, " B"],
    tape_and_gradients: TapeAndGradients,
    grad_projected_inputs: Float[np.ndarray, "V G"],
    step: int,
) -> None:
    """Compute the gradients of a step's contexts, previous states and projected inputs from those of its states.

    Only the first layer's states are read.
    """
    tape, tape_gradients = tape_and_gradients
    layout = parameters.layout
    grad_hidden = tape_gradients.hidden[step + 1]
    offset = step * tape.hidden[0].size
    before = FlatState(tape.hidden[step].reshape(-1), tape.cell_state[step].reshape(-1))
    after = FlatState(grad_hidden.reshape(-1), tape_gradients.cell_state.reshape(-1))
    cell_backward(layout, tape.buffers, offset, after, before)
    scatter_add(layout, tape.buffers, offset, symbols, grad_projected_inputs)
    for gate in range(layout.gates):
        buffer = tape.buffers[gate, offset : offset + grad_hidden.size]
        grad_contexts = tape_gradients.contexts[step]
        gemm_add(buffer.reshape(grad_hidden.shape), parameters.context[gate], grad_contexts, parameters.bfloat16)
    grad_previous_hidden = tape_gradients.hidden[step]
    add_(grad_previous_hidden.reshape(-1), grad_hidden.reshape(-1))
    add_recurrent_backward(
        layout, tape.buffers, offset, parameters.recurrent, grad_previous_hidden, parameters.bfloat16
    )


def warm_up() -> None:
    """Compile every kernel of this module by running the smallest example forward and backward."""
    one = np.ones((1, 1), np.int64)
    single = np.zeros((1, 1), np.float32)
    empty = np.zeros((3, 1), np.float32)
    parameters = DecoderParameters(GRU, DOT_PRODUCT, np.zeros((2, 3), np.float32), single[0], empty, empty)
    inputs = UnrollInputs(single[None], single[None], single[None], single[None][:0], NO_ROWS)
    arrays = cell_parameters(parameters)
    scorer = attention_scorer(parameters)
    (unrolled,) = unroll_slices(arrays, scorer, inputs, one, one[0])
    whole = MemoryGradients(single[None].copy(), single[None].copy())
    unroll_slice_backward(arrays, DecoderOutputGradients(join_slices([unrolled]).states), whole, unrolled)
    exp_2x(single[None])
    positions_innermost(single[None], one[0], True)
