"""Beam search of a whole batch in one call, by the rules of decoding/beam_search.py.

N sources, b of them active, k hypotheses of each before a step, K after it, R = b·k, S source positions, V
vocabulary, C candidates recorded for inspection, H hidden, W twice the beam size: the most hypotheses that a source
finishes.
"""

from functools import partial
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from pellucid.data.vocabulary import BOS, EOS
from pellucid.kernels.decoder_step import (
    OutputWeights,
    PreparedDecoder,
    SearchState,
    Sources,
    search_state,
    step,
)
from pellucid.kernels.greedy import empty_result, running_sources, smallest_search
from pellucid.kernels.jit import njit
from pellucid.kernels.parallel import for_each, parts_of, slices
from pellucid.kernels.topk import IMPOSSIBLE, extend
from pellucid.kernels.types import InitialState, KernelSearchOutput, SearchLimits
from pellucid.kernels.unroll import CellParameters


class BeamSizes(NamedTuple):
    """Beam size, and number of outputs to return for each source."""

    width: int
    best: int


class BeamKernelStep(NamedTuple):
    """One step of all hypotheses: weights and candidates of each, and the best K extensions of each source."""

    sources: Int[np.ndarray, " b"]
    weights: Float[np.ndarray, "R S"]
    top_ids: Int[np.ndarray, "R C"]
    top_log_probabilities: Float[np.ndarray, "R C"]
    parents: Int[np.ndarray, "b K"]
    ids: Int[np.ndarray, "b K"]
    log_probabilities: Float[np.ndarray, "b K"]
    scores: Float[np.ndarray, "b K"]


class FinishedHypotheses(NamedTuple):
    """Step and beam index at which the outputs of each source end, best first; unfinished ones last."""

    counts: Int[np.ndarray, " N"]
    losses: Float[np.ndarray, "N W"]
    """Minus the scores."""
    steps: Int[np.ndarray, "N W"]
    beam_indices: Int[np.ndarray, "N W"]


class BeamResult(NamedTuple):
    """Outputs of all sources, those of a source consecutive, and their number for each source."""

    outputs: KernelSearchOutput
    counts: Int[np.ndarray, " N"]


def search_beams(
    decoder: PreparedDecoder, first: InitialState, limits: SearchLimits, sizes: BeamSizes
) -> list[BeamResult]:
    """Return the most probable outputs of all sources, in consecutive parts of the rows.

    Args:
        decoder: The decoder and its sources.
        first: State before the first step.
        limits: Suppressed symbols, length limits and number of recorded candidates.
        sizes: Beam size and number of outputs.
    """
    task, rows = partial(_search_part, decoder, search_state(first), (limits, sizes)), len(first.hidden)
    return for_each(task, slices(rows, min(rows, parts_of(rows * sizes.width))))


def _search_part(
    decoder: PreparedDecoder, start: SearchState, settings: tuple[SearchLimits, BeamSizes], part: slice
) -> BeamResult:
    """Search one part of the rows."""
    sources = decoder.sources._replace(rows=decoder.sources.rows[part])
    return beam_steps(decoder.parameters, decoder.output, sources, start.part(part), settings)


