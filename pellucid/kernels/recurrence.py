"""Whole-sequence GRU and LSTM, spread over threads.

B rows, S positions, N directions (1 or 2), H units, G all gates (3H or 4H), V rows of the table of projected inputs.
"""

from functools import partial
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from pellucid.kernels.aligned_memory import contiguous, empty, zeros
from pellucid.kernels.interrupts import held_back
from pellucid.kernels.parallel import for_each, parts_of
from pellucid.kernels.sequences import Packing, Recurrence, Run, pack, run, run_back
from pellucid.kernels.types import Direction


class Ran(NamedTuple):
    """The hidden states of each direction, zero beyond a row's length, and each row's last."""

    states: Float[np.ndarray, "B S N H"]
    hidden: Float[np.ndarray, "B N H"]


class Part(NamedTuple):
    """Rows of the batch that run together in one direction, longest first, and what the kernel must know of them."""

    direction: int
    rows: Int[np.ndarray, " R"]
    packing: Packing


def run_recurrence(directions: list[Direction], symbols: Int[np.ndarray, "B S"], lengths: Int[np.ndarray, " B"]) -> Ran:
    """Return the states of each direction run from zero over every row, on W x + b = table[symbol].

    The first runs from a row's first position to its last, the second from its last to its first. Lengths are at
    least 1.
    """
    parts = parts_for(symbols, lengths, len(directions))
    return run_parts([recurrence_of(each) for each in directions], parts, (*symbols.shape, len(directions)), False)[0]


def parts_for(symbols: Int[np.ndarray, "B S"], lengths: Int[np.ndarray, " B"], directions: int) -> list[Part]:
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


def run_parts(
    recurrences: list[Recurrence], parts: list[Part], shape: tuple[int, int, int], keep: bool
) -> tuple[Ran, list[Run]]:
    """Return what all parts give together, and the run of each, with what the way back reads if `keep` says so."""
    size = recurrences[0].recurrent.shape[1]
    states, hidden = zeros((shape[0] * shape[1] * shape[2], size)), empty((shape[0], shape[2], size))
    runs = for_each(partial(_run, recurrences, states, keep), parts)
    for part, done in zip(parts, runs, strict=True):
        hidden[part.rows, part.direction] = done.hidden
    return Ran(states.reshape(*shape, size), hidden), runs


def _run(recurrences: list[Recurrence], states: Float[np.ndarray, "M H"], keep: bool, part: Part) -> Run:
    """One part's run, its states written among those of the others."""
    return run(recurrences[part.direction], part.packing, states, keep)


def recurrence_of(direction: Direction) -> Recurrence:
    """Return the parameters of a direction as the kernels read them."""
    table, weight, bias = (contiguous(array) for array in direction)
    return Recurrence(table, by_gate(weight), across(weight), bias)


def by_gate(weight: Float[np.ndarray, "G N"], size: int | None = None) -> Float[np.ndarray, "Q H N"]:
    """The weight of each gate; G is Q·H, H the second size where it is not given."""
    return weight.reshape(-1, size or weight.shape[1], weight.shape[1])


def across(weight: Float[np.ndarray, "G N"], size: int | None = None) -> Float[np.ndarray, "Q N H"]:
    """The transposed weight of each gate."""
    return contiguous(by_gate(weight, size).transpose(0, 2, 1))


def warm_up() -> None:
    """Compile everything here by running the smallest example there and back."""
    one, single = np.ones((1, 1), np.int64), np.zeros((1, 1), np.float32)
    recurrence = recurrence_of(Direction(np.zeros((2, 3), np.float32), np.zeros((3, 1), np.float32), single[0]))
    parts = parts_for(one, one[0], 1)
    _, runs = run_parts([recurrence], parts, (1, 1, 1), True)
    run_back(recurrence, parts[0].packing, runs[0], single, single.copy())
