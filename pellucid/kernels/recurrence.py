"""Recurrent cells over whole sequences of unequal lengths, forward and backward, spread over threads.

B rows, R rows of a group, S positions, N directions (1 or 2), H units, P buffers of a step, Q gates, G = Q·H, V rows of
the projected inputs, M all real positions. Rows are sorted by length, longest first, and their states concatenated,
step by step: step k holds the counts[k] rows longer than k, so that every product is over real positions only, and a
product over all steps is one call. The gradients of a step replace the values that it stored.
"""

from functools import partial
from typing import NamedTuple

import numpy as np

from pellucid.kernels.arithmetic import Flat, add_, copy_, gemm_add
from pellucid.kernels.cells import FlatState, GateBuffers, cell_backward, cell_forward
from pellucid.kernels.compilation import njit, njit_no_refcount
from pellucid.kernels.runtime import contiguous, defer_signals, empty, num_slices, thread_map, zeros
from pellucid.kernels.types import GRU, CellLayout, DirectionParameters, RecurrentOutput
from pellucid.shapes import Float, Int


class PackedSequence(NamedTuple):
    """Real positions of some rows, concatenated step by step: first those of step 0 of all rows, then of step 1."""

    input_rows: Int[np.ndarray, " M"]
    """Row of the projected inputs, for each packed position."""
    state_rows: Int[np.ndarray, " M"]
    """Row of the array of all states, for each packed position."""
    counts: Int[np.ndarray, " S"]
    """Number of rows of each step."""


class RecurrentParameters(NamedTuple):
    """Projected inputs and recurrent parameters of one direction, as kernels read them."""

    layout: CellLayout
    projected_inputs: Float[np.ndarray, "V G"]
    """W x + b of each distinct input vector, one per row, with every bias except `bias_n`."""
    recurrent: Float[np.ndarray, "Q H H"]
    """U of each gate, for the backward pass."""
    recurrent_t: Float[np.ndarray, "Q H H"]
    """Uᵀ of each gate, for the forward pass."""
    bias_n: Flat
    bfloat16: bool
    """Whether products are in bfloat16, with sums in float32."""


class RecurrentTape(NamedTuple):
    """Values of a forward pass that the backward pass reads, and the final hidden states of the rows, longest first."""

    before: Float[np.ndarray, "M H"]
    """h before each packed position."""
    cell_before: Float[np.ndarray, "C H"]
    """c before each packed position; without rows where the cell has none."""
    buffers: GateBuffers
    """Values of the gates, as `cell_forward` leaves them."""
    final: Float[np.ndarray, "B H"]


class RecurrentGradients(NamedTuple):
    """Gradients of the states, and of the hidden and the cell state after the present step of a backward pass."""

    states: Float[np.ndarray, "M H"]
    hidden: Float[np.ndarray, "B H"]
    cell_state: Float[np.ndarray, "C H"]
    """Without rows where the cell has none."""


class RowGroup(NamedTuple):
    """Rows of the batch that one thread runs in one direction, longest first, and their packed positions."""

    direction: int
    rows: Int[np.ndarray, " R"]
    packed: PackedSequence


def row_groups(input_rows: Int[np.ndarray, "B S"], lengths: Int[np.ndarray, " B"], directions: int) -> list[RowGroup]:
    """Return the groups of rows of all threads; the directions share the threads.

    Rows are assigned in turn, longest first, so that every group has long and short rows.

    Args:
        input_rows: Row of the projected inputs for each position. The kernels read memory by these and by the
            lengths, which the caller checks.
        lengths: Number of real positions of each row, from 1 to S.
        directions: Number of directions, 1 or 2.
    """
    input_rows, lengths = contiguous(input_rows), contiguous(lengths)
    order = np.argsort(-lengths, kind="stable")
    num_groups = num_slices(len(lengths), directions)
    row_sets = [(direction, order[first::num_groups]) for direction in range(directions) for first in range(num_groups)]
    with defer_signals():
        return [
            RowGroup(direction, rows, pack(input_rows, lengths, rows, direction, directions))
            for direction, rows in row_sets
        ]


