"""A whole beam search of a batch in one call: the rules are those of decoding/beam_search.py.

N sources, b of them that still run, k hypotheses of each before a step, K after it, R = b·k, S source positions, V
vocabulary, C candidates kept for inspection, H hidden, W twice the width of the beam: room for every end of a source.
"""

from functools import partial
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from pellucid.data.vocabulary import BOS, EOS
from pellucid.kernels.compiling import compiled
from pellucid.kernels.greedy import Start, blank, smallest, started, taken_from
from pellucid.kernels.parallel import for_each, parts_of, slices
from pellucid.kernels.stepping import Output, Ready, Sources, step
from pellucid.kernels.topk import NOTHING, extend
from pellucid.kernels.types import First, Rules, Searched
from pellucid.kernels.unrolling import Weights


class Sizes(NamedTuple):
    """How many hypotheses of a source run, and how many of its outputs are wanted."""

    width: int
    best: int


class Layer(NamedTuple):
    """One step of all hypotheses: what was seen before it, and which K extensions of each source it chose."""

    sources: Int[np.ndarray, " b"]
    weights: Float[np.ndarray, "R S"]
    top_ids: Int[np.ndarray, "R C"]
    top_log_probabilities: Float[np.ndarray, "R C"]
    parents: Int[np.ndarray, "b K"]
    ids: Int[np.ndarray, "b K"]
    log_probabilities: Float[np.ndarray, "b K"]
    scores: Float[np.ndarray, "b K"]


class Ends(NamedTuple):
    """Where the outputs of each source end in the layers, best first; those that were cut come last."""

    counts: Int[np.ndarray, " N"]
    losses: Float[np.ndarray, "N W"]
    """Minus the scores."""
    steps: Int[np.ndarray, "N W"]
    places: Int[np.ndarray, "N W"]


class Found(NamedTuple):
    """The outputs of all sources one after the other, and how many each has."""

    outputs: Searched
    counts: Int[np.ndarray, " N"]


def search_beams(ready: Ready, first: First, rules: Rules, sizes: Sizes) -> list[Found]:
    """The likeliest outputs of all sources, in parts of the rows that follow each other."""
    task, rows = partial(_part, ready, started(first), (rules, sizes)), len(first.hidden)
    return for_each(task, slices(rows, min(rows, parts_of(rows * sizes.width))))


def _part(ready: Ready, start: Start, how: tuple[Rules, Sizes], part: slice) -> Found:
    """One part's search."""
    sources = ready.sources._replace(rows=ready.sources.rows[part])
    return beam_steps(ready.weights, ready.output, sources, start.part(part), how)


@compiled
def beam_steps(weights: Weights, output: Output, sources: Sources, start: Start, how: tuple[Rules, Sizes]) -> Found:
    """All steps, until no hypothesis that still runs can enter the best ones."""
    (rules, sizes), (hidden, cell, looked), count = how, start, start.hidden.shape[0]
    running, scores, symbols = np.arange(count), np.zeros((count, 1), np.float32), np.full(count, BOS)
    room, ends, layers = np.full(count, sizes.width), _no_ends(count, 2 * sizes.width), []
    for written in range(rules.maximum + 1):
        closed = rules.closed_early if written < rules.minimum else rules.closed
        taken = taken_from(sources, running, looked)
        hidden, cell, _, looks, logits = step(weights, output, taken, symbols, hidden, cell)
        width = min(room[running].max(), scores.shape[1] * logits.shape[1])
        ids, values, numbers, own, totals = extend(logits, closed, scores, (rules.candidates, width))
        parents, chosen = numbers // logits.shape[1], numbers % logits.shape[1]
        layer = Layer(running, looks, ids, values, parents, chosen, own, totals)
        layers.append(layer)
        going = _collect(layer, ends, room, (written, sizes.best))
        _drop_broken(layer, scores, ends, going)
        if written == rules.maximum:
            _cut(layer, scores, ends, written)
            break
        if not going.any():
            break
        places = _places(layer, going, scores.shape[1])
        running, scores, symbols = running[going], totals[going], chosen[going].ravel()
        hidden = hidden[places]
        cell = cell[places] if cell.shape[0] else cell
        looked = looks[places] if looked.shape[0] else looked
    return _written(layers, ends, sizes.best)


@compiled
def _no_ends(sources: int, room: int) -> Ends:
    """No output has ended."""
    shape = (sources, room)
    losses, zeros = np.zeros(shape, np.float32), np.zeros(shape, np.int64)
    return Ends(np.zeros(sources, np.int64), losses, zeros, zeros.copy())


