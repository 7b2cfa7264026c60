"""Greedy search of a whole batch in one call: every step, its choice, and the rows that it ends.

N sources, R rows that still run, S source positions, T steps, V vocabulary, C candidates kept for inspection, H hidden,
n as many as N where the cell has a cell state, else 0; L as many where the score is location-sensitive, else 0.
"""

from functools import partial
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from pellucid.data.vocabulary import BOS, EOS
from pellucid.kernels.decoder_step import (
    OutputWeights,
    PreparedDecoder,
    SearchState,
    Sources,
    prepare,
    search_state,
    step,
)
from pellucid.kernels.jit import njit
from pellucid.kernels.parallel import for_each, parts_of, slices
from pellucid.kernels.topk import rank
from pellucid.kernels.types import (
    GRU,
    AttentionInputs,
    DecoderWeights,
    Head,
    InitialState,
    SearchLimits,
    SearchResult,
)
from pellucid.kernels.unroll import StepWeights


class GreedyStep(NamedTuple):
    """One step: the rows that ran, their attention weights and their candidates."""

    rows: Int[np.ndarray, " R"]
    weights: Float[np.ndarray, "R S"]
    top_ids: Int[np.ndarray, "R C"]
    top_log_probabilities: Float[np.ndarray, "R C"]


def search_greedily(decoder: PreparedDecoder, first: InitialState, limits: SearchLimits) -> list[SearchResult]:
    """Return the most probable symbol at every step for all sources, in consecutive parts of the rows."""
    task = partial(_search_part, decoder, search_state(first), limits)
    return for_each(task, slices(len(first.hidden), parts_of(len(first.hidden))))


def _search_part(decoder: PreparedDecoder, start: SearchState, limits: SearchLimits, part: slice) -> SearchResult:
    """Search one part of the rows."""
    sources = decoder.sources._replace(rows=decoder.sources.rows[part])
    return greedy_steps(decoder.weights, decoder.output, sources, start.part(part), limits)


@njit
def greedy_steps(
    weights: StepWeights, output: OutputWeights, sources: Sources, start: SearchState, limits: SearchLimits
) -> SearchResult:
    """Take all steps: those of a row end with EOS, which may come one step after the longest output."""
    rows, (hidden, cell, attention_state) = np.arange(start.hidden.shape[0]), start
    symbols, steps = np.full(rows.shape[0], BOS), np.zeros(rows.shape[0], np.int64)
    taken = []
    for written in range(limits.maximum + 1):
        closed = limits.closed_early if written < limits.minimum else limits.closed
        running = running_sources(sources, rows)
        hidden, cell, _, looks, logits = step(
            weights, output, running, symbols, SearchState(hidden, cell, attention_state)
        )
        ids, values = rank(logits, closed, limits.candidates)
        taken.append(GreedyStep(rows, looks, ids, values))
        symbols = ids[:, 0].copy()
        ended = symbols == EOS
        for place in range(rows.shape[0]):
            if ended[place] or written < limits.maximum:
                steps[rows[place]] = written + 1
        if ended.any():
            kept = np.flatnonzero(~ended)
            if kept.shape[0] == 0:
                break
            rows, symbols, hidden = rows[kept], symbols[kept], hidden[kept]
            cell = cell[kept] if cell.shape[0] else cell
            looks = looks[kept] if attention_state.shape[0] else looks
        attention_state = looks if attention_state.shape[0] else attention_state
    return _stack_steps(taken, steps)


@njit
def running_sources(sources: Sources, places: Int[np.ndarray, " R"]) -> Sources:
    """Return the sources with only these of the running ones."""
    return Sources(sources.scorer, sources.keys, sources.memory, sources.lengths, sources.rows[places])


@njit
def empty_result(shape: tuple[int, int], positions: int, candidates: int) -> SearchResult:
    """Return room for shape[0] outputs of shape[1] steps."""
    return SearchResult(
        np.zeros(shape, np.int64),
        np.zeros(shape, np.float32),
        np.zeros((*shape, positions), np.float32),
        np.zeros((*shape, candidates), np.int64),
        np.zeros((*shape, candidates), np.float32),
        np.zeros(shape[0], np.int64),
    )


@njit
def _stack_steps(taken: list[GreedyStep], steps: Int[np.ndarray, " N"]) -> SearchResult:
    """Return the steps of each row."""
    outputs = empty_result((steps.shape[0], len(taken)), taken[0].weights.shape[1], taken[0].top_ids.shape[1])
    outputs.steps[:] = steps
    for at in range(len(taken)):
        rows, weights, ids, values = taken[at]
        for place in range(rows.shape[0]):
            row = rows[place]
            outputs.weights[row, at] = weights[place]
            outputs.top_ids[row, at], outputs.top_log_probabilities[row, at] = ids[place], values[place]
            outputs.ids[row, at], outputs.log_probabilities[row, at] = ids[place, 0], values[place, 0]
    return outputs


def smallest_search() -> tuple[PreparedDecoder, InitialState, SearchLimits]:
    """Return the smallest example of a search."""
    empty, square, one = np.zeros((3, 1), np.float32), np.zeros((1, 1), np.float32), np.ones(1, np.int64)
    table, column = np.zeros((4, 3), np.float32), np.zeros((4, 1), np.float32)
    parameters = DecoderWeights(GRU, 0, table, square[0], empty, empty)
    head, inputs = Head(column, column, column[:, 0]), AttentionInputs(square[None], square[None], one)
    closed = np.zeros(4, np.bool_)
    limits = SearchLimits(closed, closed, 0, 1, 1)
    return prepare(parameters, head, inputs), InitialState(square, None, None), limits


def warm_up() -> None:
    """Compile everything here by running the smallest example."""
    search_greedily(*smallest_search())
