"""Beam search: the K likeliest hypotheses of every source at every step.

B batch, b sources that still run, k hypotheses of each before a step (1 before the first), R = b·k, K width of the
beam, S source positions, T steps, V symbols, C candidates kept for inspection, E extensions considered, M required
symbols, n outputs.

All hypotheses of all sources take each step together, those of a source one after the other; the memory stands once a
source, whatever the width. Hypotheses of one step have one length and are pruned by ln p; whole outputs are ranked by
the `Score`. Under ln p itself a hypothesis that writes EOS leaves the beam, which is narrower by one from then on
(Sutskever et al. 2014, section 3.2). Under any other score, where a longer output may yet win, and where symbols are
required, the beam keeps its width and every EOS among the best K + k extensions is an output. Where symbols are
required, places are shared out by how many of them a hypothesis holds (`places`).

Guaranteed under every score: a source is over only when its greatest length is reached, when nothing runs any more, or
when no output that a running hypothesis can still become could enter the best ones (`Score.bound`). So the outputs are
those of the same beam run to the greatest length; what can be lost is only what the beam itself pruned, and nothing is
where it is as wide as there are hypotheses.

A source of which a hypothesis comes to probabilities that are not finite has no output (`finite_outputs`).
"""

from itertools import islice
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from pellucid.data.vocabulary import BOS, EOS
from pellucid.kernels.dispatch import use_kernel
from pellucid.kernels.operands import Rules
from pellucid.model.network import Network
from pellucid.search.constraints import FREE, Constraints, Spot
from pellucid.search.decoded import (
    SHRINK,
    Closed,
    Decoded,
    Extended,
    Limits,
    Masks,
    Spans,
    array,
    array_or_none,
    closed_symbols,
    extend,
    first_of,
    outputs_of,
    rules_of,
    spans_of,
)
from pellucid.search.layers import End, Found, Layer, outputs_from
from pellucid.search.places import extend_to_meet, shared_out, width_for
from pellucid.search.running import Alone, Running, Seen, begin
from pellucid.search.score import PLAIN, Score


class Wanted(NamedTuple):
    """What is asked of a search."""

    spans: Spans
    width: int
    best: int = 1
    score: Score = PLAIN
    constraints: Constraints = FREE
    lattice: bool = False
    """Whether to keep, for each source, everything that was considered."""


class _Beam(NamedTuple):
    """What runs: sources, and k hypotheses of each; the sum of a place that no hypothesis holds is −∞."""

    sources: Int[np.ndarray, " b"]
    sums: Float[np.ndarray, "b k"]
    origins: Int[np.ndarray, "b k"]
    """Which extension of the layer before each hypothesis is."""
    held: Bool[np.ndarray, "b k M"]
    """The required symbols it holds."""
    covered: Float[np.ndarray, "b k S"]
    """The sums of its attention weights, 1 where nothing is to be covered; of no positions where nobody asks."""
    symbols: Int[Tensor, " R"]
    running: Running


@torch.inference_mode()
def beam(
    network: Network, source: Int[Tensor, "B S"], lengths: Int[Tensor, " B"], limits: Limits, width: int, best: int = 1
) -> list[list[Decoded]]:
    """The `best` outputs (at most `width`) of each source, likeliest first; batch-mates change nothing.

    Outputs that reached the greatest length without EOS come after those that wrote it. A kernel takes all steps at
    once where there is one; else they follow each other here.
    """
    running = begin(network, source, lengths)
    lengths = running.attendable.memory.lengths
    if use_kernel(running.decoder.request("beam", running.attendable)):
        rules = rules_of(network.vocabulary_size, limits)
        return _compiled(running, lengths.tolist(), rules, (width, best))
    found = stepwise(running, lengths, Wanted(spans_of(limits, len(lengths)), width, best))
    return [[output.decoded for output in outputs] for outputs in found]


def _compiled(running: Alone, lengths: list[int], rules: Rules, sizes: tuple[int, int]) -> list[list[Decoded]]:
    """All steps by a kernel."""
    from pellucid.kernels.autograd import search_beams  # Numba takes a second to import
    from pellucid.kernels.beams import Sizes

    prepared, found = running.attendable.stepping, list[list[Decoded]]()
    assert prepared is not None, "a kernel that takes all steps takes each"
    for outputs, counts in search_beams(prepared, first_of(running.state), rules, Sizes(*sizes)):
        own = lengths[len(found) : len(found) + len(counts)]
        rest = iter(outputs_of(outputs, np.repeat(own, counts).tolist()))
        found += [list(islice(rest, count)) for count in counts.tolist()]
    return found


