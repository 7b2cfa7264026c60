"""The kernels as PyTorch sees them: tensors in and out, and gradients. Other kernels for processors take arrays.

B rows, S positions, N directions (1 or 2), T steps, A units of the keys, D memory, H hidden, G all gates (3H or 4H), V
rows of a table or symbols, R hypotheses of a search.
"""

from functools import partial, reduce
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from pellucid.kernels import adam, decoding, stepping
from pellucid.kernels import beam as beams
from pellucid.kernels import greedy as searching
from pellucid.kernels.decoding import Done, Given, Whole, unroll_part_back, unroll_parts, weights_of
from pellucid.kernels.keys import Projected, project_back
from pellucid.kernels.keys import project as project_arrays
from pellucid.kernels.loss import loss_and_gradient
from pellucid.kernels.parallel import for_each
from pellucid.kernels.recurrence import Part, parts_for, recurrence_of, run_parts
from pellucid.kernels.sequences import Recurrence, Run, recurrent_plane, run_back
from pellucid.kernels.types import Direction, First, Head, Looked, Parameters, Rules, Searched, Taken
from pellucid.kernels.unrolling import Arrived, UnrollingGradients, Weights


def _array(tensor: Tensor | np.ndarray) -> np.ndarray:
    """Return the numbers of a tensor, which are not copied; an array as it is."""
    return tensor.detach().numpy() if isinstance(tensor, Tensor) else tensor


def _arrays(*tensors: Tensor | np.ndarray) -> tuple[np.ndarray, ...]:
    """Return the numbers of several tensors."""
    return tuple(_array(tensor) for tensor in tensors)


class Ran(NamedTuple):
    """The hidden states of each direction, zero beyond a row's length, and each row's last."""

    states: Float[Tensor, "B S N H"]
    hidden: Float[Tensor, "B N H"]


def run_recurrence(directions: list[Direction], symbols: Int[Tensor, "B S"], lengths: Int[Tensor, " B"]) -> Ran:
    """Return the states of each direction run from zero over every row, on W x + b = table[symbol].

    The first runs from a row's first position to its last, the second from its last to its first. Lengths are at
    least 1.
    """
    parts = parts_for(_array(symbols), _array(lengths), len(directions))
    tensors = [tensor for direction in directions for tensor in direction]
    shape = (*symbols.shape, len(directions))
    if not torch.is_grad_enabled():
        ran, _ = run_parts(_recurrences(tensors), parts, shape, False)
        return Ran(torch.from_numpy(ran.states), torch.from_numpy(ran.hidden))
    return Ran(*_Recurrence.apply(parts, shape, *tensors))  # type: ignore[no-untyped-call]


class _Recurrence(torch.autograd.Function):
    """Forward and backward by the kernels; the gradients of the parameters are one product each over all positions."""

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401
        parts: list[Part],
        shape: tuple[int, int, int],
        *tensors: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """The states and the last ones."""
        ran, ctx.runs = run_parts(_recurrences(tensors), parts, shape, True)
        ctx.parts = parts
        ctx.save_for_backward(*tensors)
        return torch.from_numpy(ran.states), torch.from_numpy(ran.hidden)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, states: Tensor, hidden: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        """From the gradients of what `forward` gave to those of what it took."""
        recurrences = _recurrences(ctx.saved_tensors)
        if ctx.runs is None:
            raise RuntimeError("these gradients were taken already, and are taken only once")
        runs, ctx.runs = ctx.runs, None
        arrived = (states.contiguous().flatten(0, 2).numpy(), hidden.numpy())
        pairs = list(zip(ctx.parts, runs, strict=True))
        parts = for_each(partial(_run_part_back, recurrences, arrived), pairs)
        sums: list[Tensor] = []
        for at in range(len(recurrences)):
            own = [gradients for part, gradients in zip(ctx.parts, parts, strict=True) if part.direction == at]
            sums += [reduce(torch.add, tensors) for tensors in zip(*own, strict=True)]
        return None, None, *sums


def _recurrences(tensors: Any) -> list[Recurrence]:  # noqa: ANN401 (a sequence of tensors)
    """The directions from the flat list that PyTorch passes, as the kernels read them."""
    arrays = _arrays(*tensors)
    return [recurrence_of(Direction(*arrays[first : first + 3])) for first in range(0, len(arrays), 3)]


