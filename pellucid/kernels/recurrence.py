"""Whole-sequence GRU and LSTM, as PyTorch sees them.

B rows, S positions, N directions (1 or 2), H units, G all gates (3H or 4H), V rows of the table of projected inputs.
"""

from functools import partial, reduce
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from pellucid.kernels.interrupts import held_back
from pellucid.kernels.operands import Direction
from pellucid.kernels.parallel import for_each, parts_of
from pellucid.kernels.sequences import Packing, Recurrence, Run, pack, recurrent_plane, run, run_back


class Ran(NamedTuple):
    """The hidden states of each direction, zero beyond a row's length, and each row's last."""

    states: Float[Tensor, "B S N H"]
    hidden: Float[Tensor, "B N H"]


class Part(NamedTuple):
    """Rows of the batch that run together in one direction, longest first, and what the kernel must know of them."""

    direction: int
    rows: Int[np.ndarray, " R"]
    packing: Packing


def run_recurrence(directions: list[Direction], symbols: Int[Tensor, "B S"], lengths: Int[Tensor, " B"]) -> Ran:
    """The states of each direction run from zero over every row, on W x + b = table[symbol].

    The first runs from a row's first position to its last, the second from its last to its first. Lengths are at
    least 1.
    """
    parts = _parts(symbols.numpy(), lengths.numpy(), len(directions))
    tensors = [tensor for direction in directions for tensor in direction]
    shape = (*symbols.shape, len(directions))
    if not torch.is_grad_enabled():
        return _run_all(directions, parts, shape, False)[0]
    return Ran(*_Recurrence.apply(parts, shape, *tensors))  # type: ignore[no-untyped-call]


def _parts(symbols: Int[np.ndarray, "B S"], lengths: Int[np.ndarray, " B"], directions: int) -> list[Part]:
    """Work for every thread: each direction is a part, or as many as its share of the threads.

    The rows are dealt out like cards, longest first, so that each part has its share of long ones.
    """
    order, count = np.argsort(-lengths, kind="stable"), parts_of(len(lengths), directions)
    dealt = [order[first::count] for first in range(count)]
    return [_part(symbols, lengths, rows, (at, directions)) for at in range(directions) for rows in dealt]


def _part(
    symbols: Int[np.ndarray, "B S"], lengths: Int[np.ndarray, " B"], rows: Int[np.ndarray, " R"], at: tuple[int, int]
) -> Part:
    """Where everything stands when rows run step by step, the finished ones last and left out."""
    with held_back():
        return Part(at[0], rows, pack(symbols, lengths, rows, at))


def _run_all(
    directions: list[Direction], parts: list[Part], shape: tuple[int, int, int], keep: bool
) -> tuple[Ran, list[Run]]:
    """All parts' runs, and what they give together."""
    size = directions[0].weight.shape[1]
    states, hidden = torch.zeros(shape[0] * shape[1] * shape[2], size), torch.empty(shape[0], shape[2], size)
    recurrences = [_arrays(direction) for direction in directions]
    runs = for_each(partial(_run, recurrences, states.numpy(), keep), parts)
    for part, done in zip(parts, runs, strict=True):
        hidden.numpy()[part.rows, part.direction] = done.hidden
    return Ran(states.view(*shape, size), hidden), runs


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
        ran, ctx.runs = _run_all(_directions(tensors), parts, shape, True)
        ctx.parts = parts
        ctx.save_for_backward(*tensors)
        return ran.states, ran.hidden

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, states: Tensor, hidden: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        """From the gradients of what `forward` gave to those of what it took."""
        directions = _directions(ctx.saved_tensors)
        if ctx.runs is None:
            raise RuntimeError("these gradients were taken already, and are taken only once")
        runs, ctx.runs = ctx.runs, None
        recurrences = [_arrays(direction) for direction in directions]
        arrived = (states.contiguous().flatten(0, 2).numpy(), hidden.numpy())
        pairs = list(zip(ctx.parts, runs, strict=True))
        parts = for_each(partial(_run_back, recurrences, arrived), pairs)
        sums: list[Tensor] = []
        for at in range(len(directions)):
            own = [gradients for part, gradients in zip(ctx.parts, parts, strict=True) if part.direction == at]
            sums += [reduce(torch.add, tensors) for tensors in zip(*own, strict=True)]
        return None, None, *sums


def _directions(tensors: tuple[Tensor, ...]) -> list[Direction]:
    """The directions from the flat list that PyTorch passes."""
    return [Direction(*tensors[first : first + 3]) for first in range(0, len(tensors), 3)]


def _run(recurrences: list[Recurrence], states: Float[np.ndarray, "M H"], keep: bool, part: Part) -> Run:
    """One part's run, its states written among those of the others."""
    return run(recurrences[part.direction], part.packing, states, keep)


def _run_back(
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


def _arrays(direction: Direction) -> Recurrence:
    """Tensors as the arrays that kernels take."""
    table, weight, bias = (tensor.detach().contiguous() for tensor in direction)
    recurrent = by_gate(weight).numpy()
    return Recurrence(table.numpy(), recurrent, across(weight), bias.numpy())


def by_gate(weight: Float[Tensor, "G N"], size: int | None = None) -> Float[Tensor, "Q H N"]:
    """The weight of each gate; G is Q·H, H the second size where it is not given."""
    return weight.view(-1, size or weight.shape[1], weight.shape[1])


def across(weight: Float[Tensor, "G N"], size: int | None = None) -> Float[np.ndarray, "Q N H"]:
    """The transposed weight of each gate."""
    return by_gate(weight, size).transpose(1, 2).contiguous().numpy()


def warm_up() -> None:
    """Compile everything here by running the smallest example there and back."""
    weight = torch.zeros(3, 1, requires_grad=True)
    one = torch.ones(1, dtype=torch.int64)
    ran = run_recurrence([Direction(torch.zeros(2, 3), weight, torch.zeros(1))], one[:, None], one)
    torch.autograd.grad(ran.states.sum(), weight)