@njit
def beam_steps(
    parameters: CellParameters,
    output: OutputWeights,
    sources: Sources,
    start: SearchState,
    settings: tuple[SearchLimits, BeamSizes],
) -> BeamResult:
    """Take all steps, until no active hypothesis can be among the best outputs.

    Args:
        parameters: Parameters of the cell.
        output: Parameters of the output layer.
        sources: Keys and memory.
        start: State before the first step.
        settings: Limits and sizes of the search.
    """
    (limits, sizes), (hidden, cell, attention_state), count = settings, start, start.hidden.shape[0]
    active, scores, symbols = np.arange(count), np.zeros((count, 1), np.float32), np.full(count, BOS)
    open_slots, finished, steps = np.full(count, sizes.width), _empty_finished(count, 2 * sizes.width), []
    for length in range(limits.max_length + 1):
        active_sources = running_sources(sources, active)
        hidden, cell, _, attn_weights, logits = step(
            parameters, output, active_sources, symbols, SearchState(hidden, cell, attention_state)
        )
        width = min(open_slots[active].max(), scores.shape[1] * logits.shape[1])
        ids, values, numbers, log_probabilities, total_scores = extend(
            logits, limits.suppressed, scores, (limits.num_candidates, width), length < limits.min_length
        )
        parents, extension_ids = numbers // logits.shape[1], numbers % logits.shape[1]
        record = BeamKernelStep(
            active, attn_weights, ids, values, parents, extension_ids, log_probabilities, total_scores
        )
        steps.append(record)
        is_active = _collect(record, finished, open_slots, (length, sizes.best))
        _drop_non_finite(record, scores, finished, is_active)
        if length == limits.max_length:
            _collect_unfinished(record, scores, finished, length)
            break
        if not is_active.any():
            break
        parent_rows = _parent_rows(record, is_active, scores.shape[1])
        active, scores, symbols = active[is_active], total_scores[is_active], extension_ids[is_active].ravel()
        hidden = hidden[parent_rows]
        cell = cell[parent_rows] if cell.shape[0] else cell
        attention_state = attn_weights[parent_rows] if attention_state.shape[0] else attention_state
    return _trace_outputs(steps, finished, sizes.best)


@njit
def _empty_finished(sources: int, capacity: int) -> FinishedHypotheses:
    """Return arrays for finished hypotheses, without entries."""
    shape = (sources, capacity)
    losses, zeros = np.zeros(shape, np.float32), np.zeros(shape, np.int64)
    return FinishedHypotheses(np.zeros(sources, np.int64), losses, zeros, zeros.copy())


@njit
def _collect(
    record: BeamKernelStep,
    finished: FinishedHypotheses,
    open_slots: Int[np.ndarray, " N"],
    step_and_best: tuple[int, int],
) -> Bool[np.ndarray, " b"]:
    """Record the hypotheses that end with EOS and remove them from `record.scores`; return which sources continue."""
    step, best = step_and_best
    is_active = np.zeros(record.sources.shape[0], np.bool_)
    for row in range(record.sources.shape[0]):
        source, scores, best_score = record.sources[row], record.scores[row], IMPOSSIBLE
        scores[open_slots[source] :] = IMPOSSIBLE
        for beam_index in range(scores.shape[0]):
            if record.ids[row, beam_index] == EOS and scores[beam_index] > IMPOSSIBLE:
                _insert_finished(finished, source, 0, (-scores[beam_index], step, beam_index))
                open_slots[source] -= 1
                scores[beam_index] = IMPOSSIBLE
            best_score = max(best_score, scores[beam_index])
        is_beaten = finished.counts[source] >= best and -finished.losses[source, best - 1] >= best_score
        is_active[row] = best_score > IMPOSSIBLE and not is_beaten
    return is_active


@njit
def _drop_non_finite(
    record: BeamKernelStep,
    previous_scores: Float[np.ndarray, "b k"],
    finished: FinishedHypotheses,
    is_active: Bool[np.ndarray, " b"],
) -> None:
    """Remove all outputs and hypotheses of a source if a hypothesis has probabilities that are not finite."""
    beam_size = previous_scores.shape[1]
    for row in range(record.sources.shape[0]):
        if np.isnan(record.top_log_probabilities[row * beam_size : (row + 1) * beam_size, 0]).any():
            finished.counts[record.sources[row]], is_active[row] = 0, False
            previous_scores[row] = IMPOSSIBLE


