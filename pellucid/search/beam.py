"""Beam search: the K likeliest hypotheses of every source at every step.

B batch, b sources that still run, k hypotheses of each before a step (1 before the first), R = b·k, K width of the
beam, S source positions, T steps, V vocabulary, C candidates kept for inspection, n outputs.

All hypotheses of all sources take each step together, those of a source one after the other; the memory stands once a
source, whatever the width. A hypothesis that writes EOS leaves the beam, which is narrower by one from then on
(Sutskever et al. 2014, section 3.2). Its score is the sum of the log-probabilities of its symbols, which only falls: a
source is finished when no hypothesis that still runs can enter the best ones any more.
"""

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from pellucid.data.vocabulary import BOS, EOS
from pellucid.model.memory import Attendable, State, Step
from pellucid.model.network import Network
from pellucid.search.decoded import (
    SHRINK,
    Decoded,
    Limits,
    Written,
    blank,
    candidates,
    closed_symbols,
    symbol_log_probabilities,
)


class _Beam(NamedTuple):
    """What runs: sources, and k hypotheses of each; the score of a place that no hypothesis holds is −∞."""

    sources: Int[np.ndarray, " b"]
    scores: Float[Tensor, "b k"]
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

    Outputs that reached the greatest length without EOS come after those that wrote it.
    """
    running, layers = _start(network, source, lengths), list[_Layer]()
    ends: list[list[_End]] = [[] for _ in lengths]
    closed = closed_symbols(network.vocabulary_size, source.device)
    for written in range(limits.maximum + 1):
        step = network.decoder.step(running.symbols, running.state, running.attendable)
        found = symbol_log_probabilities(step.logits, closed.at(written, limits))
        layer = _extend(running, step, found, np.array([width - len(ends[each]) for each in running.sources]))
        layers.append(layer)
        going = _collect(layer, ends, written, best)
        if written == limits.maximum:
            _cut(running, layer, ends, written)
        if written == limits.maximum or not going.any():
            break
        running = _advance(running, step.state, layer, going)
    return _outputs(layers, [sorted(each)[:best] for each in ends], lengths.tolist())


def _start(network: Network, source: Int[Tensor, "B S"], lengths: Int[Tensor, " B"]) -> _Beam:
    """One empty hypothesis a source."""
    memory = network.encoder(source, lengths)
    scores = memory.states.new_zeros(len(lengths), 1)
    state, attendable = network.decoder.start(memory), network.decoder.prepare(memory)
    return _Beam(np.arange(len(lengths)), scores, torch.full_like(lengths, BOS), state, attendable)


def _extend(running: _Beam, step: Step, found: Float[Tensor, "R V"], room: Int[np.ndarray, " b"]) -> _Layer:
    """The step, and the best of all k·V extensions of each source, as many as there is still room for."""
    sources, vocabulary = running.scores.shape[0], found.shape[1]
    totals = (running.scores.flatten()[:, None] + found).view(sources, -1)
    scores, chosen = totals.topk(min(int(room.max()), totals.shape[1]))
    top = found.topk(candidates(vocabulary))
    own = found.view(sources, -1).gather(1, chosen)
    seen = (step.attended.weights, top.indices, top.values)
    weights, top_ids, top_values = (_array(each).reshape(sources, -1, each.shape[-1]) for each in seen)
    places = _array(chosen)
    kept = np.where(np.arange(places.shape[1]) < room[:, None], _array(scores), -np.inf)
    chosen_ones = (places // vocabulary, places % vocabulary, _array(own), kept)
    return _Layer(running.sources, weights, top_ids, top_values, *chosen_ones)


def _collect(layer: _Layer, ends: list[list[_End]], step: int, best: int) -> Bool[np.ndarray, " b"]:
    """Note the hypotheses that wrote EOS; which sources go on: those where a better output can still come."""
    alive = np.isfinite(layer.scores)
    ended = alive & (layer.ids == EOS)
    for row, place in np.argwhere(ended).tolist():
        ends[layer.sources[row]].append(_End(False, -float(layer.scores[row, place]), step, place))
    highest = np.where(alive & ~ended, layer.scores, -np.inf).max(axis=1)
    going: Bool[np.ndarray, " b"] = np.isfinite(highest)
    for row in going.nonzero()[0].tolist():
        if len(found := ends[layer.sources[row]]) >= best:
            going[row] = -sorted(found)[best - 1].loss < highest[row]
    return going


def _cut(running: _Beam, layer: _Layer, ends: list[list[_End]], step: int) -> None:
    """Note the hypotheses that had reached the greatest length and did not write EOS then."""
    scores = _array(running.scores)
    for row, source in enumerate(layer.sources):
        finished = layer.parents[row][np.isfinite(layer.scores[row]) & (layer.ids[row] == EOS)]
        for place in set(np.isfinite(scores[row]).nonzero()[0].tolist()) - set(finished.tolist()):
            ends[source].append(_End(True, -float(scores[row, place]), step - 1, place))


def _advance(running: _Beam, state: State, layer: _Layer, going: Bool[np.ndarray, " b"]) -> _Beam:
    """The chosen hypotheses as the next beam, without the finished sources once these are many."""
    device = running.scores.device
    over = ~going[:, None] | (layer.ids == EOS)
    scores = torch.from_numpy(np.where(over, -np.inf, layer.scores)).to(device, running.scores.dtype)
    places = layer.parents + np.arange(len(going))[:, None] * layer.weights.shape[1]
    ids, sources, attendable = layer.ids, layer.sources, running.attendable
    if going.mean() < SHRINK:
        kept = torch.from_numpy(going.nonzero()[0]).to(device)
        ids, sources, places = ids[going], sources[going], places[going]
        scores, attendable = scores[kept], attendable.take(kept)
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


def _array(tensor: Tensor) -> np.ndarray:
    """A tensor of any device as an array; half precision as float32."""
    array: np.ndarray = (tensor.float() if tensor.is_floating_point() else tensor).cpu().numpy()
    return array
