"""Greedy search of a whole batch in one call.

N sources, R running rows, S source positions, T steps, V vocabulary, C candidates recorded for inspection, H hidden,
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
    KernelSearchOutput,
    SearchLimits,
)
from pellucid.kernels.unroll import CellParameters


class GreedyStep(NamedTuple):
    """One step: the running rows, their attention weights, their candidates and their chosen symbols."""

    rows: Int[np.ndarray, " R"]
    weights: Float[np.ndarray, "R S"]
    top_ids: Int[np.ndarray, "R C"]
    top_log_probabilities: Float[np.ndarray, "R C"]
    ids: Int[np.ndarray, " R"]
    log_probabilities: Float[np.ndarray, " R"]


def search_greedily(decoder: PreparedDecoder, first: InitialState, limits: SearchLimits) -> list[KernelSearchOutput]:
    """Return the most probable symbol at every step for all sources, in consecutive parts of the rows.

    Args:
        decoder: The decoder and its sources.
        first: State before the first step.
        limits: Suppressed symbols, length limits and number of recorded candidates.
    """
    task = partial(_search_part, decoder, search_state(first), limits)
    return for_each(task, slices(len(first.hidden), parts_of(len(first.hidden))))


def _search_part(decoder: PreparedDecoder, start: SearchState, limits: SearchLimits, part: slice) -> KernelSearchOutput:
    """Search one part of the rows."""
    sources = decoder.sources._replace(rows=decoder.sources.rows[part])
    return greedy_steps(decoder.parameters, decoder.output, sources, start.part(part), limits)


@njit
def greedy_steps(
    parameters: CellParameters, output: OutputWeights, sources: Sources, start: SearchState, limits: SearchLimits
) -> KernelSearchOutput:
    """Take all steps. A row ends with EOS, which may come one step after the longest output.

    Args:
        parameters: Parameters of the cell.
        output: Parameters of the output layer.
        sources: Keys and memory.
        start: State before the first step.
        limits: Suppressed symbols, length limits and number of recorded candidates.
    """
    rows, (hidden, cell, attention_state) = np.arange(start.hidden.shape[0]), start
    symbols, steps = np.full(rows.shape[0], BOS), np.zeros(rows.shape[0], np.int64)
    records = []
    for length in range(limits.max_length + 1):
        running = running_sources(sources, rows)
        hidden, cell, _, attn_weights, logits = step(
            parameters, output, running, symbols, SearchState(hidden, cell, attention_state)
        )
        ids, values = rank(logits, limits.suppressed, limits.num_candidates)
        symbols, log_probabilities = _choose_symbols(ids, values, length < limits.min_length)
        records.append(GreedyStep(rows, attn_weights, ids, values, symbols, log_probabilities))
        is_finished = symbols == EOS
        for index in range(rows.shape[0]):
            if is_finished[index] or length < limits.max_length:
                steps[rows[index]] = length + 1
        if is_finished.any():
            unfinished = np.flatnonzero(~is_finished)
            if unfinished.shape[0] == 0:
                break
            rows, symbols, hidden = rows[unfinished], symbols[unfinished], hidden[unfinished]
            cell = cell[unfinished] if cell.shape[0] else cell
            attn_weights = attn_weights[unfinished] if attention_state.shape[0] else attn_weights
        attention_state = attn_weights if attention_state.shape[0] else attention_state
    return _stack_steps(records, steps)


@njit
def _choose_symbols(
    ids: Int[np.ndarray, "R C"], values: Float[np.ndarray, "R C"], is_early: bool
) -> tuple[Int[np.ndarray, " R"], Float[np.ndarray, " R"]]:
    """Return the most probable symbol of each row, by the rule of `choose_symbols` in decoding/outputs.py."""
    symbols, log_probabilities = ids[:, 0].copy(), values[:, 0].copy()
    if is_early and ids.shape[1] > 1:
        for row in range(ids.shape[0]):
            if symbols[row] == EOS:
                symbols[row], log_probabilities[row] = ids[row, 1], values[row, 1]
    return symbols, log_probabilities


@njit
def running_sources(sources: Sources, indices: Int[np.ndarray, " R"]) -> Sources:
    """Return the sources with a selection of the running ones.

    Args:
        sources: Keys and memory.
        indices: Indices among the running sources.
    """
    return Sources(sources.scorer, sources.keys, sources.memory, sources.lengths, sources.rows[indices])


@njit
def empty_result(shape: tuple[int, int], positions: int, candidates: int) -> KernelSearchOutput:
    """Return a result to be filled, of zeros.

    Args:
        shape: Number of outputs and of steps.
        positions: Number of source positions.
        candidates: Number of candidates recorded at each step.
    """
    return KernelSearchOutput(
        np.zeros(shape, np.int64),
        np.zeros(shape, np.float32),
        np.zeros((*shape, positions), np.float32),
        np.zeros((*shape, candidates), np.int64),
        np.zeros((*shape, candidates), np.float32),
        np.zeros(shape[0], np.int64),
    )


@njit
def _stack_steps(records: list[GreedyStep], steps: Int[np.ndarray, " N"]) -> KernelSearchOutput:
    """Return the steps of each row."""
    outputs = empty_result((steps.shape[0], len(records)), records[0].weights.shape[1], records[0].top_ids.shape[1])
    outputs.steps[:] = steps
    for t in range(len(records)):
        rows, weights, top_ids, top_values, ids, values = records[t]
        for index in range(rows.shape[0]):
            row = rows[index]
            outputs.weights[row, t] = weights[index]
            outputs.top_ids[row, t], outputs.top_log_probabilities[row, t] = top_ids[index], top_values[index]
            outputs.ids[row, t], outputs.log_probabilities[row, t] = ids[index], values[index]
    return outputs


def smallest_search() -> tuple[PreparedDecoder, InitialState, SearchLimits]:
    """Return the smallest example of a search: decoder, initial state and limits."""
    empty, square, one = np.zeros((3, 1), np.float32), np.zeros((1, 1), np.float32), np.ones(1, np.int64)
    table, column = np.zeros((4, 3), np.float32), np.zeros((4, 1), np.float32)
    parameters = DecoderWeights(GRU, 0, table, square[0], empty, empty)
    head, inputs = Head(column, column, column[:, 0]), AttentionInputs(square[None], square[None], one)
    limits = SearchLimits(np.zeros(4, np.bool_), 0, 1, 1)
    return prepare(parameters, head, inputs), InitialState(square, None, None), limits


def warm_up() -> None:
    """Compile every kernel of this module by running the smallest example."""
    search_greedily(*smallest_search())
