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

from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from pellucid.data.vocabulary import BOS, EOS
from pellucid.decoding.candidate_scorer import PLAIN, Score
from pellucid.decoding.constraints import FREE, Constraints, Spot
from pellucid.decoding.inference import Alone, Running, Seen, begin
from pellucid.decoding.outputs import (
    SHRINK,
    Closed,
    Decoded,
    Extended,
    Limits,
    Masks,
    Spans,
    Written,
    array,
    array_or_none,
    best_of,
    blank,
    closed_symbols,
    extend,
    first_of,
    outputs_of,
    rules_of,
    spans_of,
    summed,
)
from pellucid.decoding.search_tree import Tree
from pellucid.decoding.trace_schema import Fate
from pellucid.errors import NotFiniteError
from pellucid.kernels.dispatch import use_kernel
from pellucid.kernels.types import SearchLimits
from pellucid.model.network import Network


def width_for(width: int, constraints: Constraints) -> int:
    """At least one place for each count of required symbols, 0 to M."""
    return max(width, len(constraints.required) + 1) if len(constraints.required) else width


def extend_to_meet(
    logits: Float[Tensor, "R V"],
    masks: Masks,
    scores: Float[np.ndarray, "b k"],
    lacking: tuple[Int[np.ndarray, " M"], Bool[np.ndarray, "b k M"]],
    width: int,
) -> Extended:
    """The best `width` extensions of each source, and those that no score may drop: section 3.2 of the source.

    They are the likeliest extension of every hypothesis, and each hypothesis with each required symbol that it lacks.
    Extensions beyond these have the score −∞.
    """
    found, sums = summed(logits, masks, scores)
    required, lacks = lacking
    rows, vocabulary = sums.view(*scores.shape, -1), logits.shape[1]
    chosen = torch.zeros_like(rows, dtype=torch.bool)
    chosen.scatter_(2, rows.argmax(dim=2, keepdim=True), True)
    for at, symbol in enumerate(required.tolist()):
        chosen[:, :, symbol] |= torch.from_numpy(lacks[:, :, at]).to(chosen.device)
    chosen = chosen.view(len(scores), -1)
    chosen.scatter_(1, sums.topk(min(width, sums.shape[1])).indices, True)
    most = min(width + scores.shape[1] * (len(required) + 1), scores.shape[1] * vocabulary)
    return best_of(found, sums.masked_fill(~chosen, -torch.inf), most)


def shared_out(
    open_: Bool[np.ndarray, "b E"], met: Int[np.ndarray, "b E"], required: int, width: int
) -> Bool[np.ndarray, "b E"]:
    """Which open extensions, ordered by falling score, have a place: K for each source.

    Each count of symbols met, 0 to M, has K / (M + 1) places, the higher counts one more where that leaves a rest.
    Places that a count cannot fill go to the best of the others: section 3.3 of the source.
    """
    counts = np.arange(required + 1)
    quotas = width // len(counts) + (counts >= len(counts) - width % len(counts))
    of_count = open_[:, :, None] & (met[:, :, None] == counts)
    own = (of_count & (of_count.cumsum(axis=1) <= quotas)).any(axis=2)
    others = open_ & ~own
    free = width - own.sum(axis=1, keepdims=True)
    placed: Bool[np.ndarray, "b E"] = own | (others & (others.cumsum(axis=1) <= free))
    return placed


class Layer(NamedTuple):
    """One step of all hypotheses: what was seen before it, and which extensions were considered."""

    sources: Int[np.ndarray, " b"]
    weights: Float[np.ndarray, "b k S"]
    top_ids: Int[np.ndarray, "b k C"]
    top_log_probabilities: Float[np.ndarray, "b k C"]
    parents: Int[np.ndarray, "b E"]
    """The hypothesis that each extends."""
    origins: Int[np.ndarray, "b E"]
    """Which extension of the layer before that hypothesis is."""
    ids: Int[np.ndarray, "b E"]
    log_probabilities: Float[np.ndarray, "b E"]
    sums: Float[np.ndarray, "b E"]
    """ln p up to here; they fall."""
    ended: Bool[np.ndarray, "b E"]
    """Which of them are whole outputs."""
    kept: Bool[np.ndarray, "b E"]
    """Which of them may be extended."""
    heads: Float[np.ndarray, "b k M S"] | None = None


class End(NamedTuple):
    """Where an output ends in the layers; the best outputs sort first: those that wrote EOS, by their scores."""

    cut: bool
    loss: float
    """Minus the score."""
    step: int
    place: int


class Found(NamedTuple):
    """One output of a source."""

    decoded: Decoded
    score: float
    tree: Tree | None = None
    leaf: int = -1
    """The node of the tree in which it ends."""


