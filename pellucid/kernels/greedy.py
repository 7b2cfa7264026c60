"""A whole greedy search of a batch in one call: every step, its choice, and the rows that it ends.

N sources, R rows that still run, S source positions, T steps, V vocabulary, C candidates kept for inspection, H hidden,
n as many as N for an LSTM and 0 for a GRU, L as many where attention is by location, else 0.
"""

from functools import partial
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from pellucid.data.vocabulary import BOS, EOS
from pellucid.kernels.aligned_memory import contiguous
from pellucid.kernels.attention import Location
from pellucid.kernels.compiling import compiled
from pellucid.kernels.parallel import for_each, parts_of, slices
from pellucid.kernels.stepping import Output, Ready, Sources, prepare, step
from pellucid.kernels.topk import rank
from pellucid.kernels.types import NOTHING, First, Head, Looked, Parameters, Rules, Searched
from pellucid.kernels.unrolling import Weights


class Start(NamedTuple):
    """The states that a search begins with."""

    hidden: Float[np.ndarray, "N H"]
    cell: Float[np.ndarray, "n H"]
    looked: Float[np.ndarray, "L S"]
    """The weights that the first look is given as those before it; without rows where none reads them."""

    def part(self, rows: slice) -> "Start":
        """Those of some rows."""
        return Start(self.hidden[rows], self.cell[rows], self.looked[rows])


class Seen(NamedTuple):
    """One step: the rows that ran, and what they saw and found."""

    rows: Int[np.ndarray, " R"]
    weights: Float[np.ndarray, "R S"]
    top_ids: Int[np.ndarray, "R C"]
    top_log_probabilities: Float[np.ndarray, "R C"]


def search_greedily(ready: Ready, first: First, rules: Rules) -> list[Searched]:
    """The likeliest symbol at every step for all sources, in parts of the rows that follow each other."""
    task = partial(_part, ready, started(first), rules)
    return for_each(task, slices(len(first.hidden), parts_of(len(first.hidden))))


def started(first: First) -> Start:
    """The first states as arrays."""
    hidden = contiguous(first.hidden)
    cell = hidden[:0] if first.cell is None else contiguous(first.cell)
    return Start(hidden, cell, NOTHING if first.looked is None else contiguous(first.looked))


def _part(ready: Ready, start: Start, rules: Rules, part: slice) -> Searched:
    """One part's search."""
    sources = ready.sources._replace(rows=ready.sources.rows[part])
    return greedy_steps(ready.weights, ready.output, sources, start.part(part), rules)


@compiled
def greedy_steps(weights: Weights, output: Output, sources: Sources, start: Start, rules: Rules) -> Searched:
    """All steps: those of a row end with EOS, which may come one step after the longest output."""
    rows, (hidden, cell, looked) = np.arange(start.hidden.shape[0]), start
    symbols, steps = np.full(rows.shape[0], BOS), np.zeros(rows.shape[0], np.int64)
    seen = []
    for written in range(rules.maximum + 1):
        closed = rules.closed_early if written < rules.minimum else rules.closed
        taken = taken_from(sources, rows, looked)
        hidden, cell, _, looks, logits = step(weights, output, taken, symbols, hidden, cell)
        ids, values = rank(logits, closed, rules.candidates)
        seen.append(Seen(rows, looks, ids, values))
        symbols = ids[:, 0].copy()
        ended = symbols == EOS
        for place in range(rows.shape[0]):
            if ended[place] or written < rules.maximum:
                steps[rows[place]] = written + 1
        if ended.any():
            kept = np.flatnonzero(~ended)
            if kept.shape[0] == 0:
                break
            rows, symbols, hidden = rows[kept], symbols[kept], hidden[kept]
            cell = cell[kept] if cell.shape[0] else cell
            looks = looks[kept] if looked.shape[0] else looks
        looked = looks if looked.shape[0] else looked
    return _side_by_side(seen, steps)


@compiled
def taken_from(sources: Sources, places: Int[np.ndarray, " R"], looked: Float[np.ndarray, "L S"]) -> Sources:
    """The sources in these places of those that run, and where their hypotheses looked before."""
    own = sources.location
    location = Location(own.filters, own.projection, own.filters_across, own.projection_across, looked)
    return Sources(sources.keys, sources.memory, sources.lengths, sources.energy, sources.rows[places], location)


@compiled
def blank(shape: tuple[int, int], positions: int, candidates: int) -> Searched:
    """Room for so many outputs of so many steps."""
    return Searched(
        np.zeros(shape, np.int64),
        np.zeros(shape, np.float32),
        np.zeros((*shape, positions), np.float32),
        np.zeros((*shape, candidates), np.int64),
        np.zeros((*shape, candidates), np.float32),
        np.zeros(shape[0], np.int64),
    )


@compiled
def _side_by_side(seen: list[Seen], steps: Int[np.ndarray, " N"]) -> Searched:
    """The steps of each row."""
    outputs = blank((steps.shape[0], len(seen)), seen[0].weights.shape[1], seen[0].top_ids.shape[1])
    outputs.steps[:] = steps
    for at in range(len(seen)):
        rows, weights, ids, values = seen[at]
        for place in range(rows.shape[0]):
            row = rows[place]
            outputs.weights[row, at] = weights[place]
            outputs.top_ids[row, at], outputs.top_log_probabilities[row, at] = ids[place], values[place]
            outputs.ids[row, at], outputs.log_probabilities[row, at] = ids[place, 0], values[place, 0]
    return outputs


def smallest() -> tuple[Ready, Float[np.ndarray, "1 1"], Rules]:
    """The smallest example of a search: what is prepared, the first state, the rules."""
    empty, square, one = np.zeros((3, 1), np.float32), np.zeros((1, 1), np.float32), np.ones(1, np.int64)
    table, column = np.zeros((4, 3), np.float32), np.zeros((4, 1), np.float32)
    parameters = Parameters(table, square[0], empty, empty, square, square[0])
    head, looked = Head(column, column, column[:, 0]), Looked(square[None], square[None], one)
    closed = np.zeros(4, np.bool_)
    return prepare(parameters, head, looked), square, Rules(closed, closed, 0, 1, 1)


def warm_up() -> None:
    """Compile everything here by running it."""
    ready, state, rules = smallest()
    search_greedily(ready, First(state, None, None), rules)