@compiled
def _collect(layer: Layer, ends: Ends, room: Int[np.ndarray, " N"], at: tuple[int, int]) -> Bool[np.ndarray, " b"]:
    """Note what wrote EOS, and leave only what still runs in `layer.scores`; which sources go on."""
    step, best = at
    going = np.zeros(layer.sources.shape[0], np.bool_)
    for row in range(layer.sources.shape[0]):
        source, scores, highest = layer.sources[row], layer.scores[row], NOTHING
        scores[room[source] :] = NOTHING
        for place in range(scores.shape[0]):
            if layer.ids[row, place] == EOS and scores[place] > NOTHING:
                _note(ends, source, 0, (-scores[place], step, place))
                room[source] -= 1
                scores[place] = NOTHING
            highest = max(highest, scores[place])
        beaten = ends.counts[source] >= best and -ends.losses[source, best - 1] >= highest
        going[row] = highest > NOTHING and not beaten
    return going


@compiled
def _drop_broken(layer: Layer, before: Float[np.ndarray, "b k"], ends: Ends, going: Bool[np.ndarray, " b"]) -> None:
    """Leave a source without output and without hypotheses where one comes to probabilities that are not finite."""
    each = before.shape[1]
    for row in range(layer.sources.shape[0]):
        if np.isnan(layer.top_log_probabilities[row * each : (row + 1) * each, 0]).any():
            ends.counts[layer.sources[row]], going[row] = 0, False
            before[row] = NOTHING


@compiled
def _note(ends: Ends, source: int, first: int, end: tuple[np.float32, int, int]) -> None:
    """Put an end into its place among those of a source from the `first` on; of equal ones the earlier stays first."""
    losses, steps, places = ends.losses[source], ends.steps[source], ends.places[source]
    at = ends.counts[source]
    while at > first and losses[at - 1] > end[0]:
        losses[at], steps[at], places[at] = losses[at - 1], steps[at - 1], places[at - 1]
        at -= 1
    losses[at], steps[at], places[at] = end
    ends.counts[source] += 1


@compiled
def _cut(layer: Layer, before: Float[np.ndarray, "b k"], ends: Ends, step: int) -> None:
    """Note the hypotheses that had reached the greatest length and did not write EOS then."""
    for row in range(layer.sources.shape[0]):
        source = layer.sources[row]
        finished, left = ends.counts[source], np.isfinite(before[row])
        for end in range(finished):
            if ends.steps[source, end] == step:
                left[layer.parents[row, ends.places[source, end]]] = False
        for place in range(left.shape[0]):
            if left[place]:
                _note(ends, source, finished, (-before[row, place], step - 1, place))


@compiled
def _places(layer: Layer, going: Bool[np.ndarray, " b"], each: int) -> Int[np.ndarray, " R"]:
    """Where the parents of the hypotheses that go on stand among all of the step."""
    rows = np.flatnonzero(going)
    places = np.empty((rows.shape[0], layer.parents.shape[1]), np.int64)
    for at in range(rows.shape[0]):
        places[at] = layer.parents[rows[at]] + rows[at] * each
    return places.ravel()


@compiled
def _written(layers: list[Layer], ends: Ends, best: int) -> Found:
    """The best outputs of each source, each from its end back to its first symbol."""
    counts = np.minimum(ends.counts, best)
    (positions, candidates), total = (layers[0].weights.shape[1], layers[0].top_ids.shape[1]), counts.sum()
    outputs = blank((total, len(layers)), positions, candidates)
    sources, places = np.empty(total, np.int64), np.empty(total, np.int64)
    at = 0
    for source in range(counts.shape[0]):
        for end in range(counts[source]):
            sources[at], places[at] = source, ends.places[source, end]
            outputs.steps[at] = ends.steps[source, end] + 1
            at += 1
    for layer in range(len(layers) - 1, -1, -1):
        _trace_back(layers[layer], outputs, layer, sources, places)
    return Found(outputs, counts)


@compiled
def _trace_back(
    layer: Layer, outputs: Searched, step: int, sources: Int[np.ndarray, " n"], places: Int[np.ndarray, " n"]
) -> None:
    """Write one step of all outputs that have it; `places` become those of their hypotheses before it."""
    each = layer.weights.shape[0] // layer.sources.shape[0]
    rows = np.searchsorted(layer.sources, sources)
    for at in range(sources.shape[0]):
        if step < outputs.steps[at]:
            row, place = rows[at], places[at]
            parent = layer.parents[row, place]
            own = row * each + parent
            outputs.ids[at, step] = layer.ids[row, place]
            outputs.log_probabilities[at, step] = layer.log_probabilities[row, place]
            outputs.weights[at, step] = layer.weights[own]
            outputs.top_ids[at, step] = layer.top_ids[own]
            outputs.top_log_probabilities[at, step] = layer.top_log_probabilities[own]
            places[at] = parent


def warm_up() -> None:
    """Compile everything here by running the smallest example."""
    ready, state, rules = smallest()
    search_beams(ready, First(state, None, None), rules, Sizes(1, 1))
