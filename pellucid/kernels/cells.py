"""One step of a GRU or LSTM over all rows at once, forward and backward, from sums that are already computed.

n rows, H units, P planes, F numbers of a plane, those of the step from `first` on. Equations and order of the gates as
in model/recurrence.py. Each gate is a plane of its own, in which rows and units run through as one: a loop is as long
as rows times units and fills the vectors even when units are few. A loop touches few arrays, because a compiler must
prove at run time that they do not overlap, and gives up vectorising when there are too many pairs to prove; loops
follow each other piece by piece, so that a piece stays in the nearest cache.
"""

import numpy as np
from jaxtyping import Float

from pellucid.kernels.arithmetic import ONE, Flat, sigmoids, tangent, tangents
from pellucid.kernels.compiling import in_place

Planes = Float[np.ndarray, "P F"]

GRU_PLANES, LSTM_PLANES = 4, 5
"""Planes of a step: r, z, n, U_n h + c_n of a GRU; i, f, g, o, tanh c' of an LSTM."""
PIECE = 1024
"""Numbers of a plane that are taken at once."""


@in_place
def planes_of(lstm: bool) -> int:
    """How many planes a step has."""
    return LSTM_PLANES if lstm else GRU_PLANES


@in_place
def gru_forward(planes: Planes, first: int, before: Flat, after: Flat) -> None:
    """`after` = h' from `before` = h. `planes` hold the sums W x + b + U h of r and z, W x + b of n, and U_n h + c_n.

    They are left as the way back needs them: r, z, n, U_n h + c_n.
    """
    for start in range(0, before.shape[0], PIECE):
        end = min(start + PIECE, before.shape[0])
        at, to = first + start, first + end
        r, z, n, u = planes[0, at:to], planes[1, at:to], planes[2, at:to], planes[3, at:to]
        h, result = before[start:end], after[start:end]
        sigmoids(r)
        sigmoids(z)
        for i in range(n.shape[0]):
            n[i] = tangent(n[i] + r[i] * u[i])
        for i in range(n.shape[0]):
            result[i] = n[i] + z[i] * (h[i] - n[i])


@in_place
def gru_backward(planes: Planes, first: int, hidden: Flat, before: Flat) -> None:
    """From dh' in `hidden`: the gradients of the sums take the places of r, z, n and u, and z ⊙ dh' that of dh'."""
    for start in range(0, before.shape[0], PIECE):
        end = min(start + PIECE, before.shape[0])
        at, to = first + start, first + end
        r, z, n, u = planes[0, at:to], planes[1, at:to], planes[2, at:to], planes[3, at:to]
        dh, h = hidden[start:end], before[start:end]
        _gru_candidate_back(z, n, dh, h)
        for i in range(r.shape[0]):
            dr = n[i] * u[i] * r[i] * (ONE - r[i])
            u[i] = n[i] * r[i]
            r[i] = dr


@in_place
def _gru_candidate_back(z: Flat, n: Flat, dh: Flat, h: Flat) -> None:
    """dz, dn and z ⊙ dh' in the places of z, n and dh'."""
    for i in range(z.shape[0]):
        dz = dh[i] * (h[i] - n[i]) * z[i] * (ONE - z[i])
        n[i] = dh[i] * (ONE - z[i]) * (ONE - n[i] * n[i])
        dh[i] *= z[i]
        z[i] = dz


@in_place
def lstm_forward(planes: Planes, first: int, cell: Flat, cell_after: Flat, after: Flat) -> None:
    """`after`, `cell_after` = h', c' from `cell` = c. `planes` hold the sums W x + b + U h of i, f, g, o.

    They are left as the way back needs them: i, f, g, o, tanh c'.
    """
    for start in range(0, cell.shape[0], PIECE):
        end = min(start + PIECE, cell.shape[0])
        at, to = first + start, first + end
        enter, forget, candidate = planes[0, at:to], planes[1, at:to], planes[2, at:to]
        leave, bent = planes[3, at:to], planes[4, at:to]
        old, new, result = cell[start:end], cell_after[start:end], after[start:end]
        sigmoids(enter)
        sigmoids(forget)
        tangents(candidate)
        sigmoids(leave)
        for i in range(old.shape[0]):
            new[i] = forget[i] * old[i] + enter[i] * candidate[i]
        for i in range(old.shape[0]):
            bent[i] = tangent(new[i])
            result[i] = leave[i] * bent[i]


@in_place
def lstm_backward(planes: Planes, first: int, hidden: Flat, cell: Flat, before: Flat) -> None:
    """From dh' in `hidden` and dc' in `cell`, `before` being c: the sums' gradients take the places of i, f, g, o.

    dc takes the place of dc'; dh' becomes zero, because h enters the step through the sums alone.
    """
    for start in range(0, before.shape[0], PIECE):
        end = min(start + PIECE, before.shape[0])
        at, to = first + start, first + end
        enter, forget, candidate = planes[0, at:to], planes[1, at:to], planes[2, at:to]
        leave, bent = planes[3, at:to], planes[4, at:to]
        dh, dc, c = hidden[start:end], cell[start:end], before[start:end]
        for i in range(dc.shape[0]):
            dc[i] += dh[i] * leave[i] * (ONE - bent[i] * bent[i])
            leave[i] = dh[i] * bent[i] * leave[i] * (ONE - leave[i])
            dh[i] = 0
        _lstm_entrance_back(enter, candidate, dc)
        for i in range(dc.shape[0]):
            carried = dc[i] * forget[i]
            forget[i] = carried * c[i] * (ONE - forget[i])
            dc[i] = carried


@in_place
def _lstm_entrance_back(enter: Flat, candidate: Flat, dc: Flat) -> None:
    """di and dg in the places of i and g."""
    for i in range(dc.shape[0]):
        di = dc[i] * candidate[i] * enter[i] * (ONE - enter[i])
        candidate[i] = dc[i] * enter[i] * (ONE - candidate[i] * candidate[i])
        enter[i] = di
