"""A GRU or LSTM over whole sequences of unequal lengths, forward and backward.

B rows, S positions, H units, G all gates (3H or 4H), V rows of the table of projected inputs, N all real positions.
Rows are sorted by length, longest first, and their states laid end to end, step by step: step k holds the counts[k]
rows longer than k, so that every product is over real positions only, and one over all steps is one product.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from pellucid.kernels.arithmetic import Flat, add
from pellucid.kernels.cells import (
    GRADIENT_PLANES,
    GRU_PLANES,
    LSTM_PLANES,
    Gradients,
    Sums,
    gru_backward,
    gru_forward,
    lstm_backward,
    lstm_forward,
)
from pellucid.kernels.compiling import compiled


class Packing(NamedTuple):
    """Which position stands where: for each packed row its row in the table and in the states; rows at each step."""

    symbols: Int[np.ndarray, " N"]
    places: Int[np.ndarray, " N"]
    counts: Int[np.ndarray, " S"]


class Recurrence(NamedTuple):
    """Inputs projected beforehand, one row of the table each, and the recurrent parameters."""

    table: Float[np.ndarray, "V G"]
    weight: Float[np.ndarray, "G H"]
    weight_across: Float[np.ndarray, "H G"]
    candidate_bias: Flat
    """c_n of a GRU, which the reset gate multiplies; empty for an LSTM."""


class Run(NamedTuple):
    """What a run leaves for the way back, and the last states of the rows, longest first."""

    before: Float[np.ndarray, "N H"]
    cell_before: Float[np.ndarray, "M H"]
    kept: Flat
    hidden: Float[np.ndarray, "B H"]
    cell: Float[np.ndarray, "B H"]


class RunGradients(NamedTuple):
    """The gradients of a run: of U h at every packed row, and of the table."""

    recurrent: Float[np.ndarray, "N G"]
    table: Float[np.ndarray, "V G"]


@compiled
def run(recurrence: Recurrence, packing: Packing, states: Float[np.ndarray, "M H"]) -> Run:
    """Run every row from the zero state over its positions; the state at each goes to its place in `states`."""
    gates, size = recurrence.weight.shape
    lstm, rows, total = gates == 4 * size, packing.counts[0], packing.places.shape[0]
    planes = LSTM_PLANES if lstm else GRU_PLANES
    kept = np.empty(planes * total * size, np.float32)
    before, cell_before = np.empty((total, size), np.float32), np.empty((total if lstm else 0, size), np.float32)
    hidden, cell = np.zeros((rows, size), np.float32), np.zeros((rows if lstm else 0, size), np.float32)
    inputs, recurrent = np.empty((rows, gates), np.float32), np.empty((rows, gates), np.float32)
    start = 0
    for step in range(packing.counts.shape[0]):
        n = packing.counts[step]
        end = start + n
        before[start:end] = hidden[:n]
        for row in range(n):
            inputs[row] = recurrence.table[packing.symbols[start + row]]
        np.dot(before[start:end], recurrence.weight_across, recurrent[:n])
        block = kept_block(kept, planes, start, n, size)
        sums = Sums(inputs[:n], recurrent[:n], recurrence.candidate_bias)
        if lstm:
            cell_before[start:end] = cell[:n]
            lstm_forward(sums, block, cell_before[start:end], hidden[:n], cell[:n])
        else:
            gru_forward(sums, block, before[start:end], hidden[:n])
        for row in range(n):
            states[packing.places[start + row]] = hidden[row]
        start = end
    return Run(before, cell_before, kept, hidden, cell)


@compiled
def run_back(
    recurrence: Recurrence,
    packing: Packing,
    done: Run,
    states: Float[np.ndarray, "M H"],
    hidden: Float[np.ndarray, "B H"],
    cell: Float[np.ndarray, "B H"],
) -> RunGradients:
    """The way back, from the gradients of the states and of the last hidden states and cells, which are used up."""
    gates, size = recurrence.weight.shape
    lstm, rows, end = gates == 4 * size, packing.counts[0], packing.places.shape[0]
    planes = LSTM_PLANES if lstm else GRU_PLANES
    recurrent, table = np.empty((end, gates), np.float32), np.zeros(recurrence.table.shape, np.float32)
    own, flat = np.empty((rows, gates), np.float32), np.empty(GRADIENT_PLANES * rows * size, np.float32)
    through = np.empty((rows, size), np.float32)
    for step in range(packing.counts.shape[0] - 1, -1, -1):
        n = packing.counts[step]
        start = end - n
        for row in range(n):
            add(hidden[row], states[packing.places[start + row]])
        block = kept_block(done.kept, planes, start, n, size)
        inputs = recurrent[start:end] if lstm else own[:n]
        scratch = flat[: GRADIENT_PLANES * n * size].reshape((GRADIENT_PLANES, n, size))
        gradients = Gradients(inputs, recurrent[start:end], hidden[:n], cell[:n], scratch)
        if lstm:
            lstm_backward(gradients, block, done.cell_before[start:end])
        else:
            gru_backward(gradients, block, done.before[start:end])
        for row in range(n):
            add(table[packing.symbols[start + row]], inputs[row])
        np.dot(recurrent[start:end], recurrence.weight, through[:n])
        add(hidden[:n].ravel(), through[:n].ravel())
        end = start
    return RunGradients(recurrent, table)


@compiled
def kept_block(kept: Flat, planes: int, start: int, rows: int, size: int) -> Float[np.ndarray, "P n H"]:
    """The planes that a step of so many rows kept, the rows before it counted by `start`."""
    return kept[planes * start * size : planes * (start + rows) * size].reshape((planes, rows, size))