@njit
def _insert_finished(finished: FinishedHypotheses, source: int, first: int, entry: tuple[np.float32, int, int]) -> None:
    """Insert (loss, step, beam index) among a source's entries from `first` on; equal losses keep their order."""
    losses, steps, beam_indices = finished.losses[source], finished.steps[source], finished.beam_indices[source]
    index = finished.counts[source]
    while index > first and losses[index - 1] > entry[0]:
        losses[index], steps[index], beam_indices[index] = losses[index - 1], steps[index - 1], beam_indices[index - 1]
        index -= 1
    losses[index], steps[index], beam_indices[index] = entry
    finished.counts[source] += 1


@njit
def _collect_unfinished(
    record: BeamKernelStep, previous_scores: Float[np.ndarray, "b k"], finished: FinishedHypotheses, step: int
) -> None:
    """Record the hypotheses that have the maximum length and do not end with EOS."""
    for row in range(record.sources.shape[0]):
        source = record.sources[row]
        num_finished, is_unfinished = finished.counts[source], np.isfinite(previous_scores[row])
        for entry in range(num_finished):
            if finished.steps[source, entry] == step:
                is_unfinished[record.parents[row, finished.beam_indices[source, entry]]] = False
        for beam_index in range(is_unfinished.shape[0]):
            if is_unfinished[beam_index]:
                _insert_finished(
                    finished, source, num_finished, (-previous_scores[row, beam_index], step - 1, beam_index)
                )


@njit
def _parent_rows(record: BeamKernelStep, is_active: Bool[np.ndarray, " b"], beam_size: int) -> Int[np.ndarray, " R"]:
    """Return the rows of the parents of the hypotheses that continue, among all rows of the step."""
    rows = np.flatnonzero(is_active)
    parent_rows = np.empty((rows.shape[0], record.parents.shape[1]), np.int64)
    for index in range(rows.shape[0]):
        parent_rows[index] = record.parents[rows[index]] + rows[index] * beam_size
    return parent_rows.ravel()


@njit
def _trace_outputs(steps: list[BeamKernelStep], finished: FinishedHypotheses, best: int) -> BeamResult:
    """Return the best outputs of each source, each traced back from its end to its first symbol."""
    counts = np.minimum(finished.counts, best)
    (positions, candidates), total = (steps[0].weights.shape[1], steps[0].top_ids.shape[1]), counts.sum()
    outputs = empty_result((total, len(steps)), positions, candidates)
    sources, beam_indices = np.empty(total, np.int64), np.empty(total, np.int64)
    output = 0
    for source in range(counts.shape[0]):
        for entry in range(counts[source]):
            sources[output], beam_indices[output] = source, finished.beam_indices[source, entry]
            outputs.steps[output] = finished.steps[source, entry] + 1
            output += 1
    for number in range(len(steps) - 1, -1, -1):
        _trace_back(steps[number], outputs, number, sources, beam_indices)
    return BeamResult(outputs, counts)


@njit
def _trace_back(
    record: BeamKernelStep,
    outputs: KernelSearchOutput,
    step: int,
    sources: Int[np.ndarray, " n"],
    beam_indices: Int[np.ndarray, " n"],
) -> None:
    """Write one step of all outputs that have it; `beam_indices` become those of their parents."""
    beam_size = record.weights.shape[0] // record.sources.shape[0]
    rows = np.searchsorted(record.sources, sources)
    for output in range(sources.shape[0]):
        if step < outputs.steps[output]:
            row, beam_index = rows[output], beam_indices[output]
            parent = record.parents[row, beam_index]
            parent_row = row * beam_size + parent
            outputs.ids[output, step] = record.ids[row, beam_index]
            outputs.log_probabilities[output, step] = record.log_probabilities[row, beam_index]
            outputs.weights[output, step] = record.weights[parent_row]
            outputs.top_ids[output, step] = record.top_ids[parent_row]
            outputs.top_log_probabilities[output, step] = record.top_log_probabilities[parent_row]
            beam_indices[output] = parent


def warm_up() -> None:
    """Compile every kernel of this module by running the smallest example."""
    search_beams(*smallest_search(), BeamSizes(1, 1))
