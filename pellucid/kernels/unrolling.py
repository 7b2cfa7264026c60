"""The decoder's steps over known symbols, forward and backward: attend from the state before, then step.

B rows, T steps, S source positions, A units of the query, D memory, H hidden, P planes of a step, Q gates (3 or 4), G =
Q·H, V target symbols, F = T·B·H. Gradients of weights are products over all steps and come after them, outside; here
they leave their factors, in the places of what the way there kept.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from pellucid.kernels.arithmetic import Flat, add
from pellucid.kernels.attention import (
    LocationGradients,
    LookGradients,
    Source,
    SourceGradients,
    double_exponents,
    look,
    look_back,
)
from pellucid.kernels.cells import Planes, gru_backward, gru_forward, lstm_backward, lstm_forward, planes_of
from pellucid.kernels.compiling import compiled
from pellucid.kernels.location import look_located, look_located_back
from pellucid.kernels.products import add_product, product
from pellucid.kernels.sequences import add_recurrent, add_recurrent_back, give_inputs, take_inputs


class Weights(NamedTuple):
    """What every step reads. Products go through a weight's transpose, `across`, there, and through itself back."""

    table: Float[np.ndarray, "V G"]
    """The projected symbols, with every bias that nothing multiplies."""
    candidate_bias: Flat
    """c_n of a GRU, which the reset gate multiplies; empty for an LSTM."""
    recurrent: Float[np.ndarray, "Q H H"]
    context: Float[np.ndarray, "Q H D"]
    query: Float[np.ndarray, "A H"]
    """Empty where the state itself is the query."""
    recurrent_across: Float[np.ndarray, "Q H H"]
    context_across: Float[np.ndarray, "Q D H"]
    query_across: Float[np.ndarray, "H A"]


class Unrolling(NamedTuple):
    """What the steps give, and keep for the way back; `hidden` and `cell` begin with the initial state."""

    hidden: Float[np.ndarray, "T1 B H"]
    cell: Float[np.ndarray, "T1 B H"]
    queries: Float[np.ndarray, "T B A"]
    """For the additive score e^{2q}, by location q, else nothing: the query is the state before."""
    contexts: Float[np.ndarray, "T B D"]
    weights: Float[np.ndarray, "B T S"]
    kept: Planes


class Arrived(NamedTuple):
    """The gradients of what the steps gave; those of the states are used up, the first becoming the initial state's."""

    hidden: Float[np.ndarray, "T1 B H"]
    cell: Float[np.ndarray, "B H"]
    contexts: Float[np.ndarray, "T B D"]
    """Those of the contexts as they are read; the cell's share is added."""
    weights: Float[np.ndarray, "B T S"]
    """Empty where nothing reads the weights."""


class UnrollingGradients(NamedTuple):
    """The table's gradients, and the factors of the others that `Unrolling.kept` does not hold."""

    queries: Float[np.ndarray, "T B A"]
    energies: Float[np.ndarray, "B T S"]
    table: Float[np.ndarray, "V G"]
    keys: Float[np.ndarray, "K A S"]
    energy: Flat
    location: LocationGradients


@compiled
def unroll(
    weights: Weights,
    symbols: Int[np.ndarray, "T B"],
    source: Source,
    hidden: Float[np.ndarray, "B H"],
    cell: Float[np.ndarray, "C H"],
) -> Unrolling:
    """Take all steps from the initial hidden state (and cell, which is empty for a GRU)."""
    count, (rows, size) = symbols.shape[0], hidden.shape
    lstm, additive = weights.recurrent.shape[0] == 4, source.energy.shape[0] > 0
    located = source.location.filters.shape[0] > 0
    hiddens = np.empty((count + 1, rows, size), np.float32)
    cells = np.empty((count + 1, cell.shape[0], size), np.float32)
    hiddens[0], cells[0] = hidden, cell
    queries = np.empty((count if additive else 0, rows, source.energy.shape[0]), np.float32)
    contexts = np.empty((count, rows, source.memory.shape[1]), np.float32)
    looks = np.zeros((rows, count, source.memory.shape[2]), np.float32)
    kept = np.empty((planes_of(lstm), count * rows * size), np.float32)
    for step in range(count):
        before, first = hiddens[step], step * rows * size
        if additive:
            product(before, weights.query_across, queries[step])
        if located:
            look_located(source, queries[step], step, looks, contexts[step])
        else:
            if additive:
                double_exponents(queries[step].ravel())
            look(source, queries[step] if additive else before, step, looks, contexts[step])
        add_sums(weights, symbols[step], contexts[step], before, kept, first)
        if lstm:
            lstm_forward(kept, first, cells[step].ravel(), cells[step + 1].ravel(), hiddens[step + 1].ravel())
        else:
            gru_forward(kept, first, before.ravel(), hiddens[step + 1].ravel())
    return Unrolling(hiddens, cells, queries, contexts, looks, kept)


