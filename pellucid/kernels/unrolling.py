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
from pellucid.kernels.compiling import compiled, in_place
from pellucid.kernels.gemm import add_product, product
from pellucid.kernels.location import look_located, look_located_back
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
    hiddens = np.empty((count + 1, rows, size), np.float32)
    cells = np.empty((count + 1, cell.shape[0], size), np.float32)
    hiddens[0], cells[0] = hidden, cell
    queries = np.empty((count if additive else 0, rows, source.energy.shape[0]), np.float32)
    contexts = np.empty((count, rows, source.memory.shape[1]), np.float32)
    looks = np.zeros((rows, count, source.memory.shape[2]), np.float32)
    kept = np.empty((planes_of(lstm), count * rows * size), np.float32)
    done = Unrolling(hiddens, cells, queries, contexts, looks, kept)
    if source.location.filters.shape[0] > 0:
        _unroll_located(weights, symbols, source, done)
    else:
        _unroll_steps(weights, symbols, source, done)
    return done


@in_place
def _unroll_steps(weights: Weights, symbols: Int[np.ndarray, "T B"], source: Source, done: Unrolling) -> None:
    """The steps of `unroll`, from the initial state, which stands in its place."""
    for step in range(symbols.shape[0]):
        query = done.hidden[step]
        if source.energy.shape[0] > 0:
            query = done.queries[step]
            product(done.hidden[step], weights.query_across, query)
            double_exponents(query.reshape(-1))
        look(source, query, step, done.weights, done.contexts[step])
        _advance(weights, symbols, done, step)


@compiled
def _unroll_located(weights: Weights, symbols: Int[np.ndarray, "T B"], source: Source, done: Unrolling) -> None:
    """As `_unroll_steps`, where the score sees the look before."""
    for step in range(symbols.shape[0]):
        product(done.hidden[step], weights.query_across, done.queries[step])
        look_located(source, done.queries[step], step, done.weights, done.contexts[step])
        _advance(weights, symbols, done, step)


@in_place
def _advance(weights: Weights, symbols: Int[np.ndarray, "T B"], done: Unrolling, step: int) -> None:
    """From the contexts of a step to its states."""
    before, after, first = done.hidden[step], done.hidden[step + 1].reshape(-1), step * done.hidden[0].size
    add_sums(weights, symbols[step], done.contexts[step], before, done.kept, first)
    if weights.recurrent.shape[0] == 4:
        lstm_forward(done.kept, first, done.cell[step].reshape(-1), done.cell[step + 1].reshape(-1), after)
    else:
        gru_forward(done.kept, first, before.reshape(-1), after)


@in_place
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
    weights: Weights,
    symbols: Int[np.ndarray, "T B"],
    source: Source,
    done: Unrolling,
    arrived: Arrived,
    keys: Float[np.ndarray, "K A S"],
) -> UnrollingGradients:
    """The way back through all steps; the gradients of the sums take the places of what `done` kept.

    Those of the keys are written into `keys`, which has no rows unless the score is additive.
    """
    (count, rows), additive = symbols.shape, source.energy.shape[0] > 0
    queries = np.empty((count if additive else 1, rows, source.keys.shape[1]), np.float32)
    energies, table = np.zeros(done.weights.shape, np.float32), np.zeros(weights.table.shape, np.float32)
    keys[:] = 0
    location = LocationGradients(
        np.zeros(source.location.filters.shape, np.float32),
        np.zeros(source.location.projection.shape, np.float32),
        np.zeros(source.location.looked.shape, np.float32),
    )
    energy = np.zeros(source.energy.shape, np.float32)
    gradients = UnrollingGradients(queries, energies, table, keys, energy, location)
    if source.location.filters.shape[0] > 0:
        _unroll_located_back(weights, symbols, source, (done, arrived), gradients)
    else:
        _unroll_steps_back(weights, symbols, source, (done, arrived), gradients)
    return gradients


@in_place
def _unroll_steps_back(
    weights: Weights,
    symbols: Int[np.ndarray, "T B"],
    source: Source,
    steps: tuple[Unrolling, Arrived],
    gradients: UnrollingGradients,
) -> None:
    """The steps of `unroll_back`."""
    (done, arrived), additive = steps, source.energy.shape[0] > 0
    sums = SourceGradients(gradients.keys, gradients.energy, gradients.location)
    for step in range(symbols.shape[0] - 1, -1, -1):
        _return(weights, symbols[step], steps, gradients.table, step)
        asked = gradients.queries[step if additive else 0]
        look_gradients = LookGradients(arrived.contexts[step], arrived.weights, gradients.energies, asked)
        before = done.queries[step] if additive else done.hidden[step]
        look_back(source, look_gradients, sums, step, before, done.weights)
        if additive:
            add_product(asked, weights.query, arrived.hidden[step])
        else:
            add(arrived.hidden[step].reshape(-1), asked.reshape(-1))


@compiled
def _unroll_located_back(
    weights: Weights,
    symbols: Int[np.ndarray, "T B"],
    source: Source,
    steps: tuple[Unrolling, Arrived],
    gradients: UnrollingGradients,
) -> None:
    """As `_unroll_steps_back`, where the score sees the look before."""
    (done, arrived), sums = steps, SourceGradients(gradients.keys, gradients.energy, gradients.location)
    for step in range(symbols.shape[0] - 1, -1, -1):
        _return(weights, symbols[step], steps, gradients.table, step)
        asked = gradients.queries[step]
        look_gradients = LookGradients(arrived.contexts[step], arrived.weights, gradients.energies, asked)
        look_located_back(source, look_gradients, sums, step, done.queries[step], done.weights)
        add_product(asked, weights.query, arrived.hidden[step])


@in_place
def _return(
    weights: Weights,
    symbols: Int[np.ndarray, " B"],
    steps: tuple[Unrolling, Arrived],
    table: Float[np.ndarray, "V G"],
    step: int,
) -> None:
    """From the gradients of a step's states to those of its contexts, of the states before, and of the table."""
    done, arrived = steps
    hidden, first = arrived.hidden[step + 1], step * done.hidden[0].size
    if weights.recurrent.shape[0] == 4:
        lstm_backward(done.kept, first, hidden.reshape(-1), arrived.cell.reshape(-1), done.cell[step].reshape(-1))
    else:
        gru_backward(done.kept, first, hidden.reshape(-1), done.hidden[step].reshape(-1))
    give_inputs(done.kept, first, symbols, table)
    for gate in range(weights.context.shape[0]):
        plane = done.kept[gate, first : first + hidden.size]
        add_product(plane.reshape(hidden.shape), weights.context[gate], arrived.contexts[step])
    through = arrived.hidden[step]
    add(through.reshape(-1), hidden.reshape(-1))
    add_recurrent_back(done.kept, first, weights.recurrent, through)
