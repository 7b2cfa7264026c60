"""A GRU or LSTM over whole sequences, as PyTorch sees it.

B rows, S positions, H units, G all gates (3H or 4H), V rows of the table of projected inputs.
"""

from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from pellucid.kernels.parallel import end_to_end, for_each, parts_of
from pellucid.kernels.sequences import Packing, Recurrence, Run, RunGradients, run, run_back


class Recurrent(NamedTuple):
    """The recurrent parameters of a cell."""

    weight: Float[Tensor, "G H"]
    candidate_bias: Float[Tensor, " C"]
    """c_n of a GRU, which the reset gate multiplies; empty for an LSTM."""


class Ran(NamedTuple):
    """The states at every position, zeros beyond a row's length, and each row's last; the cell is empty for a GRU."""

    states: Float[Tensor, "B S H"]
    hidden: Float[Tensor, "B H"]
    cell: Float[Tensor, "C H"]


class Part(NamedTuple):
    """Rows of the batch that run together, longest first, and what the kernel must know of them."""

    rows: Int[np.ndarray, " R"]
    packing: Packing


def run_recurrence(
    table: Float[Tensor, "V G"],
    symbols: Int[Tensor, "B S"],
    lengths: Int[Tensor, " B"],
    recurrent: Recurrent,
    backward: bool,
) -> Ran:
    """The states of a cell run from zero over every row, on W x + b = table[symbol], b with every unmultiplied bias.

    Forward from a row's first position to its last, or backward from its last to its first. Lengths are at least 1.
    """
    parts = _parts(symbols.numpy(), lengths.numpy(), backward, parts_of(len(symbols)))
    given = (table, recurrent.weight, recurrent.candidate_bias, parts, tuple(symbols.shape))
    return Ran(*_Recurrence.apply(*given))  # type: ignore[no-untyped-call]


def _parts(symbols: Int[np.ndarray, "B S"], lengths: Int[np.ndarray, " B"], backward: bool, count: int) -> list[Part]:
    """The rows dealt out like cards, longest first, so that each part has its share of long ones."""
    order = np.argsort(-lengths, kind="stable")
    return [_part(symbols, lengths, order[first::count], backward) for first in range(count)]


def _part(
    symbols: Int[np.ndarray, "B S"], lengths: Int[np.ndarray, " B"], rows: Int[np.ndarray, " R"], backward: bool
) -> Part:
    """Where everything stands when rows run step by step, the finished ones last and left out."""
    own = lengths[rows]
    steps = np.arange(own[0])[:, None]
    inside = steps < own
    positions = own - 1 - steps if backward else np.broadcast_to(steps, inside.shape)
    places = (rows * symbols.shape[1] + positions)[inside]
    return Part(rows, Packing(symbols.ravel()[places], places, inside.sum(axis=1)))


class _Recurrence(torch.autograd.Function):
    """Forward and backward by the kernels; the gradients of the parameters are one product each over all positions."""

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401
        table: Tensor,
        weight: Tensor,
        candidate_bias: Tensor,
        parts: list[Part],
        shape: tuple[int, int],
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The states, the last ones, and the last cells."""
        recurrence, size = _arrays(table, weight, candidate_bias), weight.shape[1]
        states, hidden = torch.zeros(shape[0] * shape[1], size), torch.empty(shape[0], size)
        cell = torch.empty(shape[0] if weight.shape[0] == 4 * size else 0, size)
        ctx.runs = for_each(partial(_run, recurrence, states.numpy()), parts)
        for part, done in zip(parts, ctx.runs, strict=True):
            hidden.numpy()[part.rows] = done.hidden
            if len(cell):
                cell.numpy()[part.rows] = done.cell
        ctx.parts = parts
        ctx.save_for_backward(table, weight, candidate_bias)
        return states.view(*shape, size), hidden, cell

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any,  # noqa: ANN401
        states: Tensor,
        hidden: Tensor,
        cell: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor, None, None]:
        """From the gradients of what `forward` gave to those of what it took."""
        recurrence = _arrays(*ctx.saved_tensors)
        arrived = _Arrived(states.contiguous().flatten(0, 1).numpy(), hidden.numpy(), cell.numpy())
        pairs = list(zip(ctx.parts, ctx.runs, strict=True))
        gradients = for_each(partial(_run_back, recurrence, arrived), pairs)
        factors = end_to_end([gradient.recurrent for gradient in gradients])
        before = end_to_end([done.before for done in ctx.runs])
        bias = factors[:, factors.shape[1] - len(recurrence.candidate_bias) :].sum(dim=0)
        table = torch.from_numpy(gradients[0].table)
        for gradient in gradients[1:]:
            table += torch.from_numpy(gradient.table)
        return table, factors.T @ before, bias, None, None


class _Arrived(NamedTuple):
    """The gradients of what a run gave."""

    states: Float[np.ndarray, "M H"]
    hidden: Float[np.ndarray, "B H"]
    cell: Float[np.ndarray, "C H"]


def _run(recurrence: Recurrence, states: Float[np.ndarray, "M H"], part: Part) -> Run:
    """One part's run, its states written among those of the others."""
    return run(recurrence, part.packing, states)


def _run_back(recurrence: Recurrence, arrived: _Arrived, done: tuple[Part, Run]) -> RunGradients:
    """One part's way back."""
    part, kept = done
    cell = arrived.cell[part.rows] if len(arrived.cell) else np.zeros_like(kept.cell)
    return run_back(recurrence, part.packing, kept, arrived.states, arrived.hidden[part.rows], cell)


def _arrays(table: Tensor, weight: Tensor, candidate_bias: Tensor) -> Recurrence:
    """Tensors as the arrays that kernels take."""
    given, bias = weight.detach().contiguous(), candidate_bias.detach().contiguous()
    return Recurrence(table.detach().contiguous().numpy(), given.numpy(), given.T.contiguous().numpy(), bias.numpy())


def rehearse() -> None:
    """Compile everything here by running the smallest example there and back."""
    weight = torch.zeros(3, 1, requires_grad=True)
    one = torch.ones(1, dtype=torch.int64)
    ran = run_recurrence(torch.zeros(2, 3), one[:, None], one, Recurrent(weight, torch.zeros(1)), False)
    torch.autograd.grad(ran.states.sum(), weight)
