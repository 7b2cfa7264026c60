"""One step of a GRU or LSTM over all rows at once, forward and backward, from sums that are already computed.

n rows, H units. Equations and order of the gates as in model/recurrence.py. The gates of a row stand side by side in
the products before and after (n × 3H or 4H); here each gate is a plane of its own (n × H, flat), so that a loop is as
long as rows times units and fills the vectors even when units are few. A loop touches few arrays, because a compiler
must prove at run time that they do not overlap, and gives up vectorising when there are too many pairs to prove.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from pellucid.kernels.arithmetic import ONE, Flat, add, sigmoids, tangent, tangents
from pellucid.kernels.compiling import compiled

Rows = Float[np.ndarray, "n G"]
Units = Float[np.ndarray, "n H"]
Planes = Float[np.ndarray, "P n H"]

GRU_PLANES, LSTM_PLANES = 4, 5
"""How many planes a step keeps for the way back: r, z, n, U_n h + c_n; or i, f, g, o, tanh c'."""
GRADIENT_PLANES = 4
"""How many planes the way back needs for itself: the gradients of r, z, n, U_n h + c_n; or of i, f, g, o."""


class Sums(NamedTuple):
    """What the gates are sums of: W x + b, with b holding every bias that is not multiplied; U h; and c_n of a GRU."""

    inputs: Rows
    recurrent: Rows
    candidate_bias: Flat


class Gradients(NamedTuple):
    """The gradients of `Sums`, and of the state after the step, which becomes the direct share of the one before."""

    inputs: Rows
    recurrent: Rows
    hidden: Units
    cell: Units
    planes: Planes


@compiled
def gru_forward(sums: Sums, kept: Planes, before: Units, after: Units) -> None:
    """`after` = h' from `before` = h; `kept` receives what the way back needs."""
    size, bias = before.shape[1], sums.candidate_bias
    for gate in range(2):
        _take_sum(sums.inputs, sums.recurrent, gate * size, kept[gate])
    _take(sums.inputs, 2 * size, kept[2])
    _take(sums.recurrent, 2 * size, kept[3])
    for row in range(before.shape[0]):
        add(kept[3, row], bias)
    sigmoids(kept[:2].ravel())
    r, z, n, u = kept[0].ravel(), kept[1].ravel(), kept[2].ravel(), kept[3].ravel()
    for i in range(n.shape[0]):
        n[i] = tangent(n[i] + r[i] * u[i])
    h, result = before.ravel(), after.ravel()
    for i in range(n.shape[0]):
        result[i] = n[i] + z[i] * (h[i] - n[i])


@compiled
def gru_backward(gradients: Gradients, kept: Planes, before: Units) -> None:
    """From dh', in gradients.hidden: the gradients of the sums, and z ⊙ dh' in its place."""
    dr, dz = gradients.planes[0].ravel(), gradients.planes[1].ravel()
    dn, du = gradients.planes[2].ravel(), gradients.planes[3].ravel()
    r, z, n, u = kept[0].ravel(), kept[1].ravel(), kept[2].ravel(), kept[3].ravel()
    dh, h = gradients.hidden.ravel(), before.ravel()
    for i in range(n.shape[0]):
        dn[i] = dh[i] * (ONE - z[i]) * (ONE - n[i] * n[i])
    for i in range(n.shape[0]):
        dz[i] = dh[i] * (h[i] - n[i]) * z[i] * (ONE - z[i])
    for i in range(n.shape[0]):
        du[i] = dn[i] * r[i]
    for i in range(n.shape[0]):
        dr[i] = du[i] * u[i] * (ONE - r[i])
    for i in range(n.shape[0]):
        dh[i] *= z[i]
    size = before.shape[1]
    for gate in range(2):
        _put(gradients.planes[gate], gate * size, gradients.inputs)
        _put(gradients.planes[gate], gate * size, gradients.recurrent)
    _put(gradients.planes[2], 2 * size, gradients.inputs)
    _put(gradients.planes[3], 2 * size, gradients.recurrent)


@compiled
def lstm_forward(sums: Sums, kept: Planes, cell: Units, after: Units, cell_after: Units) -> None:
    """`after`, `cell_after` = h', c' from `cell` = c; `kept` receives what the way back needs."""
    for gate in range(4):
        _take_sum(sums.inputs, sums.recurrent, gate * cell.shape[1], kept[gate])
    sigmoids(kept[:2].ravel())
    tangents(kept[2].ravel())
    sigmoids(kept[3].ravel())
    enter, forget, candidate = kept[0].ravel(), kept[1].ravel(), kept[2].ravel()
    old, new = cell.ravel(), cell_after.ravel()
    for i in range(old.shape[0]):
        new[i] = forget[i] * old[i] + enter[i] * candidate[i]
    leave, bent, result = kept[3].ravel(), kept[4].ravel(), after.ravel()
    for i in range(old.shape[0]):
        bent[i] = tangent(new[i])
        result[i] = leave[i] * bent[i]


@compiled
def lstm_backward(gradients: Gradients, kept: Planes, cell: Units) -> None:
    """From dh', dc' in gradients.hidden and .cell: the gradient of the sums, and dc in place of dc'; dh' is used up."""
    di, df = gradients.planes[0].ravel(), gradients.planes[1].ravel()
    dg, do = gradients.planes[2].ravel(), gradients.planes[3].ravel()
    enter, forget, candidate = kept[0].ravel(), kept[1].ravel(), kept[2].ravel()
    leave, bent = kept[3].ravel(), kept[4].ravel()
    dh, dc, c = gradients.hidden.ravel(), gradients.cell.ravel(), cell.ravel()
    for i in range(c.shape[0]):
        do[i] = dh[i] * bent[i] * leave[i] * (ONE - leave[i])
    for i in range(c.shape[0]):
        dc[i] += dh[i] * leave[i] * (ONE - bent[i] * bent[i])
    for i in range(c.shape[0]):
        di[i] = dc[i] * candidate[i] * enter[i] * (ONE - enter[i])
    for i in range(c.shape[0]):
        df[i] = dc[i] * c[i] * forget[i] * (ONE - forget[i])
    for i in range(c.shape[0]):
        dg[i] = dc[i] * enter[i] * (ONE - candidate[i] * candidate[i])
    for i in range(c.shape[0]):
        dc[i] *= forget[i]
    dh[:] = 0
    for gate in range(4):
        _put(gradients.planes[gate], gate * cell.shape[1], gradients.recurrent)


@compiled
def _take(gates: Rows, start: int, plane: Units) -> None:
    """One gate from its columns to its plane."""
    for row in range(plane.shape[0]):
        for j in range(plane.shape[1]):
            plane[row, j] = gates[row, start + j]


@compiled
def _take_sum(gates: Rows, more: Rows, start: int, plane: Units) -> None:
    """One gate, the sum of two shares, from its columns to its plane."""
    for row in range(plane.shape[0]):
        for j in range(plane.shape[1]):
            plane[row, j] = gates[row, start + j] + more[row, start + j]


@compiled
def _put(plane: Units, start: int, gates: Rows) -> None:
    """One gate from its plane to its columns."""
    for row in range(plane.shape[0]):
        for j in range(plane.shape[1]):
            gates[row, start + j] = plane[row, j]
