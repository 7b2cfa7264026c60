"""The unrolled decoder, as PyTorch sees it.

B rows, S source positions, T steps, A units of the keys, D memory, H hidden, G all gates (3H or 4H), V target symbols.
"""

from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from pellucid.kernels.attention import Source, laid_out
from pellucid.kernels.parallel import end_to_end, for_each, parts_of
from pellucid.kernels.unrolling import Arrived, Steps, Unrolling, UnrollingGradients, unroll, unroll_back


class Looked(NamedTuple):
    """What is looked at. `lengths` count the real positions, at least 1; nothing beyond them is read."""

    keys: Float[Tensor, "B S A"]
    memory: Float[Tensor, "B S D"]
    lengths: Int[Tensor, " B"]


class Parameters(NamedTuple):
    """The parameters of a step. Additive score: e = energyᵀ tanh(query h + key); both empty: e = h · key."""

    table: Float[Tensor, "V G"]
    """The projected symbols, with every bias that nothing multiplies."""
    candidate_bias: Float[Tensor, " C"]
    """c_n of a GRU, which the reset gate multiplies; empty for an LSTM."""
    recurrent: Float[Tensor, "G H"]
    context: Float[Tensor, "G D"]
    query: Float[Tensor, "Q H"]
    energy: Float[Tensor, " Q"]


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
) -> Decoded:
    """Attend from the state before, then step, over known symbols; gradients flow to and from everything."""
    start = hidden[:0] if cell is None else cell
    given = [*parameters, looked.keys, looked.memory, hidden, start]
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
    keys: Tensor
    memory: Tensor
    hidden: Tensor
    cell: Tensor


class _Done(NamedTuple):
    """One part of the rows: which they are, and what the kernel was given and gave."""

    rows: slice
    steps: Steps
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
        given = _Given(*(tensor.detach().contiguous() for tensor in tensors))
        ctx.done = for_each(partial(_forward, given, symbols.numpy(), lengths.numpy()), _slices(len(symbols)))
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
        _ = ctx.saved_tensors  # refuses parameters that were changed in between: the parts hold them as arrays
        parts = for_each(partial(_backward, arrived), ctx.done)
        return None, None, *map(_joined, _Given._fields, zip(*parts, strict=True))


def _slices(rows: int) -> list[slice]:
    """The rows in as many parts as there are threads."""
    ends = [rows * part // parts_of(rows) for part in range(parts_of(rows) + 1)]
    return [slice(start, end) for start, end in pairwise(ends)]


def _forward(given: _Given, symbols: Int[np.ndarray, "B T"], lengths: Int[np.ndarray, " B"], rows: slice) -> _Done:
    """One part's steps."""
    table, bias, recurrent, context, query, energy, keys, memory, hidden, cell = (tensor.numpy() for tensor in given)
    weights = (recurrent, context, query)
    across = (np.ascontiguousarray(weight.T) for weight in weights)
    steps = Steps(np.ascontiguousarray(symbols[rows].T), table, bias, *weights, *across)
    laid_keys = laid_out(keys[rows], lengths[rows], len(energy) > 0)
    source = Source(laid_keys, laid_out(memory[rows], lengths[rows], False), lengths[rows], energy)
    return _Done(rows, steps, source, unroll(steps, source, hidden[rows], cell[rows]))


def _backward(arrived: tuple[Tensor | None, ...], done: _Done) -> _Given:
    """One part's gradients, of parameters the part's share."""
    unrolling, hidden = done.unrolling, np.zeros_like(done.unrolling.hidden)
    own = [None if gradient is None else gradient[done.rows] for gradient in arrived]
    contexts, cell = np.zeros_like(unrolling.contexts), np.zeros_like(unrolling.cell[0])
    for gradient, array in ((own[0], hidden[1:]), (own[1], contexts)):
        if gradient is not None:
            array[:] = gradient.transpose(0, 1).numpy()
    if own[3] is not None:
        cell[:] = own[3].numpy()
    weights = np.zeros((0, 0, 0), np.float32) if own[2] is None else own[2].contiguous().numpy()
    given = Arrived(hidden, cell, contexts, weights)
    return _gradients(done, given, unroll_back(done.steps, done.source, unrolling, given))


def _gradients(done: _Done, arrived: Arrived, factors: UnrollingGradients) -> _Given:
    """Products over all steps of what the kernel left."""
    recurrent, inputs, queries, before, contexts = (
        torch.from_numpy(array).flatten(0, 1)
        for array in (
            *(factors.recurrent, factors.inputs, factors.queries),
            *(done.unrolling.hidden[:-1], done.unrolling.contexts),
        )
    )
    if len(factors.energy):
        query, keys = queries.T @ before, torch.from_numpy(factors.keys).transpose(1, 2)
    else:
        query, keys = torch.zeros(0, before.shape[1]), _over_steps(factors.energies, done.unrolling.hidden[:-1])
    return _Given(
        table=torch.from_numpy(factors.table),
        candidate_bias=recurrent[:, recurrent.shape[1] - len(done.steps.candidate_bias) :].sum(dim=0),
        recurrent=recurrent.T @ before,
        context=inputs.T @ contexts,
        query=query,
        energy=torch.from_numpy(factors.energy),
        keys=keys,
        memory=_over_steps(done.unrolling.weights, arrived.contexts),
        hidden=torch.from_numpy(arrived.hidden[0]),
        cell=torch.from_numpy(arrived.cell),
    )


def _over_steps(weights: Float[np.ndarray, "B T S"], vectors: Float[np.ndarray, "T B D"]) -> Float[Tensor, "B S D"]:
    """Σ_t weights_ts vector_t, row by row."""
    return torch.bmm(torch.from_numpy(weights).transpose(1, 2), torch.from_numpy(vectors).transpose(0, 1))


def _joined(name: str, parts: tuple[Tensor, ...]) -> Tensor:
    """The gradient from those of all parts: rows end to end, parameters summed."""
    if len(parts) == 1:
        return parts[0]
    return torch.cat(parts) if name in ("keys", "memory", "hidden", "cell") else torch.stack(parts).sum(dim=0)


def rehearse() -> None:
    """Compile everything here by running the smallest example there and back."""
    one, table = torch.ones(1, 1, dtype=torch.int64), torch.zeros(2, 3, requires_grad=True)
    empty, square = torch.zeros(3, 1), torch.zeros(1, 1)
    parameters = Parameters(table, torch.zeros(1), empty, empty, square, torch.zeros(1))
    looked = Looked(torch.zeros(1, 1, 1), torch.zeros(1, 1, 1), one[0])
    decoded = unroll_decoder(parameters, one, looked, square, None)
    torch.autograd.grad(decoded.hidden.sum(), table)
