"""The unrolled decoder, spread over threads.

B rows, S source positions, T steps, A units of the keys, D memory, H hidden, G all gates (3H or 4H), V target symbols.
"""

from functools import partial
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from pellucid.kernels.aligned_memory import contiguous
from pellucid.kernels.attention import Laid, Location, Source, doubled_exponents, laid_out
from pellucid.kernels.compiling import in_place
from pellucid.kernels.gemm import product_over
from pellucid.kernels.parallel import end_to_end, for_each, parts_of, slices
from pellucid.kernels.recurrence import across, by_gate
from pellucid.kernels.types import NOTHING, Looked, Parameters
from pellucid.kernels.unrolling import Arrived, Unrolling, UnrollingGradients, Weights, unroll, unroll_back


class Decoded(NamedTuple):
    """What all steps give, and the last state; the cell is empty for a GRU."""

    hidden: Float[np.ndarray, "B T H"]
    contexts: Float[np.ndarray, "B T D"]
    weights: Float[np.ndarray, "B T S"]
    cell: Float[np.ndarray, "C H"]


class Given(NamedTuple):
    """All that the steps are a function of, ids, lengths and the parameters of the cell apart."""

    energy: Float[np.ndarray, " Q"]
    location: Float[np.ndarray, "Q F"]
    filters: Float[np.ndarray, "F N"]
    keys: Float[np.ndarray, "B S A"]
    memory: Float[np.ndarray, "B S D"]
    hidden: Float[np.ndarray, "B H"]
    cell: Float[np.ndarray, "C H"]
    before: Float[np.ndarray, "L S"]
    """The weights before the first step, by location; else no rows."""


class Whole(NamedTuple):
    """Gradients into which every part writes those of its rows. For the additive score the keys' stand turned."""

    keys: Float[np.ndarray, "B S A"]
    memory: Float[np.ndarray, "B S D"]


class Done(NamedTuple):
    """One part of the rows: which they are, and what the kernel was given and gave."""

    rows: slice
    symbols: Int[np.ndarray, "T R"]
    source: Source
    unrolling: Unrolling


def unroll_decoder(
    parameters: Parameters,
    symbols: Int[np.ndarray, "B T"],
    looked: Looked,
    hidden: Float[np.ndarray, "B H"],
    cell: Float[np.ndarray, "B H"] | None,
    before: Float[np.ndarray, "B S"] | None = None,
) -> Decoded:
    """Attend from the state before, then step, over known symbols.

    The score by location is given the weights before the first step.
    """
    assert before is not None or not len(parameters.filters), "by location needs the weights before"
    start, weights_before = hidden[:0] if cell is None else cell, NOTHING if before is None else before
    given = Given(*parameters[5:], looked.keys, looked.memory, hidden, start, weights_before)
    return decoded_of(unroll_parts(weights_of(parameters), given, symbols, looked.lengths))


def unroll_parts(
    weights: Weights, given: Given, symbols: Int[np.ndarray, "B T"], lengths: Int[np.ndarray, " B"]
) -> list[Done]:
    """Return all steps of the rows, a part of them for each thread."""
    task = partial(_forward, weights, given, symbols, lengths)
    return for_each(task, slices(len(symbols), parts_of(len(symbols))))


def decoded_of(parts: list[Done]) -> Decoded:
    """Return what the steps of all rows gave."""
    unrollings = [part.unrolling for part in parts]
    return Decoded(
        contiguous(end_to_end([each.hidden[1:].swapaxes(0, 1) for each in unrollings])),
        end_to_end([each.contexts.swapaxes(0, 1) for each in unrollings]),
        end_to_end([each.weights for each in unrollings]),
        end_to_end([each.cell[-1] for each in unrollings]),
    )


def weights_of(parameters: Parameters) -> Weights:
    """The parameters as the arrays that kernels take, those of several gates apart for each."""
    table, bias, recurrent, context, query, *_ = (contiguous(array) for array in parameters)
    size = recurrent.shape[1]
    turned = (across(recurrent), across(context, size), contiguous(query.T))
    return Weights(table, bias, by_gate(recurrent), by_gate(context, size), query, *turned)