@torch.inference_mode()
def stepwise(running: Running, lengths: Int[Tensor, " B"], wanted: Wanted) -> list[list[Found]]:
    """The search by steps of whatever writes, one of all hypotheses after the other: every score, every constraint."""
    wanted = wanted._replace(width=width_for(wanted.width, wanted.constraints))
    layers, room, closed = list[Layer](), np.full(len(lengths), wanted.width), None
    ends: list[list[End]] = [[] for _ in range(len(lengths))]
    beam, finite = _start(running, lengths, wanted), np.ones(len(lengths), np.bool_)
    going: Bool[np.ndarray, " b"] = np.ones(len(lengths), np.bool_)
    while going.any():
        seen = beam.running.step(beam.symbols)
        closed = closed or closed_symbols(seen.logits.shape[1], lengths.device)
        if not layers and wanted.score.coverage:
            beam = beam._replace(covered=_uncovered(seen, lengths))
        layer = _layer(beam, seen, _masks(beam, seen, closed, wanted, len(layers)), wanted, room[beam.sources])
        finite[layer.sources] &= ~np.isnan(layer.top_log_probabilities[:, :, 0]).any(axis=1)
        layer.kept[(wanted.spans.maximum[layer.sources] <= len(layers)) | ~finite[layer.sources]] = False
        layers.append(layer)
        going = _collect(beam, layer, ends, wanted, len(layers))
        room[layer.sources] -= layer.ended.sum(axis=1)
        if going.any():
            beam = _advance(beam, seen.after, layer, going, wanted.constraints)
    best = [sorted(each)[: wanted.best] if sound else [] for each, sound in zip(ends, finite, strict=True)]
    return outputs_from(layers, best, lengths.tolist(), wanted.lattice)


def _start(running: Running, lengths: Int[Tensor, " B"], wanted: Wanted) -> _Beam:
    """One empty hypothesis a source."""
    sums, origins = np.zeros((len(lengths), 1), np.float32), np.full((len(lengths), 1), -1)
    held, covered = wanted.constraints.first(len(lengths)), np.zeros((len(lengths), 1, 0), np.float32)
    return _Beam(np.arange(len(lengths)), sums, origins, held, covered, torch.full_like(lengths, BOS), running)


def _uncovered(seen: Seen, lengths: Int[Tensor, " B"]) -> Float[np.ndarray, "B 1 S"]:
    """0 at the positions to cover: those of the source, where the first look shows that there are looks at all."""
    weights = seen.weights
    outside = torch.arange(weights.shape[1], device=weights.device) >= lengths[:, None]
    return array((outside | (weights.sum(dim=1, keepdim=True) == 0)).to(torch.float32))[:, None]


def _masks(beam: _Beam, seen: Seen, closed: Closed, wanted: Wanted, written: int) -> Masks:
    """What cannot be written next."""
    spans, each = wanted.spans, beam.sums.shape[1]
    spot = Spot(beam.sources, written, spans.maximum[beam.sources] - written)
    blocked = wanted.constraints.blocked(spot, beam.held, seen.logits.shape[1])
    return Masks(closed.of(written, spans.minimum[beam.sources], each), blocked)


def _layer(beam: _Beam, seen: Seen, masks: Masks, wanted: Wanted, room: Int[np.ndarray, " b"]) -> Layer:
    """The step, and the best extensions of each source's hypotheses: those that end, and those that go on."""
    found, inside = _extended(beam, seen, masks, wanted, room)
    shown = (array(seen.weights), *found.top)
    weights, top_ids, top_values = (each.reshape(len(room), -1, each.shape[-1]) for each in shown)
    heads = array_or_none(seen.heads)
    more = inside & (found.ids != EOS)
    return Layer(
        sources=beam.sources,
        weights=weights,
        top_ids=top_ids,
        top_log_probabilities=top_values,
        parents=found.parents,
        origins=np.take_along_axis(beam.origins, found.parents, axis=1),
        ids=found.ids,
        log_probabilities=found.log_probabilities,
        sums=found.scores,
        ended=inside & ~more,
        kept=_kept(beam, found, more, wanted),
        heads=None if heads is None else heads.reshape(len(room), -1, *heads.shape[1:]),
    )


def _extended(
    beam: _Beam, seen: Seen, masks: Masks, wanted: Wanted, room: Int[np.ndarray, " b"]
) -> tuple[Extended, Bool[np.ndarray, "b E"]]:
    """Extensions by falling score, and which of them are in the running."""
    considered, listed = wanted.width + beam.sums.shape[1], wanted.width * wanted.lattice
    if len(wanted.constraints.required):
        lacking = wanted.constraints.required, ~beam.held
        found = extend_to_meet(seen.logits, masks, beam.sums, lacking, considered + listed)
        return found, np.isfinite(found.scores)
    allowed = (room if wanted.score.plain else np.full(len(room), considered))[:, None]
    found = extend(seen.logits, masks, beam.sums, int(allowed.max()) + listed)
    return found, np.isfinite(found.scores) & (np.arange(found.ids.shape[1]) < allowed)


