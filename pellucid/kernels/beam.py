"""Beam search of a whole batch in one call, by the rules of decoding/beam_search.py.

N sources, b of them that still run, k hypotheses of each before a step, K after it, R = b·k, S source positions, V
vocabulary, C candidates kept for inspection, H hidden, W twice the width of the beam: room for every end of a source.
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
from pellucid.kernels.types import InitialState, SearchLimits, SearchResult
from pellucid.kernels.unroll import StepWeights


class BeamSizes(NamedTuple):
    """Number of hypotheses of a source, and of outputs to return."""

    width: int
    best: int


class BeamStep(NamedTuple):
    """One step of all hypotheses: weights and candidates of each, and the K extensions chosen of each source."""

    sources: Int[np.ndarray, " b"]
    weights: Float[np.ndarray, "R S"]
    top_ids: Int[np.ndarray, "R C"]
    top_log_probabilities: Float[np.ndarray, "R C"]
    parents: Int[np.ndarray, "b K"]
    ids: Int[np.ndarray, "b K"]
    log_probabilities: Float[np.ndarray, "b K"]
    scores: Float[np.ndarray, "b K"]


class FinishedHypotheses(NamedTuple):
    """Step and place at which the outputs of each source end, best first; those that were cut come last."""

    counts: Int[np.ndarray, " N"]
    losses: Float[np.ndarray, "N W"]
    """Minus the scores."""
    steps: Int[np.ndarray, "N W"]
    places: Int[np.ndarray, "N W"]


class BeamResult(NamedTuple):
    """The outputs of all sources one after the other, and the number of each source."""

    outputs: SearchResult
    counts: Int[np.ndarray, " N"]


def search_beams(
    decoder: PreparedDecoder, first: InitialState, limits: SearchLimits, sizes: BeamSizes
) -> list[BeamResult]:
    """Return the most probable outputs of all sources, in consecutive parts of the rows."""
    task, rows = partial(_search_part, decoder, search_state(first), (limits, sizes)), len(first.hidden)
    return for_each(task, slices(rows, min(rows, parts_of(rows * sizes.width))))


def _search_part(
    decoder: PreparedDecoder, start: SearchState, how: tuple[SearchLimits, BeamSizes], part: slice
) -> BeamResult:
    """Search one part of the rows."""
    sources = decoder.sources._replace(rows=decoder.sources.rows[part])
    return beam_steps(decoder.weights, decoder.output, sources, start.part(part), how)


@njit
def beam_steps(
    weights: StepWeights,
    output: OutputWeights,
    sources: Sources,
    start: SearchState,
    how: tuple[SearchLimits, BeamSizes],
) -> BeamResult:
    """Take all steps, until no hypothesis that still runs can be among the best ones."""
    (limits, sizes), (hidden, cell, attention_state), count = how, start, start.hidden.shape[0]
    running, scores, symbols = np.arange(count), np.zeros((count, 1), np.float32), np.full(count, BOS)
    room, ends, steps = np.full(count, sizes.width), _no_ends(count, 2 * sizes.width), []
    for written in range(limits.maximum + 1):
        closed = limits.closed_early if written < limits.minimum else limits.closed
        own_sources = running_sources(sources, running)
        hidden, cell, _, looks, logits = step(
            weights, output, own_sources, symbols, SearchState(hidden, cell, attention_state)
        )
        width = min(room[running].max(), scores.shape[1] * logits.shape[1])
        ids, values, numbers, own, totals = extend(logits, closed, scores, (limits.candidates, width))
        parents, chosen = numbers // logits.shape[1], numbers % logits.shape[1]
        taken = BeamStep(running, looks, ids, values, parents, chosen, own, totals)
        steps.append(taken)
        going = _collect(taken, ends, room, (written, sizes.best))
        _drop_broken(taken, scores, ends, going)
        if written == limits.maximum:
            _cut(taken, scores, ends, written)
            break
        if not going.any():
            break
        places = _places(taken, going, scores.shape[1])
        running, scores, symbols = running[going], totals[going], chosen[going].ravel()
        hidden = hidden[places]
        cell = cell[places] if cell.shape[0] else cell
        attention_state = looks[places] if attention_state.shape[0] else attention_state
    return _written(steps, ends, sizes.best)


@njit
def _no_ends(sources: int, room: int) -> FinishedHypotheses:
    """Return room for finished hypotheses, empty."""
    shape = (sources, room)
    losses, zeros = np.zeros(shape, np.float32), np.zeros(shape, np.int64)
    return FinishedHypotheses(np.zeros(sources, np.int64), losses, zeros, zeros.copy())


@njit
def _collect(
    taken: BeamStep, ends: FinishedHypotheses, room: Int[np.ndarray, " N"], at: tuple[int, int]
) -> Bool[np.ndarray, " b"]:
    """Note the hypotheses that wrote EOS, and remove them from `taken.scores`; return which sources continue."""
    step, best = at
    going = np.zeros(taken.sources.shape[0], np.bool_)
    for row in range(taken.sources.shape[0]):
        source, scores, highest = taken.sources[row], taken.scores[row], IMPOSSIBLE
        scores[room[source] :] = IMPOSSIBLE
        for place in range(scores.shape[0]):
            if taken.ids[row, place] == EOS and scores[place] > IMPOSSIBLE:
                _note(ends, source, 0, (-scores[place], step, place))
                room[source] -= 1
                scores[place] = IMPOSSIBLE
            highest = max(highest, scores[place])
        beaten = ends.counts[source] >= best and -ends.losses[source, best - 1] >= highest
        going[row] = highest > IMPOSSIBLE and not beaten
    return going


@njit
def _drop_broken(
    taken: BeamStep, before: Float[np.ndarray, "b k"], ends: FinishedHypotheses, going: Bool[np.ndarray, " b"]
) -> None:
    """Remove all outputs and hypotheses of a source where a hypothesis has probabilities that are not finite."""
    each = before.shape[1]
    for row in range(taken.sources.shape[0]):
        if np.isnan(taken.top_log_probabilities[row * each : (row + 1) * each, 0]).any():
            ends.counts[taken.sources[row]], going[row] = 0, False
            before[row] = IMPOSSIBLE


@njit
def _note(ends: FinishedHypotheses, source: int, first: int, end: tuple[np.float32, int, int]) -> None:
    """Insert an end among those of a source from the `first` on; of equal ones the earlier stays first."""
    losses, steps, places = ends.losses[source], ends.steps[source], ends.places[source]
    at = ends.counts[source]
    while at > first and losses[at - 1] > end[0]:
        losses[at], steps[at], places[at] = losses[at - 1], steps[at - 1], places[at - 1]
        at -= 1
    losses[at], steps[at], places[at] = end
    ends.counts[source] += 1


@njit
def _cut(taken: BeamStep, before: Float[np.ndarray, "b k"], ends: FinishedHypotheses, step: int) -> None:
    """Note the hypotheses that had the maximum length and did not write EOS then."""
    for row in range(taken.sources.shape[0]):
        source = taken.sources[row]
        finished, left = ends.counts[source], np.isfinite(before[row])
        for end in range(finished):
            if ends.steps[source, end] == step:
                left[taken.parents[row, ends.places[source, end]]] = False
        for place in range(left.shape[0]):
            if left[place]:
                _note(ends, source, finished, (-before[row, place], step - 1, place))


@njit
def _places(taken: BeamStep, going: Bool[np.ndarray, " b"], each: int) -> Int[np.ndarray, " R"]:
    """Return the places of the parents of the hypotheses that continue, among all of the step."""
    rows = np.flatnonzero(going)
    places = np.empty((rows.shape[0], taken.parents.shape[1]), np.int64)
    for at in range(rows.shape[0]):
        places[at] = taken.parents[rows[at]] + rows[at] * each
    return places.ravel()


@njit
def _written(steps: list[BeamStep], ends: FinishedHypotheses, best: int) -> BeamResult:
    """Return the best outputs of each source, each from its end back to its first symbol."""
    counts = np.minimum(ends.counts, best)
    (positions, candidates), total = (steps[0].weights.shape[1], steps[0].top_ids.shape[1]), counts.sum()
    outputs = empty_result((total, len(steps)), positions, candidates)
    sources, places = np.empty(total, np.int64), np.empty(total, np.int64)
    at = 0
    for source in range(counts.shape[0]):
        for end in range(counts[source]):
            sources[at], places[at] = source, ends.places[source, end]
            outputs.steps[at] = ends.steps[source, end] + 1
            at += 1
    for step_ in range(len(steps) - 1, -1, -1):
        _trace_back(steps[step_], outputs, step_, sources, places)
    return BeamResult(outputs, counts)


@njit
def _trace_back(
    taken: BeamStep, outputs: SearchResult, step: int, sources: Int[np.ndarray, " n"], places: Int[np.ndarray, " n"]
) -> None:
    """Write one step of all outputs that have it; `places` become those of their parents."""
    each = taken.weights.shape[0] // taken.sources.shape[0]
    rows = np.searchsorted(taken.sources, sources)
    for at in range(sources.shape[0]):
        if step < outputs.steps[at]:
            row, place = rows[at], places[at]
            parent = taken.parents[row, place]
            own = row * each + parent
            outputs.ids[at, step] = taken.ids[row, place]
            outputs.log_probabilities[at, step] = taken.log_probabilities[row, place]
            outputs.weights[at, step] = taken.weights[own]
            outputs.top_ids[at, step] = taken.top_ids[own]
            outputs.top_log_probabilities[at, step] = taken.top_log_probabilities[own]
            places[at] = parent


def warm_up() -> None:
    """Compile everything here by running the smallest example."""
    search_beams(*smallest_search(), BeamSizes(1, 1))
