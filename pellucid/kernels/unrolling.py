"""The decoder's steps over known symbols, forward and backward: attend from the state before, then step.

B rows, T steps, S source positions, A units of the query, D memory, H hidden, G all gates, V target symbols.
Gradients of weights are products over all steps and come after them, outside; here they leave their factors.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from pellucid.kernels.arithmetic import Flat, add
from pellucid.kernels.attention import LookGradients, Source, SourceGradients, double_exponents, look, look_back
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


class Steps(NamedTuple):
    """What every step reads; products go through a weight forward and through its transpose, `across`, backward."""

    symbols: Int[np.ndarray, "T B"]
    table: Float[np.ndarray, "V G"]
    """The projected symbols, with every bias that nothing multiplies."""
    candidate_bias: Flat
    """c_n of a GRU, which the reset gate multiplies; empty for an LSTM."""
    recurrent: Float[np.ndarray, "G H"]
    context: Float[np.ndarray, "G D"]
    query: Float[np.ndarray, "A H"]
    """Empty where the state itself is the query."""
    recurrent_across: Float[np.ndarray, "H G"]
    context_across: Float[np.ndarray, "D G"]
    query_across: Float[np.ndarray, "H A"]


class Unrolling(NamedTuple):
    """What the steps give, and keep for the way back; `hidden` and `cell` begin with the initial state."""

    hidden: Float[np.ndarray, "T1 B H"]
    cell: Float[np.ndarray, "T1 B H"]
    queries: Float[np.ndarray, "T B A"]
    """For the additive score e^{2q}, else nothing: the query is the state before."""
    contexts: Float[np.ndarray, "T B D"]
    weights: Float[np.ndarray, "B T S"]
    kept: Float[np.ndarray, "T P B H"]


class Arrived(NamedTuple):
    """The gradients of what the steps gave; those of the states are used up, the first becoming the initial state's."""

    hidden: Float[np.ndarray, "T1 B H"]
    cell: Float[np.ndarray, "B H"]
    contexts: Float[np.ndarray, "T B D"]
    """Those of the contexts as they are read; the cell's share is added."""
    weights: Float[np.ndarray, "B T S"]
    """Empty where nothing reads the weights."""


class UnrollingGradients(NamedTuple):
    """The factors of all gradients: dU = recurrentᵀ · hidden before, dC = inputsᵀ · contexts, and so on."""

    inputs: Float[np.ndarray, "T B G"]
    recurrent: Float[np.ndarray, "T B G"]
    queries: Float[np.ndarray, "T B A"]
    energies: Float[np.ndarray, "B T S"]
    table: Float[np.ndarray, "V G"]
    keys: Float[np.ndarray, "K A S"]
    energy: Flat


@compiled
def unroll(steps: Steps, source: Source, hidden: Float[np.ndarray, "B H"], cell: Float[np.ndarray, "C H"]) -> Unrolling:
    """Take all steps from the initial hidden state (and cell, which is empty for a GRU)."""
    count, rows = steps.symbols.shape
    gates, size = steps.recurrent.shape
    lstm, additive = gates == 4 * size, source.energy.shape[0] > 0
    planes = LSTM_PLANES if lstm else GRU_PLANES
    hiddens = np.empty((count + 1, rows, size), np.float32)
    cells = np.empty((count + 1, cell.shape[0], size), np.float32)
    hiddens[0], cells[0] = hidden, cell
    queries = np.empty((count if additive else 0, rows, source.energy.shape[0]), np.float32)
    contexts = np.empty((count, rows, source.memory.shape[1]), np.float32)
    weights = np.zeros((rows, count, source.memory.shape[2]), np.float32)
    kept = np.empty((count, planes, rows, size), np.float32)
    inputs, recurrent = np.empty((rows, gates), np.float32), np.empty((rows, gates), np.float32)
    for step in range(count):
        before = hiddens[step]
        if additive:
            np.dot(before, steps.query_across, queries[step])
            double_exponents(queries[step].ravel())
        look(source, queries[step] if additive else before, step, weights, contexts[step])
        np.dot(contexts[step], steps.context_across, inputs)
        for row in range(rows):
            add(inputs[row], steps.table[steps.symbols[step, row]])
        np.dot(before, steps.recurrent_across, recurrent)
        sums = Sums(inputs, recurrent, steps.candidate_bias)
        if lstm:
            lstm_forward(sums, kept[step], cells[step], hiddens[step + 1], cells[step + 1])
        else:
            gru_forward(sums, kept[step], before, hiddens[step + 1])
    return Unrolling(hiddens, cells, queries, contexts, weights, kept)


@compiled
def unroll_back(steps: Steps, source: Source, done: Unrolling, arrived: Arrived) -> UnrollingGradients:
    """The way back through all steps."""
    count, rows = steps.symbols.shape
    gates, size = steps.recurrent.shape
    lstm, additive = gates == 4 * size, source.energy.shape[0] > 0
    inputs = np.empty((count, rows, gates), np.float32)
    recurrent = inputs if lstm else np.empty((count, rows, gates), np.float32)
    queries = np.empty((count if additive else 1, rows, source.keys.shape[1]), np.float32)
    energies, table = np.zeros(done.weights.shape, np.float32), np.zeros(steps.table.shape, np.float32)
    sums = SourceGradients(
        np.zeros((rows if additive else 0, *source.keys.shape[1:]), np.float32),
        np.zeros(source.energy.shape, np.float32),
    )
    scratch, through = np.empty((GRADIENT_PLANES, rows, size), np.float32), np.empty((rows, size), np.float32)
    share = np.empty((rows, source.memory.shape[1]), np.float32)
    for step in range(count - 1, -1, -1):
        hidden = arrived.hidden[step + 1]
        gradients = Gradients(inputs[step], recurrent[step], hidden, arrived.cell, scratch)
        if lstm:
            lstm_backward(gradients, done.kept[step], done.cell[step])
        else:
            gru_backward(gradients, done.kept[step], done.hidden[step])
        for row in range(rows):
            add(table[steps.symbols[step, row]], inputs[step, row])
        np.dot(inputs[step], steps.context, share)
        add(arrived.contexts[step].ravel(), share.ravel())
        asked = queries[step if additive else 0]
        look_gradients = LookGradients(arrived.contexts[step], arrived.weights, energies, asked)
        before = done.queries[step] if additive else done.hidden[step]
        look_back(source, look_gradients, sums, step, before, done.weights)
        np.dot(recurrent[step], steps.recurrent, through)
        add(arrived.hidden[step].ravel(), hidden.ravel())
        add(arrived.hidden[step].ravel(), through.ravel())
        if additive:
            np.dot(asked, steps.query, through)
            add(arrived.hidden[step].ravel(), through.ravel())
        else:
            add(arrived.hidden[step].ravel(), asked.ravel())
    return UnrollingGradients(inputs, recurrent, queries, energies, table, sums.keys, sums.energy)