def location_of(
    projection: Float[np.ndarray, "Q F"], filters: Float[np.ndarray, "F N"], looked: Float[np.ndarray, "R S"]
) -> Location:
    """What the score by location reads, as the arrays that kernels take."""
    plain, projected, *across = (contiguous(each) for each in (filters, projection, filters.T, projection.T))
    return Location(plain, projected, across[0], across[1], looked)


def _forward(
    weights: Weights, given: Given, symbols: Int[np.ndarray, "B T"], lengths: Int[np.ndarray, " B"], rows: slice
) -> Done:
    """One part's steps."""
    memory, hidden, cell, before = (contiguous(array[rows]) for array in given[-4:])
    energy, own = contiguous(given.energy), lengths[rows]
    location = location_of(given.location, given.filters, before)
    keys = _laid_keys(given.keys[rows], own, len(energy) > 0 and not len(location.filters))
    source = Source(keys, laid_out(memory, own, False), own, energy, location)
    steps = np.ascontiguousarray(symbols[rows].T)
    return Done(rows, steps, source, unroll(weights, steps, source, hidden, cell))


def _laid_keys(keys: Float[np.ndarray, "B S A"], lengths: Int[np.ndarray, " B"], doubled: bool) -> Laid:
    """The keys as the steps read them, from keys that stand as `kernels.keys` left them, or in any other way."""
    laid = keys.transpose(0, 2, 1)
    if not laid.flags.c_contiguous:
        return laid_out(contiguous(keys), lengths, doubled)
    return doubled_exponents(laid) if doubled else laid


def unroll_part_back(
    weights: Weights, arrived: tuple[np.ndarray | None, ...], whole: Whole, done: Done
) -> tuple[Arrived, UnrollingGradients]:
    """Return the gradients of one part's states and table, and the factors of the others.

    They come from the gradients of what `Decoded` holds, each of which may be missing. Those of keys and memory are
    written into `whole`.
    """
    unrolling, hidden = done.unrolling, np.zeros_like(done.unrolling.hidden)
    own = [None if gradient is None else gradient[done.rows] for gradient in arrived]
    contexts, cell = np.zeros_like(unrolling.contexts), np.zeros_like(unrolling.cell[0])
    for gradient, array in ((own[0], hidden[1:]), (own[1], contexts)):
        if gradient is not None:
            array[:] = gradient.swapaxes(0, 1)
    if own[3] is not None:
        cell[:] = own[3]
    looks = np.zeros((0, 0, 0), np.float32) if own[2] is None else contiguous(own[2])
    given = Arrived(hidden, cell, contexts, looks)
    keys, memory, additive = whole.keys[done.rows], whole.memory[done.rows], len(done.source.energy) > 0
    laid = keys.transpose(0, 2, 1) if additive else np.empty((0, 0, 0), np.float32)
    factors = unroll_back(weights, done.symbols, done.source, unrolling, given, laid)
    sum_over_steps(unrolling.weights, contexts, memory)
    if not additive:
        sum_over_steps(factors.energies, unrolling.hidden[:-1], keys)
    return given, factors


@in_place
def sum_over_steps(
    weights: Float[np.ndarray, "B T S"], vectors: Float[np.ndarray, "T B D"], result: Float[np.ndarray, "B S D"]
) -> None:
    """Σ_t weights_ts vector_t, row by row."""
    for row in range(weights.shape[0]):
        product_over(weights[row], vectors[:, row], result[row])


def warm_up() -> None:
    """Compile everything here by running the smallest example there and back."""
    one, single, empty = np.ones((1, 1), np.int64), np.zeros((1, 1), np.float32), np.zeros((3, 1), np.float32)
    weights = weights_of(Parameters(np.zeros((2, 3), np.float32), single[0], empty, empty, single, single[0]))
    given = Given(single[0], NOTHING, NOTHING, single[None], single[None], single, single[:0], NOTHING)
    (done,) = unroll_parts(weights, given, one, one[0])
    decoded = decoded_of([done])
    unroll_part_back(weights, (decoded.hidden, None, None, None), Whole(single[None].copy(), single[None].copy()), done)
