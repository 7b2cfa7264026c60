"""One step of each recurrent cell over all rows at once, forward and backward, from sums that are already computed.

`cell_forward` and `cell_backward` are the only functions that tell cells apart, by `CellLayout.cell`. A cell that a
kernel is to compute needs a layout in types.py, two functions here, and a branch in each of these two.

n rows, H units, P buffers, F numbers of a buffer, those of the step from `first` on. Equations and order of the gates
as in model/cells.py. Each gate has a buffer of its own, in which rows and units form one axis: a loop is as long as
rows times units and fills the vectors even when units are few. A loop touches few arrays, because a compiler must
prove at run time that they do not overlap, and stops vectorizing when there are too many pairs to prove; loops follow
each other piece by piece, so that a piece stays in the nearest cache.
"""

import numpy as np
from jaxtyping import Float

from pellucid.kernels.arithmetic import ONE, Flat, sigmoid_, tanh, tanh_
from pellucid.kernels.jit import njit_no_refcount
from pellucid.kernels.types import GRU, CellLayout

GateBuffers = Float[np.ndarray, "P F"]

GRU_CELL = GRU.cell
PIECE = 1024
"""Numbers of a buffer that are processed at once."""


@njit_no_refcount
def cell_forward(
    layout: CellLayout,
    buffers: GateBuffers,
    first: int,
    before: tuple[Flat, Flat],
    after: tuple[Flat, Flat],
) -> None:
    """Compute a step from the sums in `buffers`, and leave there what the backward pass reads.

    Args:
        layout: The cell.
        buffers: The sums W x + b + U h of each gate; for a gate whose U h is multiplied, W x + b, and U h apart.
        first: Where the step begins in each buffer.
        before: h and c; c is empty where the cell has none.
        after: Where h' and c' are written.
    """
    if layout.cell == GRU_CELL:
        _gru_forward(buffers, first, before[0], after[0])
    else:
        _lstm_forward(buffers, first, before[1], after[1], after[0])


@njit_no_refcount
def cell_backward(
    layout: CellLayout,
    buffers: GateBuffers,
    first: int,
    gradients: tuple[Flat, Flat],
    before: tuple[Flat, Flat],
) -> None:
    """Compute the gradients of a step in place.

    Args:
        layout: The cell.
        buffers: What `cell_forward` left; becomes the gradients of the sums.
        first: Where the step begins in each buffer.
        gradients: Gradients of h' and c'; become those of h and c, without the part that flows through the sums.
        before: h and c.
    """
    if layout.cell == GRU_CELL:
        _gru_backward(buffers, first, gradients[0], before[0])
    else:
        _lstm_backward(buffers, first, gradients[0], gradients[1], before[1])


@njit_no_refcount
def _gru_forward(buffers: GateBuffers, first: int, before: Flat, after: Flat) -> None:
    """Compute `after` = h' from `before` = h. `buffers` hold the sums of r and z, W x + b of n, and U_n h + c_n.

    Afterwards they hold r, z, n and U_n h + c_n.
    """
    for start in range(0, before.shape[0], PIECE):
        end = min(start + PIECE, before.shape[0])
        at, to = first + start, first + end
        r, z, n, u = buffers[0, at:to], buffers[1, at:to], buffers[2, at:to], buffers[3, at:to]
        h, result = before[start:end], after[start:end]
        sigmoid_(r)
        sigmoid_(z)
        for i in range(n.shape[0]):
            n[i] = tanh(n[i] + r[i] * u[i])
        for i in range(n.shape[0]):
            result[i] = n[i] + z[i] * (h[i] - n[i])


@njit_no_refcount
def _gru_backward(buffers: GateBuffers, first: int, hidden: Flat, before: Flat) -> None:
    """Replace r, z, n and u by the gradients of their sums, and dh' in `hidden` by z ⊙ dh'."""
    for start in range(0, before.shape[0], PIECE):
        end = min(start + PIECE, before.shape[0])
        at, to = first + start, first + end
        r, z, n, u = buffers[0, at:to], buffers[1, at:to], buffers[2, at:to], buffers[3, at:to]
        dh, h = hidden[start:end], before[start:end]
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
def _lstm_forward(buffers: GateBuffers, first: int, cell: Flat, cell_after: Flat, after: Flat) -> None:
    """Compute `after`, `cell_after` = h', c' from `cell` = c. `buffers` hold the sums of i, f, g and o.

    Afterwards they hold i, f, g, o and tanh c'.
    """
    for start in range(0, cell.shape[0], PIECE):
        end = min(start + PIECE, cell.shape[0])
        at, to = first + start, first + end
        enter, forget, candidate = buffers[0, at:to], buffers[1, at:to], buffers[2, at:to]
        leave, squashed = buffers[3, at:to], buffers[4, at:to]
        old, new, result = cell[start:end], cell_after[start:end], after[start:end]
        sigmoid_(enter)
        sigmoid_(forget)
        tanh_(candidate)
        sigmoid_(leave)
        for i in range(old.shape[0]):
            new[i] = forget[i] * old[i] + enter[i] * candidate[i]
        for i in range(old.shape[0]):
            squashed[i] = tanh(new[i])
            result[i] = leave[i] * squashed[i]


@njit_no_refcount
def _lstm_backward(buffers: GateBuffers, first: int, hidden: Flat, cell: Flat, before: Flat) -> None:
    """Replace i, f, g and o by the gradients of their sums, and dc' in `cell` by dc; `before` is c.

    dh' in `hidden` becomes zero, because h enters the step through the sums alone.
    """
    for start in range(0, before.shape[0], PIECE):
        end = min(start + PIECE, before.shape[0])
        at, to = first + start, first + end
        enter, forget, candidate = buffers[0, at:to], buffers[1, at:to], buffers[2, at:to]
        leave, squashed = buffers[3, at:to], buffers[4, at:to]
        dh, dc, c = hidden[start:end], cell[start:end], before[start:end]
        for i in range(dc.shape[0]):
            dc[i] += dh[i] * leave[i] * (ONE - squashed[i] * squashed[i])
            leave[i] = dh[i] * squashed[i] * leave[i] * (ONE - leave[i])
            dh[i] = 0
        _lstm_input_backward(enter, candidate, dc)
        for i in range(dc.shape[0]):
            carried = dc[i] * forget[i]
            forget[i] = carried * c[i] * (ONE - forget[i])
            dc[i] = carried


@njit_no_refcount
def _lstm_input_backward(enter: Flat, candidate: Flat, dc: Flat) -> None:
    """Replace i and g by di and dg."""
    for i in range(dc.shape[0]):
        di = dc[i] * candidate[i] * enter[i] * (ONE - enter[i])
        candidate[i] = dc[i] * enter[i] * (ONE - candidate[i] * candidate[i])
        enter[i] = di
