"""A GRU or LSTM over whole sequences of unequal lengths, forward and backward.

B rows, S positions, H units, P planes of a step, Q gates (3 or 4), G = Q·H, V rows of the table of projected inputs, N
all real positions, F = N·H. Rows are sorted by length, longest first, and their states laid end to end, step by step:
step k holds the counts[k] rows longer than k, so that every product is over real positions only, and one over all steps
is one product. The gradients of a step take the places of what it kept.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from pellucid.kernels.arithmetic import Flat, add, put
from pellucid.kernels.cells import GRU_PLANES, Planes, gru_backward, gru_forward, lstm_backward, lstm_forward, planes_of
from pellucid.kernels.compiling import compiled, in_place
from pellucid.kernels.gemm import add_product

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
    done = Run(before, cell_before, kept, hidden)
    _run_steps(recurrence, packing, done, cell, states)
    return done


@in_place
def _run_steps(
    recurrence: Recurrence,
    packing: Packing,
    done: Run,
    cell: Float[np.ndarray, "C H"],
    states: Float[np.ndarray, "M H"],
) -> None:
    """The steps of `run`; what it keeps has room for all of them, or for one, which they then share."""
    keep, start = done.before.shape[0] == packing.places.shape[0], 0
    for step in range(packing.counts.shape[0]):
        n = packing.counts[step]
        first = start if keep else 0
        at, before, hidden = first * done.hidden.shape[1], done.before[first : first + n], done.hidden[:n].reshape(-1)
        put(before.reshape(-1), hidden)
        take_inputs(recurrence.table, packing.symbols[start : start + n], recurrence.candidate_bias, done.kept, at)
        add_recurrent(before, recurrence.across, done.kept, at)
        if cell.shape[0]:
            cell_before, own = done.cell_before[first : first + n].reshape(-1), cell[:n].reshape(-1)
            put(cell_before, own)
            lstm_forward(done.kept, at, cell_before, own, hidden)
        else:
            gru_forward(done.kept, at, before.reshape(-1), hidden)
        for row in range(n):
            put(states[packing.places[start + row]], done.hidden[row])
        start += n


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
    lstm, rows, size = recurrence.recurrent.shape[0] == 4, packing.counts[0], recurrence.recurrent.shape[1]
    table, cell = np.zeros(recurrence.table.shape, np.float32), np.zeros((rows if lstm else 0, size), np.float32)
    _run_steps_back(recurrence, packing, done, (states, hidden, cell), table)
    return table


@in_place
def _run_steps_back(
    recurrence: Recurrence,
    packing: Packing,
    done: Run,
    arrived: tuple[Float[np.ndarray, "M H"], Float[np.ndarray, "B H"], Float[np.ndarray, "C H"]],
    table: Float[np.ndarray, "V G"],
) -> None:
    """The steps of `run_back`, from the gradients of states, hidden and cell."""
    (states, hidden, cell), end, size = arrived, packing.places.shape[0], recurrence.recurrent.shape[1]
    for step in range(packing.counts.shape[0] - 1, -1, -1):
        n = packing.counts[step]
        start = end - n
        for row in range(n):
            add(hidden[row], states[packing.places[start + row]])
        at, own = start * size, hidden[:n]
        if cell.shape[0]:
            lstm_backward(done.kept, at, own.reshape(-1), cell[:n].reshape(-1), done.cell_before[start:end].reshape(-1))
        else:
            gru_backward(done.kept, at, own.reshape(-1), done.before[start:end].reshape(-1))
        give_inputs(done.kept, at, packing.symbols[start:end], table)
        add_recurrent_back(done.kept, at, recurrence.recurrent, own)
        end = start


@in_place
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


@in_place
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


@in_place
def recurrent_plane(gates: int, gate: int) -> int:
    """The plane of U h of a gate: its own, but that of a GRU's n, which the reset gate multiplies, apart."""
    return RESET_SUM if gates == 3 and gate == CANDIDATE else gate


@in_place
def add_recurrent(
    before: Float[np.ndarray, "n H"], across: Float[np.ndarray, "Q H H"], planes: Planes, first: int
) -> None:
    """U h of every gate added to its plane."""
    for gate in range(across.shape[0]):
        plane = planes[recurrent_plane(across.shape[0], gate), first : first + before.size]
        add_product(before, across[gate], plane.reshape(before.shape))


@in_place
def add_recurrent_back(
    planes: Planes, first: int, recurrent: Float[np.ndarray, "Q H H"], hidden: Float[np.ndarray, "n H"]
) -> None:
    """Uᵀ times the gradients of every gate's U h, added to those of h."""
    for gate in range(recurrent.shape[0]):
        plane = planes[recurrent_plane(recurrent.shape[0], gate), first : first + hidden.size]
        add_product(plane.reshape(hidden.shape), recurrent[gate], hidden)