def _kept(beam: _Beam, found: Extended, more: Bool[np.ndarray, "b E"], wanted: Wanted) -> Bool[np.ndarray, "b E"]:
    """Which of those that can go on have a place: the best, or the best of each count of required symbols."""
    required = len(wanted.constraints.required)
    if not required:
        return np.asarray(more & (more.cumsum(axis=1) <= wanted.width))
    held = np.take_along_axis(beam.held, found.parents[:, :, None], axis=1)
    met = wanted.constraints.holding(held, found.ids).sum(axis=2)
    return shared_out(more, met, required, wanted.width)


def _collect(beam: _Beam, layer: Layer, ends: list[list[End]], wanted: Wanted, steps: int) -> Bool[np.ndarray, " b"]:
    """Note the outputs; which sources go on: those where one of the best outputs can still come."""
    rows, places = layer.ended.nonzero()
    covered = _covered(beam, layer)
    ended = wanted.score.of(layer.sums, steps, np.take_along_axis(covered, layer.parents[:, :, None], axis=1))
    for row, place in zip(rows.tolist(), places.tolist(), strict=True):
        ends[layer.sources[row]].append(End(False, -float(ended[row, place]), steps - 1, place))
    going: Bool[np.ndarray, " b"] = np.asarray(layer.kept.any(axis=1))
    highest = np.where(layer.kept, layer.sums, -np.inf).max(axis=1)
    bound = wanted.score.bound(highest, wanted.spans.maximum[layer.sources] + 1)
    for row, source in enumerate(layer.sources.tolist()):
        if not going[row] and (steps > wanted.spans.maximum[source] or not ends[source]):
            _cut(beam, layer, ends[source], row, (wanted.score, steps - 1))
        elif going[row] and len(ends[source]) >= wanted.best:
            going[row] = -sorted(ends[source])[wanted.best - 1].loss < float(bound[row])
    return going


def _covered(beam: _Beam, layer: Layer) -> Float[np.ndarray, "b k S"]:
    """The coverage of every hypothesis, this step's look included."""
    if not beam.covered.shape[2]:
        return beam.covered
    covered: Float[np.ndarray, "b k S"] = beam.covered + layer.weights
    return covered


def _cut(beam: _Beam, layer: Layer, ends: list[End], row: int, scored: tuple[Score, int]) -> None:
    """Note the hypotheses of a source that cannot go on, and did not write EOS now."""
    score, steps = scored
    own = slice(row, row + 1)
    finals = score.of(beam.sums[own], steps, beam.covered[own])[0]
    left = set(np.isfinite(beam.sums[row]).nonzero()[0].tolist()) - set(layer.parents[row][layer.ended[row]].tolist())
    ends += [End(True, -float(finals[place]), steps - 1, int(beam.origins[row, place])) for place in left]


def _advance(
    beam: _Beam, running: Running, layer: Layer, going: Bool[np.ndarray, " b"], constraints: Constraints
) -> _Beam:
    """The chosen hypotheses as the next beam, without the finished sources once these are many."""
    kept, dropping = layer.kept & going[:, None], bool(going.mean() < SHRINK)
    chosen = going if dropping else np.ones_like(going)
    width = int(kept.sum(axis=1).max())
    origins = np.argsort(~kept, axis=1, kind="stable")[:, :width]

    def of(values: np.ndarray) -> np.ndarray:
        """What belongs to the kept extensions, of the chosen sources."""
        taken: np.ndarray = np.take_along_axis(values, origins, axis=1)[chosen]
        return taken

    parents, device = of(layer.parents), beam.symbols.device
    hypotheses = torch.from_numpy((parents + chosen.nonzero()[0][:, None] * beam.sums.shape[1]).ravel()).to(device)
    sources = torch.from_numpy(chosen.nonzero()[0]).to(device) if dropping else None
    across = parents[:, :, None]
    return _Beam(
        sources=layer.sources[chosen],
        sums=np.where(of(kept), of(layer.sums), np.float32(-np.inf)),
        origins=origins[chosen],
        held=constraints.holding(np.take_along_axis(beam.held[chosen], across, axis=1), of(layer.ids)),
        covered=np.take_along_axis(_covered(beam, layer)[chosen], across, axis=1),
        symbols=torch.from_numpy(of(layer.ids).ravel()).to(device),
        running=running.take(hypotheses, sources),
    )
