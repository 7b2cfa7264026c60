"""Beam search: the K likeliest hypotheses of every source at every step.

B batch, b sources that still run, k hypotheses of each before a step (1 before the first), R = b·k, K width of the
beam, S source positions, T steps, V vocabulary, C candidates kept for inspection, n outputs.

All hypotheses of all sources take each step together, those of a source one after the other; the memory stands once a
source, whatever the width. A hypothesis that writes EOS leaves the beam, which is narrower by one from then on
(Sutskever et al. 2014, section 3.2). Its score is the sum of the log-probabilities of its symbols, which only falls: a
source is finished when no hypothesis that still runs can enter the best ones any more.
"""

from itertools import islice
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from pellucid.data.vocabulary import BOS, EOS
from pellucid.kernels.operands import Prepared, Rules
from pellucid.model.memory import Attendable, State, Step
from pellucid.model.network import Network
from pellucid.search.decoded import (
    SHRINK,
    Decoded,
    Limits,
    Written,
    array,
    blank,
    closed_symbols,
    extend,
    first_of,
    outputs_of,
    rules_of,
)


class _Beam(NamedTuple):
    """What runs: sources, and k hypotheses of each; the score of a place that no hypothesis holds is −∞."""

    sources: Int[np.ndarray, " b"]
    scores: Float[np.ndarray, "b k"]
    symbols: Int[Tensor, " R"]
    state: State
    attendable: Attendable


class _Layer(NamedTuple):
    """One step of all hypotheses: what was seen before it, and which K extensions it chose."""

    sources: Int[np.ndarray, " b"]
    weights: Float[np.ndarray, "b k S"]
    top_ids: Int[np.ndarray, "b k C"]
    top_log_probabilities: Float[np.ndarray, "b k C"]
    parents: Int[np.ndarray, "b K"]
    ids: Int[np.ndarray, "b K"]
    log_probabilities: Float[np.ndarray, "b K"]
    scores: Float[np.ndarray, "b K"]
    ended: Bool[np.ndarray, "b K"]
    """Which of the extensions are whole outputs."""


class _End(NamedTuple):
    """Where an output ends in the layers; the best outputs sort first: those that wrote EOS, by their scores."""

    cut: bool
    loss: float
    """Minus the score."""
    step: int
    place: int


@torch.inference_mode()
def beam(
    network: Network, source: Int[Tensor, "B S"], lengths: Int[Tensor, " B"], limits: Limits, width: int, best: int = 1
) -> list[list[Decoded]]:
    """The `best` outputs (at most `width`) of each source, likeliest first; batch-mates change nothing.

    Outputs that reached the greatest length without EOS come after those that wrote it. A kernel takes all steps at
    once where there is one; else they follow each other here.
    """
    memory = network.encoder(source, lengths)
    state, attendable = network.decoder.start(memory), network.decoder.prepare(memory)
    if attendable.prepared is not None:
        rules = rules_of(network.vocabulary_size, limits)
        return _compiled(attendable.prepared, state, lengths.tolist(), rules, (width, best))
    return stepwise(network, _start(state, attendable), limits, width, best)


def _compiled(
    prepared: Prepared, state: State, lengths: list[int], rules: Rules, sizes: tuple[int, int]
) -> list[list[Decoded]]:
    """All steps by a kernel."""
    from pellucid.kernels.beams import Sizes, search_beams  # Numba takes a second to import

    found: list[list[Decoded]] = []
    for outputs, counts in search_beams(prepared, first_of(state), rules, Sizes(*sizes)):
        own = lengths[len(found) : len(found) + len(counts)]
        rest = iter(outputs_of(outputs, np.repeat(own, counts).tolist()))
        found += [list(islice(rest, count)) for count in counts.tolist()]
    return found


def stepwise(network: Network, running: _Beam, limits: Limits, width: int, best: int) -> list[list[Decoded]]:
    """The search by steps of the decoder, one of all hypotheses after the other."""
    lengths, layers = running.attendable.memory.lengths, list[_Layer]()
    ends: list[list[_End]] = [[] for _ in lengths]
    room = np.full(len(lengths), width)
    closed = closed_symbols(network.vocabulary_size, lengths.device)
    for written in range(limits.maximum + 1):
        step = network.decoder.step(running.symbols, running.state, running.attendable)
        layer = _layer(running, step, closed.at(written, limits), room[running.sources])
        layers.append(layer)
        going = _collect(layer, ends, (written, best))
        room[running.sources] -= layer.ended.sum(axis=1)
        if written == limits.maximum:
            _cut(running, layer, ends, written)
        if written == limits.maximum or not going.any():
            break
        running = _advance(running, step.state, layer, going)
    return _outputs(layers, [sorted(each)[:best] for each in ends], lengths.tolist())


