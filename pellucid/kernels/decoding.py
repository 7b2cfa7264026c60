"""The unrolled decoder, as PyTorch sees it.

B rows, S source positions, T steps, A units of the keys, D memory, H hidden, G all gates (3H or 4H), V target symbols.
"""

from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from pellucid.kernels.attention import Laid, Location, Source, doubled_exponents, laid_out
from pellucid.kernels.compiling import in_place
from pellucid.kernels.operands import NOTHING, Looked, Parameters
from pellucid.kernels.parallel import end_to_end, for_each, parts_of, slices
from pellucid.kernels.products import product_over
from pellucid.kernels.recurrence import across, by_gate
from pellucid.kernels.sequences import recurrent_plane
from pellucid.kernels.unrolling import Arrived, Unrolling, UnrollingGradients, Weights, unroll, unroll_back


class Decoded(NamedTuple):
    """What all steps give, and the last state; the cell is empty for a GRU."""

    hidden: Float[Tensor, "B T H"]
    contexts: Float[Tensor, "B T D"]
    weights: Float[Tensor, "B T S"]
    last: Float[Tensor, "B H"]
    cell: Float[Tensor, "C H"]


def unroll_decoder(
    parameters: Parameters,
    symbols: Int[Tensor, "B T"],
    looked: Looked,
    hidden: Float[Tensor, "B H"],
    cell: Float[Tensor, "B H"] | None,
    before: Float[Tensor, "B S"] | None = None,
) -> Decoded:
    """Attend from the state before, then step, over known symbols; gradients flow to and from everything.

    The score by location is given the weights before the first step.
    """
    assert before is not None or not len(parameters.filters), "by location needs the weights before"
    start, weights_before = hidden[:0] if cell is None else cell, NOTHING if before is None else before
    given = [*parameters, looked.keys, looked.memory, hidden, start, weights_before]
    hiddens, contexts, weights, cells = _Unrolled.apply(symbols, looked.lengths, *given)  # type: ignore[no-untyped-call]
    return Decoded(hiddens, contexts, weights, hiddens[:, -1], cells)


class _Given(NamedTuple):
    """All that the steps are a function of, ids and lengths apart."""

    table: Tensor
    candidate_bias: Tensor
    recurrent: Tensor
    context: Tensor
    query: Tensor
    energy: Tensor
    location: Tensor
    filters: Tensor
    keys: Tensor
    memory: Tensor
    hidden: Tensor
    cell: Tensor
    before: Tensor


class _Whole(NamedTuple):
    """Gradients into which every part writes those of its rows. For the additive score the keys' stand turned."""

    keys: Float[Tensor, "B S A"]
    memory: Float[Tensor, "B S D"]


class _Done(NamedTuple):
    """One part of the rows: which they are, and what the kernel was given and gave."""

    rows: slice
    symbols: Int[np.ndarray, "T R"]
    source: Source
    unrolling: Unrolling


class _Unrolled(torch.autograd.Function):
    """Forward and backward by the kernels; the gradients of weights are one product each over all steps."""

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401
        symbols: Tensor,
        lengths: Tensor,
        *tensors: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Hidden states, contexts and weights of all steps, and the last cell."""
        given = _Given(*(tensor.detach() for tensor in tensors))
        ctx.weights = weights_of(Parameters(*given[: len(Parameters._fields)]))
        task = partial(_forward, ctx.weights, given, symbols.numpy(), lengths.numpy())
        ctx.done = for_each(task, slices(len(symbols), parts_of(len(symbols))))
        ctx.save_for_backward(*tensors)
        ctx.set_materialize_grads(False)
        unrollings = [part.unrolling for part in ctx.done]
        hidden = end_to_end([each.hidden[1:].swapaxes(0, 1) for each in unrollings]).contiguous()
        contexts = end_to_end([each.contexts.swapaxes(0, 1) for each in unrollings])
        weights, cell = end_to_end([each.weights for each in unrollings]), [each.cell[-1] for each in unrollings]
        return hidden, contexts, weights, end_to_end(cell)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *arrived: Tensor | None) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        """From the gradients of what `forward` gave to those of what it took."""
        given = _Given(*ctx.saved_tensors)  # refuses parameters that were changed in between: the parts hold arrays
        if ctx.done is None:
            raise RuntimeError("these gradients were taken already, and are taken only once")
        done, ctx.done = ctx.done, None
        whole = _whole(given)
        parts = for_each(partial(_backward, ctx.weights, arrived, whole), done)
        return None, None, *map(_joined, _Given._fields, zip(*parts, strict=True))


def _whole(given: _Given) -> _Whole:
    """Room for the gradients of all rows."""
    keys = torch.empty(given.keys.shape)
    if len(given.energy):
        keys = torch.empty(given.keys.transpose(1, 2).shape).transpose(1, 2)
    return _Whole(keys, torch.empty(given.memory.shape))


def weights_of(parameters: Parameters) -> Weights:
    """The parameters as the arrays that kernels take, those of several gates apart for each."""
    table, bias, recurrent, context, query, *_ = (tensor.detach().contiguous() for tensor in parameters)
    size = recurrent.shape[1]
    turned = (across(recurrent), across(context, size), query.T.contiguous().numpy())
    plain = (by_gate(recurrent).numpy(), by_gate(context, size).numpy(), query.numpy())
    return Weights(table.numpy(), bias.numpy(), *plain, *turned)


def location_of(
    projection: Float[Tensor, "Q F"], filters: Float[Tensor, "F N"], looked: Float[np.ndarray, "R S"]
) -> Location:
    """What the score by location reads, as the arrays that kernels take."""
    weights = (filters.detach(), projection.detach(), filters.detach().T, projection.detach().T)
    plain, projected, *across = (weight.contiguous().numpy() for weight in weights)
    return Location(plain, projected, across[0], across[1], looked)


def _forward(
    weights: Weights,
    given: _Given,
    symbols: Int[np.ndarray, "B T"],
    lengths: Int[np.ndarray, " B"],
    rows: slice,
) -> _Done:
    """One part's steps."""
    memory, hidden, cell, before = (tensor[rows].contiguous().numpy() for tensor in given[-4:])
    energy, own = given.energy.contiguous().numpy(), lengths[rows]
    location = location_of(given.location, given.filters, before)
    keys = _laid_keys(given.keys[rows], own, len(energy) > 0 and not len(location.filters))
    source = Source(keys, laid_out(memory, own, False), own, energy, location)
    steps = np.ascontiguousarray(symbols[rows].T)
    return _Done(rows, steps, source, unroll(weights, steps, source, hidden, cell))


