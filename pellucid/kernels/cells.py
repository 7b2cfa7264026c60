"""One step of each recurrent cell over all rows at once, forward and backward, from sums that are already computed.

`cell_forward` and `cell_backward` are the only functions that distinguish cells, by `CellLayout.cell_type`. A cell
that a kernel computes needs a layout in types.py, two functions here, and a branch in each of these two.

n rows, H units, P buffers, F numbers of a buffer; a step begins at index `offset`. Equations and order of the gates
as in model/cells.py. Each gate has its own buffer, in which rows and units form one axis: a loop is as long as
rows times units and fills the vectors even when units are few. A loop touches few arrays, because a compiler must
prove at run time that they do not overlap, and stops vectorizing when there are too many pairs to prove; loops follow
each other block by block, so that a block stays in the nearest cache.
"""

from typing import NamedTuple

import numpy as np

from pellucid.kernels.arithmetic import ONE, Flat, sigmoid_, tanh, tanh_
from pellucid.kernels.compilation import njit_no_refcount
from pellucid.kernels.types import GRU, CellLayout
from pellucid.shapes import Float

GateBuffers = Float[np.ndarray, "P F"]

GRU_CELL = GRU.cell_type
BLOCK_SIZE = 1024
"""Numbers of a buffer that are processed at once."""


class FlatState(NamedTuple):
    """State of all rows before or after a step, or the gradients of this state."""

    hidden: Flat
    """h."""
    cell_state: Flat
    """c; empty where the cell has none."""


@njit_no_refcount
def cell_forward(
    layout: CellLayout,
    buffers: GateBuffers,
    offset: int,
    before: FlatState,
    after: FlatState,
) -> None:
    """Compute h' and c' of one step of all rows; leave in `buffers` the values that the backward pass reads.

    GRU: h' = n + z ⊙ (h − n). LSTM: c' = f ⊙ c + i ⊙ g, h' = o ⊙ tanh c'.

    Args:
        layout: The cell.
        buffers: Preactivations W x + b + U h of each gate; for a gate whose U h is multiplied, W x + b, and U h apart.
        offset: Index at which the step begins in each buffer.
        before: h and c.
        after: Output: h' and c'.
    """
    if layout.cell_type == GRU_CELL:
        _gru_forward(buffers, offset, before.hidden, after.hidden)
    else:
        _lstm_forward(buffers, offset, before.cell_state, after.cell_state, after.hidden)


@njit_no_refcount
def cell_backward(
    layout: CellLayout,
    buffers: GateBuffers,
    offset: int,
    gradients: FlatState,
    before: FlatState,
) -> None:
    """Compute the gradients of a step in place.

    Args:
        layout: The cell.
        buffers: Values that `cell_forward` left; replaced by the gradients of the preactivations, in the same order.
        offset: Index at which the step begins in each buffer.
        gradients: Gradients of h' and c'; replaced by those of h and c, without the part that flows through the
            preactivations.
        before: h and c before the step.
    """
    if layout.cell_type == GRU_CELL:
        _gru_backward(buffers, offset, gradients.hidden, before.hidden)
    else:
        _lstm_backward(buffers, offset, gradients.hidden, gradients.cell_state, before.cell_state)


@njit_no_refcount
def _gru_forward(buffers: GateBuffers, offset: int, before: Flat, after: Flat) -> None:
    """Compute `after` = h' from `before` = h.

    `buffers` hold the preactivations of r and z, W x + b of n, and U_n h + c_n; then r, z, n and U_n h + c_n.
    """
    for start in range(0, before.shape[0], BLOCK_SIZE):
        end = min(start + BLOCK_SIZE, before.shape[0])
        lo, hi = offset + start, offset + end
        r, z, n, u = buffers[0, lo:hi], buffers[1, lo:hi], buffers[2, lo:hi], buffers[3, lo:hi]
        h, result = before[start:end], after[start:end]
        sigmoid_(r)
        sigmoid_(z)
        for i in range(n.shape[0]):
            n[i] = tanh(n[i] + r[i] * u[i])
        for i in range(n.shape[0]):
            result[i] = n[i] + z[i] * (h[i] - n[i])