def run_groups(
    parameters: list[RecurrentParameters], groups: list[RowGroup], shape: tuple[int, int, int], with_tape: bool
) -> tuple[RecurrentOutput, list[RecurrentTape]]:
    """Return the output of all groups together, and the tape of each in the order of the groups.

    Args:
        parameters: Parameters of each direction.
        groups: Groups of rows, as `row_groups` returns them.
        shape: B, S and N.
        with_tape: Store the values that the backward pass reads; otherwise only `final` of a tape is defined.
    """
    size = parameters[0].recurrent.shape[1]
    states = zeros((shape[0] * shape[1] * shape[2], size))
    final = empty((shape[0], shape[2], size))
    tapes = thread_map(partial(_run_group, parameters, states, with_tape), groups)
    for group, tape in zip(groups, tapes, strict=True):
        final[group.rows, group.direction] = tape.final
    return RecurrentOutput(states.reshape(*shape, size), final), tapes


def _run_group(
    parameters: list[RecurrentParameters], states: Float[np.ndarray, "M H"], with_tape: bool, group: RowGroup
) -> RecurrentTape:
    """Run one group, and write its states into those of all groups."""
    return recurrence_forward(parameters[group.direction], group.packed, states, with_tape)


def recurrent_parameters(direction: DirectionParameters, bfloat16: bool = False) -> RecurrentParameters:
    """Return the parameters of a direction as the kernels read them.

    Args:
        direction: Projected inputs and parameters.
        bfloat16: Whether products are in bfloat16, with sums in float32; default False.
    """
    projected_inputs = contiguous(direction.projected_inputs)
    weight = contiguous(direction.weight)
    bias = contiguous(direction.bias_n)
    return RecurrentParameters(direction.layout, projected_inputs, by_gate(weight), by_gate_t(weight), bias, bfloat16)


def by_gate(weight: Float[np.ndarray, "G N"], size: int | None = None) -> Float[np.ndarray, "Q H N"]:
    """Return a view of the parameters, gate by gate.

    Args:
        weight: Weights of all gates, one below the other.
        size: H; default N.
    """
    return weight.reshape(-1, size or weight.shape[1], weight.shape[1])


def by_gate_t(weight: Float[np.ndarray, "G N"], size: int | None = None) -> Float[np.ndarray, "Q N H"]:
    """Return the transposed weights of each gate, as a contiguous copy.

    Args:
        weight: Weights of all gates, one below the other.
        size: H; default N.
    """
    return contiguous(by_gate(weight, size).transpose(0, 2, 1))


@njit
def pack(
    input_rows: Int[np.ndarray, "B S"],
    lengths: Int[np.ndarray, " B"],
    rows: Int[np.ndarray, " R"],
    direction: int,
    num_directions: int,
) -> PackedSequence:
    """Return rows packed step by step.

    Args:
        input_rows: Row of the projected inputs for each position.
        lengths: Number of real positions of each row.
        rows: Rows of the batch to pack, longest first.
        direction: 0, or 1 for the direction that reads from the end.
        num_directions: Number of directions of the layer.
    """
    longest = lengths[rows[0]]
    counts = np.zeros(longest, np.int64)
    for row in rows:
        counts[: lengths[row]] += 1
    packed_rows, state_rows = np.empty(counts.sum(), np.int64), np.empty(counts.sum(), np.int64)
    start = 0
    for step in range(longest):
        for index in range(counts[step]):
            row = rows[index]
            position = lengths[row] - 1 - step if direction else step
            packed_rows[start + index] = input_rows[row, position]
            state_rows[start + index] = (row * input_rows.shape[1] + position) * num_directions + direction
        start += counts[step]
    return PackedSequence(packed_rows, state_rows, counts)


@njit
def recurrence_forward(
    parameters: RecurrentParameters, packed: PackedSequence, states: Float[np.ndarray, "M H"], with_tape: bool
) -> RecurrentTape:
    """Run every row from the zero state over its positions, in the calling thread; return the tape.

    Args:
        parameters: Parameters of the direction.
        packed: The rows.
        states: Output: the hidden state at each position is written to its row.
        with_tape: Store the values that the backward pass reads; otherwise only `final` of the tape is defined.
    """
    size = parameters.recurrent_t.shape[1]
    rows = packed.counts[0]
    layout = parameters.layout
    capacity = packed.state_rows.shape[0] if with_tape else rows
    cells = layout.states - 1
    buffers = np.empty((layout.buffers, capacity * size), np.float32)
    before = np.zeros((capacity, size), np.float32)
    cell_before = np.zeros((capacity * cells, size), np.float32)
    final, cell_state = np.zeros((rows, size), np.float32), np.zeros((rows * cells, size), np.float32)
    tape = RecurrentTape(before, cell_before, buffers, final)
    _forward_steps(parameters, packed, tape, cell_state, states)
    return tape