@compiled
def add_sums(
    weights: Weights,
    symbols: Int[np.ndarray, " B"],
    contexts: Float[np.ndarray, "B D"],
    before: Float[np.ndarray, "B H"],
    planes: Planes,
    first: int,
) -> None:
    """What the gates are sums of: the projected symbol, C c and U h."""
    take_inputs(weights.table, symbols, weights.candidate_bias, planes, first)
    for gate in range(weights.context_across.shape[0]):
        plane = planes[gate, first : first + before.size]
        add_product(contexts, weights.context_across[gate], plane.reshape(before.shape))
    add_recurrent(before, weights.recurrent_across, planes, first)


@compiled
def unroll_back(
    weights: Weights, symbols: Int[np.ndarray, "T B"], source: Source, done: Unrolling, arrived: Arrived
) -> UnrollingGradients:
    """The way back through all steps; the gradients of the sums take the places of what `done` kept."""
    count, rows, size = symbols.shape[0], symbols.shape[1], done.hidden.shape[2]
    lstm, additive = weights.recurrent.shape[0] == 4, source.energy.shape[0] > 0
    queries = np.empty((count if additive else 1, rows, source.keys.shape[1]), np.float32)
    energies, table = np.zeros(done.weights.shape, np.float32), np.zeros(weights.table.shape, np.float32)
    sums, located = _zero_sums(source), source.location.filters.shape[0] > 0
    for step in range(count - 1, -1, -1):
        hidden, first = arrived.hidden[step + 1], step * rows * size
        if lstm:
            lstm_backward(done.kept, first, hidden.ravel(), arrived.cell.ravel(), done.cell[step].ravel())
        else:
            gru_backward(done.kept, first, hidden.ravel(), done.hidden[step].ravel())
        give_inputs(done.kept, first, symbols[step], table)
        for gate in range(weights.context.shape[0]):
            plane = done.kept[gate, first : first + hidden.size]
            add_product(plane.reshape(hidden.shape), weights.context[gate], arrived.contexts[step])
        asked = queries[step if additive else 0]
        look_gradients = LookGradients(arrived.contexts[step], arrived.weights, energies, asked)
        before = done.queries[step] if additive else done.hidden[step]
        if located:
            look_located_back(source, look_gradients, sums, step, before, done.weights)
        else:
            look_back(source, look_gradients, sums, step, before, done.weights)
        through = arrived.hidden[step]
        add(through.ravel(), hidden.ravel())
        add_recurrent_back(done.kept, first, weights.recurrent, through)
        if additive:
            add_product(asked, weights.query, through)
        else:
            add(through.ravel(), asked.ravel())
    return UnrollingGradients(queries, energies, table, sums.keys, sums.energy, sums.location)


@compiled
def _zero_sums(source: Source) -> SourceGradients:
    """Room for the gradients of keys, v, and what the score by location reads; of keys only where v is read."""
    keys = (source.keys.shape[0] if source.energy.shape[0] > 0 else 0, *source.keys.shape[1:])
    location = LocationGradients(
        np.zeros(source.location.filters.shape, np.float32),
        np.zeros(source.location.projection.shape, np.float32),
        np.zeros(source.location.looked.shape, np.float32),
    )
    return SourceGradients(np.zeros(keys, np.float32), np.zeros(source.energy.shape, np.float32), location)