def _run_part_back(
    recurrences: list[Recurrence],
    arrived: tuple[Float[np.ndarray, "M H"], Float[np.ndarray, "B N H"]],
    done: tuple[Part, Run],
) -> Direction:
    """One part's gradients of its direction's parameters."""
    (part, kept), (states, hidden) = done, arrived
    recurrence = recurrences[part.direction]
    last = hidden[part.rows, part.direction]
    table = run_back(recurrence, part.packing, kept, states, last)
    gates, size = recurrence.recurrent.shape[:2]
    factors = torch.from_numpy(kept.kept).view(len(kept.kept), -1, size)
    weight, before = torch.empty(gates * size, size), torch.from_numpy(kept.before)
    for gate in range(gates):
        torch.mm(factors[recurrent_plane(gates, gate)].T, before, out=weight[gate * size : (gate + 1) * size])
    bias = factors[-1].sum(dim=0) if len(recurrence.candidate_bias) else torch.empty(0)
    return Direction(torch.from_numpy(table), weight, bias)


def project(
    memory: Float[Tensor, "B S D"], weight: Float[Tensor, "A D"], bias: Tensor | None
) -> Float[Tensor, "B S A"]:
    """`nn.functional.linear(memory, weight, bias)`, the positions innermost; gradients flow to all three."""
    given = memory, weight, weight.new_zeros(0) if bias is None else bias
    keys: Tensor = _Projected.apply(*given)  # type: ignore[no-untyped-call]
    return keys


class _Projected(torch.autograd.Function):
    """Forward and backward by the kernels, each part of the rows by a thread."""

    @staticmethod
    def forward(ctx: Any, *tensors: Tensor) -> Tensor:  # noqa: ANN401
        """The keys, which stand turned."""
        ctx.save_for_backward(*tensors)
        return torch.from_numpy(project_arrays(_projected(tensors))).transpose(1, 2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, arrived: Tensor) -> tuple[Tensor, Tensor, Tensor]:  # noqa: ANN401
        """From the gradient of the keys to those of memory, weight and bias."""
        given = _projected(ctx.saved_tensors)
        memory = torch.empty(given.memory.shape)
        weight, bias = project_back(given, arrived.transpose(1, 2).contiguous().numpy(), memory.numpy())
        return memory, torch.from_numpy(weight), torch.from_numpy(bias)


def _projected(tensors: tuple[Tensor, ...]) -> Projected:
    """Tensors as the arrays that kernels take."""
    return Projected(*(tensor.detach().contiguous().numpy() for tensor in tensors))


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
    start, weights_before = hidden[:0] if cell is None else cell, hidden.new_empty(0, 0) if before is None else before
    tensors = (torch.from_numpy(each) if isinstance(each, np.ndarray) else each for each in parameters)
    given = [*tensors, looked.keys, looked.memory, hidden, start, weights_before]
    hiddens, contexts, weights, cells = _Unrolled.apply(symbols, looked.lengths, *given)  # type: ignore[no-untyped-call]
    return Decoded(hiddens, contexts, weights, hiddens[:, -1], cells)


class _Gradients(NamedTuple):
    """All that the steps are a function of, ids and lengths apart: its gradients."""

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


class _WholeGradients(NamedTuple):
    """Those of `Whole`, as tensors."""

    keys: Float[Tensor, "B S A"]
    memory: Float[Tensor, "B S D"]


class _Unrolled(torch.autograd.Function):
    """Forward and backward by the kernels; the gradients of weights are one product each over all steps."""

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401
        symbols: Tensor,
        lengths: Tensor,
        *tensors: Tensor,
    ) -> tuple[Tensor, ...]:
        """Hidden states, contexts and weights of all steps, and the last cell."""
        arrays = _arrays(*tensors)
        ctx.weights = weights_of(Parameters(*arrays[: len(Parameters._fields)]))
        ctx.done = unroll_parts(ctx.weights, Given(*arrays[-len(Given._fields) :]), symbols.numpy(), lengths.numpy())
        ctx.save_for_backward(*tensors)
        ctx.set_materialize_grads(False)
        return tuple(torch.from_numpy(array) for array in decoding.decoded_of(ctx.done))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *arrived: Tensor | None) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        """From the gradients of what `forward` gave to those of what it took."""
        given = _Gradients(*ctx.saved_tensors)  # refuses parameters that were changed since: the parts hold arrays
        if ctx.done is None:
            raise RuntimeError("these gradients were taken already, and are taken only once")
        done, ctx.done = ctx.done, None
        whole = _whole(given)
        gradients = tuple(None if gradient is None else gradient.numpy() for gradient in arrived)
        parts = for_each(partial(_unroll_part_back, ctx.weights, gradients, whole), done)
        return None, None, *map(_joined, _Gradients._fields, zip(*parts, strict=True))