def finite_outputs(outputs: Sequence[list[Found]], name: str) -> Sequence[list[Found]]:
    """Return the outputs of each source as they are; every output of a network passes here on its way out.

    Numbers that are none spread from wherever they arise (attention, cells, scores) to the probabilities of what is
    written, or leave a search with nothing to write.

    Args:
        outputs: The outputs of each source. Each source has one at least.
        name: The run folder of the network.

    Raises:
        NotFiniteError: Where a probability is none, or a source has no output.
    """
    every = [each for found in outputs for each in found]
    numbers = np.concatenate(
        [np.array([each.score for each in every]), *(each.decoded.log_probabilities for each in every)]
    )
    if not all(outputs) or np.isnan(numbers).any():
        raise NotFiniteError(
            f"{name or 'the model'} gives numbers that are not finite: its parameters are damaged, or too large "
            "for float32"
        )
    return outputs


def outputs_from(
    layers: list[Layer], ends: list[list[End]], lengths: list[int], lattice: bool = False
) -> list[list[Found]]:
    """Each output from its end back to its first symbol, all of them together."""
    flat = [(source, end) for source, each in enumerate(ends) for end in each]
    sources = np.array([source for source, _ in flat], np.int64)
    last, places = (np.array(each, np.int64) for each in ([e.step for _, e in flat], [e.place for _, e in flat]))
    heads = 0 if layers[0].heads is None else layers[0].heads.shape[2]
    written = blank(len(flat), len(layers), layers[0].weights.shape[2], layers[0].top_ids.shape[2], heads)
    for step in range(len(layers) - 1, -1, -1):
        rows = (last >= step).nonzero()[0]
        places[rows] = _trace_back(layers[step], written, (rows, step), sources[rows], places[rows])
    grown = [_grow(layers, source, each) if lattice and ends[source] else None for source, each in enumerate(lengths)]
    found: list[list[Found]] = [[] for _ in ends]
    for at, (source, end) in enumerate(flat):
        decoded, tree = written.output(at, end.step + 1, lengths[source]), grown[source]
        leaf = -1 if tree is None else tree[1].get((end.step, end.place), -1)
        found[source].append(Found(decoded, -end.loss, None if tree is None else tree[0], leaf))
    return found


def _trace_back(
    layer: Layer,
    written: Written,
    at: tuple[Int[np.ndarray, " n"], int],
    sources: Int[np.ndarray, " n"],
    places: Int[np.ndarray, " n"],
) -> Int[np.ndarray, " n"]:
    """Write one step of some outputs; the places of their hypotheses in the layer before it."""
    rows = np.searchsorted(layer.sources, sources)
    parents = layer.parents[rows, places]
    written.ids[at], written.log_probabilities[at] = layer.ids[rows, places], layer.log_probabilities[rows, places]
    written.weights[at], written.top_ids[at] = layer.weights[rows, parents], layer.top_ids[rows, parents]
    written.top_log_probabilities[at] = layer.top_log_probabilities[rows, parents]
    if written.heads is not None and layer.heads is not None:
        written.heads[at[0], :, at[1]] = layer.heads[rows, parents]
    origins: Int[np.ndarray, " n"] = layer.origins[rows, places]
    return origins


def _grow(layers: list[Layer], source: int, length: int) -> tuple[Tree, dict[tuple[int, int], int]]:
    """The tree of one source, and the node of each (step, extension) in it."""
    nodes: dict[tuple[int, int], int] = {}
    looks: dict[tuple[int, int], int] = {}
    rows: list[tuple[int, int, int, float, float]] = []
    fates, attention = list[Fate](), list[Float[np.ndarray, " S"]]()
    for step, layer in enumerate(layers):
        row = int(np.searchsorted(layer.sources, source))
        if row == len(layer.sources) or layer.sources[row] != source:
            break
        for place in np.isfinite(layer.sums[row]).nonzero()[0].tolist():
            parent = int(layer.parents[row, place])
            if (step, parent) not in looks:
                looks[step, parent] = len(attention)
                attention.append(layer.weights[row, parent, :length])
            nodes[step, place] = len(rows)
            above = nodes[step - 1, int(layer.origins[row, place])] if step else -1
            numbers = float(layer.log_probabilities[row, place]), float(layer.sums[row, place])
            rows.append((int(layer.ids[row, place]), above, looks[step, parent], *numbers))
            fates.append("ended" if layer.ended[row, place] else "kept" if layer.kept[row, place] else "pruned")
    ids, parents, seen, likely, sums = (np.array(column) for column in zip(*rows, strict=True))
    return Tree(ids, parents, seen, likely, sums, tuple(fates), np.stack(attention)), nodes


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


def _compiled(running: Alone, lengths: list[int], rules: SearchLimits, sizes: tuple[int, int]) -> list[list[Decoded]]:
    """All steps by a kernel."""
    from pellucid.kernels.autograd import search_beams  # Numba takes a second to import
    from pellucid.kernels.beam import BeamSizes

    prepared, found = running.attendable.kernel, list[list[Decoded]]()
    assert prepared is not None, "a kernel that takes all steps takes each"
    for outputs, counts in search_beams(prepared, first_of(running.state), rules, BeamSizes(*sizes)):
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