@njit_no_refcount
def _forward_steps(
    parameters: RecurrentParameters,
    packed: PackedSequence,
    tape: RecurrentTape,
    cell_state: Float[np.ndarray, "C H"],
    states: Float[np.ndarray, "M H"],
) -> None:
    """Take the steps of `recurrence_forward`; the tape has space for all steps, or for one, which they then share."""
    with_tape = tape.before.shape[0] == packed.state_rows.shape[0]
    start = 0
    layout = parameters.layout
    for step in range(packed.counts.shape[0]):
        n = packed.counts[step]
        first_row = start if with_tape else 0
        cells = n * (layout.states - 1)
        offset = first_row * tape.final.shape[1]
        before = tape.before[first_row : first_row + n]
        hidden = tape.final[:n].reshape(-1)
        copy_(before.reshape(-1), hidden)
        gather_inputs(
            layout,
            parameters.projected_inputs,
            packed.input_rows[start : start + n],
            parameters.bias_n,
            tape.buffers,
            offset,
        )
        add_recurrent(layout, before, parameters.recurrent_t, tape.buffers, offset, parameters.bfloat16)
        cell_before, cell_after = (
            tape.cell_before[first_row : first_row + cells].reshape(-1),
            cell_state[:cells].reshape(-1),
        )
        copy_(cell_before, cell_after)
        cell_forward(
            layout, tape.buffers, offset, FlatState(before.reshape(-1), cell_before), FlatState(hidden, cell_after)
        )
        for row in range(n):
            copy_(states[packed.state_rows[start + row]], tape.final[row])
        start += n


@njit
def recurrence_backward(
    parameters: RecurrentParameters,
    packed: PackedSequence,
    tape: RecurrentTape,
    grad_states: Float[np.ndarray, "M H"],
    grad_hidden: Float[np.ndarray, "B H"],
) -> Float[np.ndarray, "V G"]:
    """Return the gradient of the projected inputs; those of the preactivations replace the values in `tape.buffers`.

    The gradients of U and `bias_n` are sums over these, which the caller computes.

    Args:
        parameters: Parameters of the direction.
        packed: The rows.
        tape: Values of the forward pass, run with `with_tape`; its buffers are overwritten.
        grad_states: Gradients of the states.
        grad_hidden: Gradients of the final states, overwritten.
    """
    rows = packed.counts[0] * (parameters.layout.states - 1)
    size = parameters.recurrent.shape[1]
    grad_projected_inputs = np.zeros(parameters.projected_inputs.shape, np.float32)
    grad_cell_state = np.zeros((rows, size), np.float32)
    gradients = RecurrentGradients(grad_states, grad_hidden, grad_cell_state)
    _backward_steps(parameters, packed, tape, gradients, grad_projected_inputs)
    return grad_projected_inputs


@njit_no_refcount
def _backward_steps(
    parameters: RecurrentParameters,
    packed: PackedSequence,
    tape: RecurrentTape,
    gradients: RecurrentGradients,
    grad_projected_inputs: Float[np.ndarray, "V G"],
) -> None:
    """Take the steps of `recurrence_backward`, from the gradients of states, hidden and cell."""
    grad_states, grad_hidden, grad_cell_state = gradients
    end = packed.state_rows.shape[0]
    size = parameters.recurrent.shape[1]
    layout = parameters.layout
    for step in range(packed.counts.shape[0] - 1, -1, -1):
        n = packed.counts[step]
        start = end - n
        cells = n * (layout.states - 1)
        for row in range(n):
            add_(grad_hidden[row], grad_states[packed.state_rows[start + row]])
        offset = start * size
        step_grad_hidden = grad_hidden[:n]
        before = FlatState(tape.before[start:end].reshape(-1), tape.cell_before[start : start + cells].reshape(-1))
        after = FlatState(step_grad_hidden.reshape(-1), grad_cell_state[:cells].reshape(-1))
        cell_backward(layout, tape.buffers, offset, after, before)
        scatter_add(layout, tape.buffers, offset, packed.input_rows[start:end], grad_projected_inputs)
        add_recurrent_backward(
            layout, tape.buffers, offset, parameters.recurrent, step_grad_hidden, parameters.bfloat16
        )
        end = start