@njit_no_refcount
def _gru_backward(buffers: GateBuffers, offset: int, hidden_gradient: Flat, before: Flat) -> None:
    """Replace r, z, n and u by the gradients of their preactivations, and dh' in `hidden_gradient` by z ⊙ dh'."""
    for start in range(0, before.shape[0], BLOCK_SIZE):
        end = min(start + BLOCK_SIZE, before.shape[0])
        lo, hi = offset + start, offset + end
        r, z, n, u = buffers[0, lo:hi], buffers[1, lo:hi], buffers[2, lo:hi], buffers[3, lo:hi]
        dh, h = hidden_gradient[start:end], before[start:end]
        _gru_candidate_backward(z, n, dh, h)
        for i in range(r.shape[0]):
            dr = n[i] * u[i] * r[i] * (ONE - r[i])
            u[i] = n[i] * r[i]
            r[i] = dr


@njit_no_refcount
def _gru_candidate_backward(z: Flat, n: Flat, dh: Flat, h: Flat) -> None:
    """Replace z, n and dh' by dz, dn and z ⊙ dh'."""
    for i in range(z.shape[0]):
        dz = dh[i] * (h[i] - n[i]) * z[i] * (ONE - z[i])
        n[i] = dh[i] * (ONE - z[i]) * (ONE - n[i] * n[i])
        dh[i] *= z[i]
        z[i] = dz


@njit_no_refcount
def _lstm_forward(buffers: GateBuffers, offset: int, cell_state: Flat, cell_after: Flat, after: Flat) -> None:
    """Compute `after`, `cell_after` = h', c' from `cell_state` = c.

    `buffers` hold the preactivations of i, f, g and o; then i, f, g, o and tanh c'.
    """
    for start in range(0, cell_state.shape[0], BLOCK_SIZE):
        end = min(start + BLOCK_SIZE, cell_state.shape[0])
        lo, hi = offset + start, offset + end
        input_gate, forget_gate, candidate = buffers[0, lo:hi], buffers[1, lo:hi], buffers[2, lo:hi]
        output_gate, tanh_cell = buffers[3, lo:hi], buffers[4, lo:hi]
        c, new_c, result = cell_state[start:end], cell_after[start:end], after[start:end]
        sigmoid_(input_gate)
        sigmoid_(forget_gate)
        tanh_(candidate)
        sigmoid_(output_gate)
        for i in range(c.shape[0]):
            new_c[i] = forget_gate[i] * c[i] + input_gate[i] * candidate[i]
        for i in range(c.shape[0]):
            tanh_cell[i] = tanh(new_c[i])
            result[i] = output_gate[i] * tanh_cell[i]


@njit_no_refcount
def _lstm_backward(buffers: GateBuffers, offset: int, hidden_gradient: Flat, cell_gradient: Flat, before: Flat) -> None:
    """Replace i, f, g and o by the gradients of their preactivations, and dc' in `cell_gradient` by dc; `before` is c.

    dh' in `hidden_gradient` becomes zero, because h enters the step through the preactivations alone.
    """
    for start in range(0, before.shape[0], BLOCK_SIZE):
        end = min(start + BLOCK_SIZE, before.shape[0])
        lo, hi = offset + start, offset + end
        input_gate, forget_gate, candidate = buffers[0, lo:hi], buffers[1, lo:hi], buffers[2, lo:hi]
        output_gate, tanh_cell = buffers[3, lo:hi], buffers[4, lo:hi]
        dh, dc, c = hidden_gradient[start:end], cell_gradient[start:end], before[start:end]
        for i in range(dc.shape[0]):
            dc[i] += dh[i] * output_gate[i] * (ONE - tanh_cell[i] * tanh_cell[i])
            output_gate[i] = dh[i] * tanh_cell[i] * output_gate[i] * (ONE - output_gate[i])
            dh[i] = 0
        _lstm_input_backward(input_gate, candidate, dc)
        for i in range(dc.shape[0]):
            dc_forget = dc[i] * forget_gate[i]
            forget_gate[i] = dc_forget * c[i] * (ONE - forget_gate[i])
            dc[i] = dc_forget


@njit_no_refcount
def _lstm_input_backward(input_gate: Flat, candidate: Flat, dc: Flat) -> None:
    """Replace i and g by di and dg."""
    for i in range(dc.shape[0]):
        di = dc[i] * candidate[i] * input_gate[i] * (ONE - input_gate[i])
        candidate[i] = dc[i] * input_gate[i] * (ONE - candidate[i] * candidate[i])
        input_gate[i] = di
