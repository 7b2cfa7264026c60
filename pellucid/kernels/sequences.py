"""A GRU or LSTM over whole sequences of unequal lengths, forward and backward.

B rows, S positions, H units, P planes of a step, Q gates (3 or 4), G = Q·H, V rows of the table of projected inputs, N
all real positions, F = N·H. Rows are sorted by length, longest first, and their states laid end to end, step by step:
step k holds the counts[k] rows longer than k, so that every product is over real positions only, and one over all steps
is one product. The gradients of a step take the places of what it kept.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from pellucid.kernels.arithmetic import Flat, add
from pellucid.kernels.cells import GRU_PLANES, Planes, gru_backward, gru_forward, lstm_backward, lstm_forward, planes_of
from pellucid.kernels.compiling import compiled
from pellucid.kernels.products import add_product

CANDIDATE, RESET_SUM = 2, 3
"""The planes of a GRU's n, and of U_n h + c_n, to which the third gate's product goes."""


class Packing(NamedTuple):
    """Which position stands where: for each packed row its row in the table and in the states; rows at each step."""

    symbols: Int[np.ndarray, " N"]
    places: Int[np.ndarray, " N"]
    counts: Int[np.ndarray, " S"]


@compiled
def pack(
    symbols: Int[np.ndarray, "B S"], lengths: Int[np.ndarray, " B"], rows: Int[np.ndarray, " R"], at: tuple[int, int]
) -> Packing:
    """Rows, longest first, laid end to end step by step; `at` is (direction, directions), the second running back."""
    (direction, directions), longest = at, lengths[rows[0]]
    counts = np.zeros(longest, np.int64)
    for row in rows:
        counts[: lengths[row]] += 1
    kept, places = np.empty(counts.sum(), np.int64), np.empty(counts.sum(), np.int64)
    start = 0
    for step in range(longest):
        for place in range(counts[step]):
            row = rows[place]
            position = lengths[row] - 1 - step if direction else step
            kept[start + place] = symbols[row, position]
            places[start + place] = (row * symbols.shape[1] + position) * directions + direction
        start += counts[step]
    return Packing(kept, places, counts)


class Recurrence(NamedTuple):
    """Inputs projected beforehand, one row of the table each, and the recurrent parameters."""

    table: Float[np.ndarray, "V G"]
    recurrent: Float[np.ndarray, "Q H H"]
    """U of each gate, for the way back."""
    across: Float[np.ndarray, "Q H H"]
    """Uᵀ of each gate, for the way there."""
    candidate_bias: Flat
    """c_n of a GRU, which the reset gate multiplies; empty for an LSTM."""


class Run(NamedTuple):
    """What a run leaves for the way back, and the last states of the rows, longest first."""

    before: Float[np.ndarray, "N H"]
    cell_before: Float[np.ndarray, "M H"]
    kept: Planes
    hidden: Float[np.ndarray, "B H"]


@compiled
def run(recurrence: Recurrence, packing: Packing, states: Float[np.ndarray, "M H"], keep: bool) -> Run:
    """Run every row from the zero state over its positions; the state at each goes to its place in `states`.

    What only the way back needs is kept where `keep` says so.
    """
    gates, size = recurrence.across.shape[0], recurrence.across.shape[1]
    lstm, rows = gates == 4, packing.counts[0]
    room = packing.places.shape[0] if keep else rows
    kept, before = np.empty((planes_of(lstm), room * size), np.float32), np.zeros((room, size), np.float32)
    cell_before = np.zeros((room if lstm else 0, size), np.float32)
    hidden, cell = np.zeros((rows, size), np.float32), np.zeros((rows if lstm else 0, size), np.float32)
    start = 0
    for step in range(packing.counts.shape[0]):
        n = packing.counts[step]
        first = start if keep else 0
        at = first * size
        before[first : first + n] = hidden[:n]
        take_inputs(recurrence.table, packing.symbols[start : start + n], recurrence.candidate_bias, kept, at)
        add_recurrent(before[first : first + n], recurrence.across, kept, at)
        if lstm:
            cell_before[first : first + n] = cell[:n]
            lstm_forward(kept, at, cell_before[first : first + n].ravel(), cell[:n].ravel(), hidden[:n].ravel())
        else:
            gru_forward(kept, at, before[first : first + n].ravel(), hidden[:n].ravel())
        for row in range(n):
            states[packing.places[start + row]] = hidden[row]
        start += n
    return Run(before, cell_before, kept, hidden)


@compiled
def run_back(
    recurrence: Recurrence,
    packing: Packing,
    done: Run,
    states: Float[np.ndarray, "M H"],
    hidden: Float[np.ndarray, "B H"],
) -> Float[np.ndarray, "V G"]:
    """The way back, from the gradients of the states and of the last hidden ones, which are used up: the table's.

    The gradients of the sums take the places of what the run kept.
    """
    gates, size = recurrence.recurrent.shape[0], recurrence.recurrent.shape[1]
    lstm, rows, end = gates == 4, packing.counts[0], packing.places.shape[0]
    table, cell = np.zeros(recurrence.table.shape, np.float32), np.zeros((rows if lstm else 0, size), np.float32)
    for step in range(packing.counts.shape[0] - 1, -1, -1):
        n = packing.counts[step]
        start = end - n
        for row in range(n):
            add(hidden[row], states[packing.places[start + row]])
        at, own = start * size, hidden[:n]
        if lstm:
            lstm_backward(done.kept, at, own.ravel(), cell[:n].ravel(), done.cell_before[start:end].ravel())
        else:
            gru_backward(done.kept, at, own.ravel(), done.before[start:end].ravel())
        give_inputs(done.kept, at, packing.symbols[start:end], table)
        add_recurrent_back(done.kept, at, recurrence.recurrent, own)
        end = start
    return table


@compiled
def take_inputs(
    table: Float[np.ndarray, "V G"], symbols: Int[np.ndarray, " n"], bias: Flat, planes: Planes, first: int
) -> None:
    """W x + b of every gate into its plane, from the rows of the table that the symbols name; c_n into its own."""
    gates = 3 if bias.shape[0] else 4
    size = table.shape[1] // gates
    for gate in range(gates):
        plane = planes[gate, first : first + symbols.shape[0] * size]
        for row in range(symbols.shape[0]):
            inputs = table[symbols[row]]
            for j in range(size):
                plane[row * size + j] = inputs[gate * size + j]
    if bias.shape[0]:
        plane = planes[RESET_SUM, first : first + symbols.shape[0] * size]
        for row in range(symbols.shape[0]):
            for j in range(size):
                plane[row * size + j] = bias[j]


@compiled
def give_inputs(planes: Planes, first: int, symbols: Int[np.ndarray, " n"], table: Float[np.ndarray, "V G"]) -> None:
    """The gradients of W x + b added to the rows of the table that the symbols name."""
    gates = 3 if planes.shape[0] == GRU_PLANES else 4
    size = table.shape[1] // gates
    for gate in range(gates):
        plane = planes[gate, first : first + symbols.shape[0] * size]
        for row in range(symbols.shape[0]):
            inputs = table[symbols[row]]
            for j in range(size):
                inputs[gate * size + j] += plane[row * size + j]


@compiled
def recurrent_plane(gates: int, gate: int) -> int:
    """The plane of U h of a gate: its own, but that of a GRU's n, which the reset gate multiplies, apart."""
    return RESET_SUM if gates == 3 and gate == CANDIDATE else gate


@compiled
def add_recurrent(
    before: Float[np.ndarray, "n H"], across: Float[np.ndarray, "Q H H"], planes: Planes, first: int
) -> None:
    """U h of every gate added to its plane."""
    for gate in range(across.shape[0]):
        plane = planes[recurrent_plane(across.shape[0], gate), first : first + before.size]
        add_product(before, across[gate], plane.reshape(before.shape))


@compiled
def add_recurrent_back(
    planes: Planes, first: int, recurrent: Float[np.ndarray, "Q H H"], hidden: Float[np.ndarray, "n H"]
) -> None:
    """Uᵀ times the gradients of every gate's U h, added to those of h."""
    for gate in range(recurrent.shape[0]):
        plane = planes[recurrent_plane(recurrent.shape[0], gate), first : first + hidden.size]
        add_product(plane.reshape(hidden.shape), recurrent[gate], hidden)