@njit_no_refcount
def gather_inputs(
    layout: CellLayout,
    projected_inputs: Float[np.ndarray, "V G"],
    input_rows: Int[np.ndarray, " n"],
    bias_n: Flat,
    buffers: GateBuffers,
    offset: int,
) -> None:
    """Copy W x + b of every gate to its buffer, and `bias_n` to the buffer after the gates.

    Args:
        layout: The cell.
        projected_inputs: W x + b of each distinct input vector.
        input_rows: Row of the projected inputs for each row of the step.
        bias_n: Bias of the gate whose U h another gate multiplies; empty if there is none.
        buffers: Output.
        offset: Index at which the step begins in each buffer.
    """
    size = projected_inputs.shape[1] // layout.gates
    for gate in range(layout.gates):
        buffer = buffers[gate, offset : offset + input_rows.shape[0] * size]
        for row in range(input_rows.shape[0]):
            inputs = projected_inputs[input_rows[row]]
            for j in range(size):
                buffer[row * size + j] = inputs[gate * size + j]
    if layout.gated >= 0:
        buffer = buffers[layout.gates, offset : offset + input_rows.shape[0] * size]
        for row in range(input_rows.shape[0]):
            for j in range(size):
                buffer[row * size + j] = bias_n[j]


@njit_no_refcount
def scatter_add(
    layout: CellLayout,
    buffers: GateBuffers,
    offset: int,
    input_rows: Int[np.ndarray, " n"],
    grad_projected_inputs: Float[np.ndarray, "V G"],
) -> None:
    """Add the gradients of W x + b to the rows of the projected inputs.

    Args:
        layout: The cell.
        buffers: Gradients of the preactivations.
        offset: Index at which the step begins in each buffer.
        input_rows: Row of the projected inputs for each row of the step; rows may repeat.
        grad_projected_inputs: Gradient of the projected inputs, changed in place.
    """
    size = grad_projected_inputs.shape[1] // layout.gates
    for gate in range(layout.gates):
        buffer = buffers[gate, offset : offset + input_rows.shape[0] * size]
        for row in range(input_rows.shape[0]):
            inputs = grad_projected_inputs[input_rows[row]]
            for j in range(size):
                inputs[gate * size + j] += buffer[row * size + j]


@njit_no_refcount
def recurrent_buffer_index(layout: CellLayout, gate: int) -> int:
    """Return the index of the buffer of a gate's U h: the gate's own; for the gate `layout.gated`, the last.

    Args:
        layout: The cell.
        gate: Index of the gate.
    """
    return layout.gates if gate == layout.gated else gate


@njit_no_refcount
def add_recurrent(
    layout: CellLayout,
    before: Float[np.ndarray, "n H"],
    recurrent_t: Float[np.ndarray, "Q H H"],
    buffers: GateBuffers,
    offset: int,
    bfloat16: bool,
) -> None:
    """Add U h of every gate to the buffer that `recurrent_buffer_index` selects.

    Args:
        layout: The cell.
        before: h.
        recurrent_t: Uᵀ of each gate.
        buffers: Preactivations, changed in place.
        offset: Index at which the step begins in each buffer.
        bfloat16: Whether products are in bfloat16.
    """
    for gate in range(layout.gates):
        buffer = buffers[recurrent_buffer_index(layout, gate), offset : offset + before.size]
        gemm_add(before, recurrent_t[gate], buffer.reshape(before.shape), bfloat16)


@njit_no_refcount
def add_recurrent_backward(
    layout: CellLayout,
    buffers: GateBuffers,
    offset: int,
    recurrent: Float[np.ndarray, "Q H H"],
    grad_hidden: Float[np.ndarray, "n H"],
    bfloat16: bool,
) -> None:
    """Add Uᵀ times the gradients of every gate's U h to the gradients of h.

    Args:
        layout: The cell.
        buffers: Gradients of the preactivations.
        offset: Index at which the step begins in each buffer.
        recurrent: U of each gate.
        grad_hidden: Gradients of h, changed in place.
        bfloat16: Whether products are in bfloat16.
    """
    for gate in range(layout.gates):
        buffer = buffers[recurrent_buffer_index(layout, gate), offset : offset + grad_hidden.size]
        gemm_add(buffer.reshape(grad_hidden.shape), recurrent[gate], grad_hidden, bfloat16)


def warm_up() -> None:
    """Compile every kernel of this module by running the smallest example forward and backward."""
    one = np.ones((1, 1), np.int64)
    single = np.zeros((1, 1), np.float32)
    parameters = recurrent_parameters(
        DirectionParameters(GRU, np.zeros((2, 3), np.float32), np.zeros((3, 1), np.float32), single[0])
    )
    groups = row_groups(one, one[0], 1)
    _, tapes = run_groups([parameters], groups, (1, 1, 1), True)
    recurrence_backward(parameters, groups[0].packed, tapes[0], single, single.copy())