def _laid_keys(keys: Float[Tensor, "B S A"], lengths: Int[np.ndarray, " B"], doubled: bool) -> Laid:
    """The keys as the steps read them, from keys that stand as `kernels.keys` left them, or in any other way."""
    laid = keys.transpose(1, 2)
    if not laid.is_contiguous():
        return laid_out(keys.contiguous().numpy(), lengths, doubled)
    return doubled_exponents(laid.numpy()) if doubled else laid.numpy()


def _backward(weights: Weights, arrived: tuple[Tensor | None, ...], whole: _Whole, done: _Done) -> _Given:
    """One part's gradients, of parameters the part's share."""
    unrolling, hidden = done.unrolling, np.zeros_like(done.unrolling.hidden)
    own = [None if gradient is None else gradient[done.rows] for gradient in arrived]
    contexts, cell = np.zeros_like(unrolling.contexts), np.zeros_like(unrolling.cell[0])
    for gradient, array in ((own[0], hidden[1:]), (own[1], contexts)):
        if gradient is not None:
            array[:] = gradient.transpose(0, 1).numpy()
    if own[3] is not None:
        cell[:] = own[3].numpy()
    looks = np.zeros((0, 0, 0), np.float32) if own[2] is None else own[2].contiguous().numpy()
    given = Arrived(hidden, cell, contexts, looks)
    keys, memory = whole.keys[done.rows], whole.memory[done.rows].numpy()
    laid = keys.transpose(1, 2).numpy() if len(done.source.energy) else np.empty((0, 0, 0), np.float32)
    factors = unroll_back(weights, done.symbols, done.source, unrolling, given, laid)
    sum_over_steps(unrolling.weights, contexts, memory)
    if not len(done.source.energy):
        sum_over_steps(factors.energies, unrolling.hidden[:-1], keys.numpy())
    return _gradients(weights, done, given, factors, whole)


def _gradients(weights: Weights, done: _Done, arrived: Arrived, factors: UnrollingGradients, whole: _Whole) -> _Given:
    """Products over all steps of what the kernel left."""
    gates, size = weights.recurrent.shape[:2]
    planes = torch.from_numpy(done.unrolling.kept).view(len(done.unrolling.kept), -1, size)
    contexts = torch.from_numpy(done.unrolling.contexts).flatten(0, 1)
    states = torch.from_numpy(done.unrolling.hidden[:-1]).flatten(0, 1)
    recurrent, context = torch.empty(gates, size, size), torch.empty(gates, size, contexts.shape[1])
    for gate in range(gates):
        torch.mm(planes[recurrent_plane(gates, gate)].T, states, out=recurrent[gate])
        torch.mm(planes[gate].T, contexts, out=context[gate])
    query = torch.from_numpy(factors.queries).flatten(0, 1).T @ states if len(factors.energy) else torch.zeros(0, size)
    return _Given(
        table=torch.from_numpy(factors.table),
        candidate_bias=planes[-1].sum(dim=0) if len(weights.candidate_bias) else torch.zeros(0),
        recurrent=recurrent.flatten(0, 1),
        context=context.flatten(0, 1),
        query=query,
        energy=torch.from_numpy(factors.energy),
        location=torch.from_numpy(factors.location.projection),
        filters=torch.from_numpy(factors.location.filters),
        keys=whole.keys,
        memory=whole.memory,
        hidden=torch.from_numpy(arrived.hidden[0]),
        cell=torch.from_numpy(arrived.cell),
        before=torch.from_numpy(factors.location.looked),
    )


@in_place
def sum_over_steps(
    weights: Float[np.ndarray, "B T S"], vectors: Float[np.ndarray, "T B D"], result: Float[np.ndarray, "B S D"]
) -> None:
    """Σ_t weights_ts vector_t, row by row."""
    for row in range(weights.shape[0]):
        product_over(weights[row], vectors[:, row], result[row])


def _joined(name: str, parts: tuple[Tensor, ...]) -> Tensor:
    """The gradient from those of all parts: rows end to end, parameters summed; some have all rows already."""
    if len(parts) == 1 or name in _Whole._fields:
        return parts[0]
    return torch.cat(parts) if name in ("hidden", "cell", "before") else torch.stack(parts).sum(dim=0)


def warm_up() -> None:
    """Compile everything here by running the smallest example there and back."""
    one, table = torch.ones(1, 1, dtype=torch.int64), torch.zeros(2, 3, requires_grad=True)
    empty, square = torch.zeros(3, 1), torch.zeros(1, 1)
    parameters = Parameters(table, torch.zeros(1), empty, empty, square, torch.zeros(1))
    looked = Looked(torch.zeros(1, 1, 1), torch.zeros(1, 1, 1), one[0])
    decoded = unroll_decoder(parameters, one, looked, square, None)
    torch.autograd.grad(decoded.hidden.sum(), table)