def _start(state: State, attendable: Attendable) -> _Beam:
    """One empty hypothesis a source."""
    lengths = attendable.memory.lengths
    scores = np.zeros((len(lengths), 1), np.float32)
    return _Beam(np.arange(len(lengths)), scores, torch.full_like(lengths, BOS), state, attendable)


def _layer(running: _Beam, step: Step, closed: Bool[Tensor, " V"], room: Int[np.ndarray, " b"]) -> _Layer:
    """The step, and the best extensions of each source's hypotheses, as many as there is still room for."""
    found = extend(step.logits, closed, running.scores, int(room.max()))
    sources = len(room)
    seen = (array(step.attended.weights), *found.top)
    weights, top_ids, top_values = (each.reshape(sources, -1, each.shape[-1]) for each in seen)
    inside = np.arange(found.ids.shape[1]) < room[:, None]
    scores = np.where(inside, found.scores, np.float32(-np.inf))
    ended = (found.ids == EOS) & np.isfinite(scores)
    chosen = (found.parents, found.ids, found.log_probabilities, scores, ended)
    return _Layer(running.sources, weights, top_ids, top_values, *chosen)


def _collect(layer: _Layer, ends: list[list[_End]], at: tuple[int, int]) -> Bool[np.ndarray, " b"]:
    """Note the hypotheses that wrote EOS; which sources go on: those where one of the best outputs can still come."""
    (step, best), ended = at, layer.ended
    highest = np.where(ended, -np.inf, layer.scores).max(axis=1)
    going: Bool[np.ndarray, " b"] = np.isfinite(highest)
    for row, place in np.argwhere(ended).tolist():
        ends[layer.sources[row]].append(_End(False, -float(layer.scores[row, place]), step, place))
    for row, source in enumerate(layer.sources.tolist()):
        if len(ends[source]) >= best and going[row]:
            going[row] = -sorted(ends[source])[best - 1].loss < highest[row]
    return going


def _cut(running: _Beam, layer: _Layer, ends: list[list[_End]], step: int) -> None:
    """Note the hypotheses that had reached the greatest length and did not write EOS then."""
    ended = layer.ended
    for row, source in enumerate(layer.sources.tolist()):
        left = set(np.isfinite(running.scores[row]).nonzero()[0].tolist()) - set(
            layer.parents[row][ended[row]].tolist()
        )
        ends[source] += [_End(True, -float(running.scores[row, place]), step - 1, place) for place in left]


def _advance(running: _Beam, state: State, layer: _Layer, going: Bool[np.ndarray, " b"]) -> _Beam:
    """The chosen hypotheses as the next beam, without the finished sources once these are many."""
    device = running.symbols.device
    over = ~going[:, None] | layer.ended
    scores = np.where(over, np.float32(-np.inf), layer.scores)
    places = layer.parents + np.arange(len(going))[:, None] * layer.weights.shape[1]
    ids, sources, attendable = layer.ids, layer.sources, running.attendable
    if going.mean() < SHRINK:
        kept = torch.from_numpy(going.nonzero()[0]).to(device)
        ids, sources, places, scores = ids[going], sources[going], places[going], scores[going]
        attendable = attendable.take(kept)
    parents = torch.from_numpy(places.ravel()).to(device)
    return _Beam(sources, scores, torch.from_numpy(ids.ravel()).to(device), state.take(parents), attendable)


def _outputs(layers: list[_Layer], ends: list[list[_End]], lengths: list[int]) -> list[list[Decoded]]:
    """Each output from its end back to its first symbol, all of them together."""
    flat = [(row, end) for row, each in enumerate(ends) for end in each]
    sources = np.array([row for row, _ in flat])
    last, places = np.array([end.step for _, end in flat]), np.array([end.place for _, end in flat])
    written = blank(len(flat), len(layers), layers[0].weights.shape[2], layers[0].top_ids.shape[2])
    for step in range(len(layers) - 1, -1, -1):
        rows = (last >= step).nonzero()[0]
        places[rows] = _trace_back(layers[step], written, (rows, step), sources[rows], places[rows])
    found: list[list[Decoded]] = [[] for _ in ends]
    for at, (row, end) in enumerate(flat):
        found[row].append(written.output(at, end.step + 1, lengths[row]))
    return found


def _trace_back(
    layer: _Layer,
    written: Written,
    at: tuple[Int[np.ndarray, " n"], int],
    sources: Int[np.ndarray, " n"],
    places: Int[np.ndarray, " n"],
) -> Int[np.ndarray, " n"]:
    """Write one step of some outputs; the places of their hypotheses before it."""
    rows = np.searchsorted(layer.sources, sources)
    parents: Int[np.ndarray, " n"] = layer.parents[rows, places]
    written.ids[at], written.log_probabilities[at] = layer.ids[rows, places], layer.log_probabilities[rows, places]
    written.weights[at], written.top_ids[at] = layer.weights[rows, parents], layer.top_ids[rows, parents]
    written.top_log_probabilities[at] = layer.top_log_probabilities[rows, parents]
    return parents