def _whole(given: _Gradients) -> _WholeGradients:
    """Room for the gradients of all rows."""
    keys = torch.empty(given.keys.shape)
    if len(given.energy):
        keys = torch.empty(given.keys.transpose(1, 2).shape).transpose(1, 2)
    return _WholeGradients(keys, torch.empty(given.memory.shape))


def _unroll_part_back(
    weights: Weights, arrived: tuple[np.ndarray | None, ...], whole: _WholeGradients, done: Done
) -> _Gradients:
    """One part's gradients, of parameters the part's share."""
    given, factors = unroll_part_back(weights, arrived, Whole(*_arrays(*whole)), done)
    return _gradients(weights, done, given, factors, whole)


def _gradients(
    weights: Weights, done: Done, arrived: Arrived, factors: UnrollingGradients, whole: _WholeGradients
) -> _Gradients:
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
    return _Gradients(
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


def _joined(name: str, parts: tuple[Tensor, ...]) -> Tensor:
    """The gradient from those of all parts: rows end to end, parameters summed; some have all rows already."""
    if len(parts) == 1 or name in _WholeGradients._fields:
        return parts[0]
    return torch.cat(parts) if name in ("hidden", "cell", "before") else torch.stack(parts).sum(dim=0)


class NumbaDecoder(NamedTuple):
    """A decoder with the sources that it reads, laid out once for all steps of a search; see `model.memory`."""

    ready: stepping.Ready

    def take(self, rows: Int[Tensor, " r"]) -> "NumbaDecoder":
        """The chosen of the running sources, in their order; nothing but their numbers is copied."""
        return NumbaDecoder(self.ready.take(_array(rows)))

    def running(self) -> Int[Tensor, " b"]:
        """The numbers of the running sources."""
        return torch.from_numpy(self.ready.sources.rows)

    def step(
        self,
        symbols: Int[Tensor, " R"],
        hidden: Float[Tensor, "R H"],
        cell: Float[Tensor, "R H"] | None,
        looked: Float[Tensor, "R S"] | None = None,
    ) -> Taken:
        """One step of all hypotheses, those of a source one after the other; by location, given the weights before."""
        before = tuple(None if each is None else _array(each) for each in (cell, looked))
        return Taken(*map(torch.from_numpy, self.ready.step(_array(symbols), _array(hidden), *before)))


def prepare(parameters: Parameters, head: Head, looked: Looked) -> NumbaDecoder:
    """Lay out what every step reads."""
    given = Parameters(*_arrays(*parameters)), Head(*_arrays(*head)), Looked(*_arrays(*looked))
    return NumbaDecoder(stepping.prepare(*given))


def search_greedily(prepared: object, first: First, rules: Rules) -> list[Searched]:
    """The likeliest symbol at every step for all sources, in parts of the rows that follow each other."""
    assert isinstance(prepared, NumbaDecoder), "made by `prepare`"
    return searching.search_greedily(prepared.ready, _first(first), rules)


def search_beams(prepared: object, first: First, rules: Rules, sizes: beams.Sizes) -> list[beams.Found]:
    """The likeliest outputs of all sources, in parts of the rows that follow each other."""
    assert isinstance(prepared, NumbaDecoder), "made by `prepare`"
    return beams.search_beams(prepared.ready, _first(first), rules, sizes)


def _first(first: First) -> First:
    """The states that a search begins with, as arrays."""
    return First(*(None if part is None else _array(part) for part in first))


class CrossEntropy(torch.autograd.Function):
    """`loss_and_gradient`, as PyTorch sees it."""

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401
        logits: Float[Tensor, "M V"],
        targets: Int[Tensor, " M"],
        ignored: int,
        smoothing: float,
    ) -> Float[Tensor, ""]:
        """The loss; the gradient waits for its turn."""
        given = logits.detach().contiguous().numpy()
        loss, gradient = loss_and_gradient(given, targets.numpy(), ignored, np.float32(smoothing))
        ctx.save_for_backward(torch.from_numpy(gradient))
        return logits.new_tensor(loss)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, arrived: Float[Tensor, ""]) -> tuple[Tensor, None, None, None]:  # noqa: ANN401
        """The gradient, times the one that arrives."""
        (gradient,) = ctx.saved_tensors
        return gradient * arrived, None, None, None


def turn_to_changes(
    gradient: Float[Tensor, " P"],
    mean: Float[Tensor, " P"],
    square: Float[Tensor, " P"],
    numbers: tuple[float, float, float, float],
) -> None:
    """`training.optimizer.turn_to_changes`, compiled: float32, on a processor."""
    adam.turn_to_changes(gradient.numpy(), mean.numpy(), square.numpy(), numbers)
