"""Beam search with constraints and coverage.

B batch, b active sources, k hypotheses of each before a step (1 before the first), R = b·k, K beam size, S source
positions, T steps, V vocabulary, C candidates kept for inspection, E extensions considered, M required symbols,
n outputs.

All hypotheses of all sources take each step together; the hypotheses of one source are adjacent. The memory is stored
once per source, whatever the beam size. Hypotheses at one step have equal length and are pruned by log-probability;
finished outputs are ranked by the `CandidateScorer`. If the score is the log-probability itself, a hypothesis that
writes EOS leaves the beam, which then has one place fewer (Sutskever et al. 2014, section 3.2). With any other score, a
longer output may still win, and with required symbols it may be needed: the beam keeps its size, and every EOS among
the best K + k extensions is an output. Required symbols divide the beam by the number of symbols already met
(`allocate_beam`).

Guarantee for every score: the search of a source ends only at the maximum length, or when no hypothesis is active, or
when no output that an active hypothesis can become could enter the best outputs (`CandidateScorer.bound`). The outputs
are those of the same beam run to the maximum length. Only pruning loses hypotheses.

A source with a hypothesis of non-finite probability has no output (`check_finite_outputs`).
"""

from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from pellucid.data.vocabulary import BOS, EOS
from pellucid.decoding.candidate_scorer import PLAIN, CandidateScorer
from pellucid.decoding.constraints import FREE, Constraints, DecodePosition
from pellucid.decoding.inference import Inference, SingleModelInference, StepOutput, encode_and_initialize
from pellucid.decoding.outputs import (
    SHRINK,
    BatchLengthLimits,
    BatchOutputs,
    BeamCandidates,
    DecodedOutput,
    LengthLimits,
    SuppressedSymbols,
    SymbolMasks,
    batch_length_limits,
    empty_outputs,
    extend_hypotheses,
    initial_kernel_state,
    score_extensions,
    search_limits,
    select_extensions,
    split_outputs,
    suppressed_symbols,
    to_array,
    to_optional_array,
)
from pellucid.decoding.search_tree import SearchTreeIds
from pellucid.decoding.trace_schema import Fate
from pellucid.errors import NotFiniteError
from pellucid.kernels.dispatch import use_kernel
from pellucid.kernels.types import SearchLimits
from pellucid.model.network import Network


def constrained_beam_size(width: int, constraints: Constraints) -> int:
    """Return a beam size with at least one place for each number of met required symbols, 0 to M."""
    return max(width, len(constraints.required) + 1) if len(constraints.required) else width


def extend_constrained(
    logits: Float[Tensor, "R V"],
    masks: SymbolMasks,
    scores: Float[np.ndarray, "b k"],
    lacking: tuple[Int[np.ndarray, " M"], Bool[np.ndarray, "b k M"]],
    width: int,
) -> BeamCandidates:
    """Return the best `width` extensions of each source, and those that constraints require (Post & Vilar 2018, 3.2).

    Required are the most probable extension of every hypothesis, and each hypothesis followed by each required symbol
    that it lacks. Other extensions have the score −∞.

    Args:
        logits: Logits of the next symbols.
        masks: Symbols that cannot follow.
        scores: Log-probability of each hypothesis.
        lacking: The M required symbols, and whether each hypothesis lacks each of them.
        width: Number of extensions of each source.
    """
    found, sums = score_extensions(logits, masks, scores)
    required, lacks = lacking
    rows, vocabulary = sums.view(*scores.shape, -1), logits.shape[1]
    chosen = torch.zeros_like(rows, dtype=torch.bool)
    chosen.scatter_(2, rows.argmax(dim=2, keepdim=True), True)
    for at, symbol in enumerate(required.tolist()):
        chosen[:, :, symbol] |= torch.from_numpy(lacks[:, :, at]).to(chosen.device)
    chosen = chosen.view(len(scores), -1)
    chosen.scatter_(1, sums.topk(min(width, sums.shape[1])).indices, True)
    most = min(width + scores.shape[1] * (len(required) + 1), scores.shape[1] * vocabulary)
    return select_extensions(found, sums.masked_fill(~chosen, -torch.inf), most)


def allocate_beam(
    open_: Bool[np.ndarray, "b E"], met: Int[np.ndarray, "b E"], required: int, width: int
) -> Bool[np.ndarray, "b E"]:
    """Return which extensions have a place in the beam: K per source (Post & Vilar 2018, section 3.3).

    Each number of met symbols, 0 to M, has K / (M + 1) places; the higher numbers share a remainder. The best other
    extensions take the places that a number cannot fill.

    Args:
        open_: Extensions that can be continued, in the order of falling scores.
        met: Number of required symbols that each extension has met.
        required: M, the number of required symbols.
        width: K, the beam size.
    """
    counts = np.arange(required + 1)
    quotas = width // len(counts) + (counts >= len(counts) - width % len(counts))
    of_count = open_[:, :, None] & (met[:, :, None] == counts)
    own = (of_count & (of_count.cumsum(axis=1) <= quotas)).any(axis=2)
    others = open_ & ~own
    free = width - own.sum(axis=1, keepdims=True)
    placed: Bool[np.ndarray, "b E"] = own | (others & (others.cumsum(axis=1) <= free))
    return placed


class BeamStep(NamedTuple):
    """One beam search step of all hypotheses: the decoder output before it, and the extensions considered."""

    sources: Int[np.ndarray, " b"]
    weights: Float[np.ndarray, "b k S"]
    top_ids: Int[np.ndarray, "b k C"]
    top_log_probabilities: Float[np.ndarray, "b k C"]
    parents: Int[np.ndarray, "b E"]
    """Hypothesis that each extension continues."""
    origins: Int[np.ndarray, "b E"]
    """Index of that hypothesis among the extensions of the previous step."""
    ids: Int[np.ndarray, "b E"]
    log_probabilities: Float[np.ndarray, "b E"]
    sums: Float[np.ndarray, "b E"]
    """Log-probability of each extended hypothesis, in falling order."""
    ended: Bool[np.ndarray, "b E"]
    """Extensions that are finished outputs."""
    kept: Bool[np.ndarray, "b E"]
    """Extensions that may be continued."""
    heads: Float[np.ndarray, "b k M S"] | None = None


class HypothesisEnd(NamedTuple):
    """The end of an output in the beam steps. Finished outputs sort before cut ones, then by falling score."""

    cut: bool
    loss: float
    """The negative score."""
    step: int
    place: int


class Hypothesis(NamedTuple):
    """One output of a source."""

    decoded: DecodedOutput
    score: float
    tree: SearchTreeIds | None = None
    leaf: int = -1
    """Node of the search tree in which it ends."""


def check_finite_outputs(outputs: Sequence[list[Hypothesis]], name: str) -> Sequence[list[Hypothesis]]:
    """Return the outputs of each source unchanged if their probabilities are finite.

    Non-finite numbers spread from attention, cells or scores to the probabilities of the output, or leave a search
    without any output.

    Args:
        outputs: The outputs of each source. Each source has at least one.
        name: The run folder of the network.

    Raises:
        NotFiniteError: A probability is not finite, or a source has no output.
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


def backtrace(
    layers: list[BeamStep], ends: list[list[HypothesisEnd]], lengths: list[int], lattice: bool = False
) -> list[list[Hypothesis]]:
    """Trace outputs from their ends back to their first symbols, all of them in one pass."""
    flat = [(source, end) for source, each in enumerate(ends) for end in each]
    sources = np.array([source for source, _ in flat], np.int64)
    last, places = (np.array(each, np.int64) for each in ([e.step for _, e in flat], [e.place for _, e in flat]))
    heads = 0 if layers[0].heads is None else layers[0].heads.shape[2]
    written = empty_outputs(len(flat), len(layers), layers[0].weights.shape[2], layers[0].top_ids.shape[2], heads)
    for step in range(len(layers) - 1, -1, -1):
        rows = (last >= step).nonzero()[0]
        places[rows] = _trace_back(layers[step], written, (rows, step), sources[rows], places[rows])
    grown = [_grow(layers, source, each) if lattice and ends[source] else None for source, each in enumerate(lengths)]
    found: list[list[Hypothesis]] = [[] for _ in ends]
    for at, (source, end) in enumerate(flat):
        decoded, tree = written.output(at, end.step + 1, lengths[source]), grown[source]
        leaf = -1 if tree is None else tree[1].get((end.step, end.place), -1)
        found[source].append(Hypothesis(decoded, -end.loss, None if tree is None else tree[0], leaf))
    return found


def _trace_back(
    layer: BeamStep,
    written: BatchOutputs,
    at: tuple[Int[np.ndarray, " n"], int],
    sources: Int[np.ndarray, " n"],
    places: Int[np.ndarray, " n"],
) -> Int[np.ndarray, " n"]:
    """Write one step of some outputs, and return the indices of their hypotheses in the previous step."""
    rows = np.searchsorted(layer.sources, sources)
    parents = layer.parents[rows, places]
    written.ids[at], written.log_probabilities[at] = layer.ids[rows, places], layer.log_probabilities[rows, places]
    written.weights[at], written.top_ids[at] = layer.weights[rows, parents], layer.top_ids[rows, parents]
    written.top_log_probabilities[at] = layer.top_log_probabilities[rows, parents]
    if written.heads is not None and layer.heads is not None:
        written.heads[at[0], :, at[1]] = layer.heads[rows, parents]
    origins: Int[np.ndarray, " n"] = layer.origins[rows, places]
    return origins


def _grow(layers: list[BeamStep], source: int, length: int) -> tuple[SearchTreeIds, dict[tuple[int, int], int]]:
    """Return the search tree of one source, and the node of each (step, extension) in it."""
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
    return SearchTreeIds(ids, parents, seen, likely, sums, tuple(fates), np.stack(attention)), nodes


class BeamConfig(NamedTuple):
    """Settings of one beam search."""

    spans: BatchLengthLimits
    width: int
    best: int = 1
    score: CandidateScorer = PLAIN
    constraints: Constraints = FREE
    lattice: bool = False
    """Keep all considered extensions of each source."""


class _BeamState(NamedTuple):
    """State of the beam: active sources with k hypotheses of each. The sum of an empty place is −∞."""

    sources: Int[np.ndarray, " b"]
    sums: Float[np.ndarray, "b k"]
    origins: Int[np.ndarray, "b k"]
    """Index of each hypothesis among the extensions of the previous step."""
    held: Bool[np.ndarray, "b k M"]
    """Required symbols that each hypothesis contains."""
    covered: Float[np.ndarray, "b k S"]
    """Sum of the attention weights of each position; 1 where coverage does not count, of size 0 without coverage."""
    symbols: Int[Tensor, " R"]
    running: Inference


@torch.inference_mode()
def beam(
    network: Network,
    source: Int[Tensor, "B S"],
    lengths: Int[Tensor, " B"],
    limits: LengthLimits,
    width: int,
    best: int = 1,
) -> list[list[DecodedOutput]]:
    """Return the best outputs of each source by beam search, best first.

    The other sources of the batch do not change an output. Cut outputs (maximum length without EOS) follow finished
    ones. A kernel runs all steps if one supports the model.

    Args:
        network: Trained network.
        source: Source ids.
        lengths: Source lengths.
        limits: Minimum and maximum output length.
        width: K, the beam size.
        best: Number of outputs per source, at most `width`.
    """
    running = encode_and_initialize(network, source, lengths)
    lengths = running.attendable.memory.lengths
    if use_kernel(running.decoder.request("beam", running.attendable)):
        rules = search_limits(network.vocabulary_size, limits)
        return _compiled(running, lengths.tolist(), rules, (width, best))
    found = stepwise(running, lengths, BeamConfig(batch_length_limits(limits, len(lengths)), width, best))
    return [[output.decoded for output in outputs] for outputs in found]


def _compiled(
    running: SingleModelInference, lengths: list[int], rules: SearchLimits, sizes: tuple[int, int]
) -> list[list[DecodedOutput]]:
    """Run all steps in a kernel."""
    from pellucid.kernels.autograd import search_beams  # Numba takes a second to import
    from pellucid.kernels.beam import BeamSizes

    prepared, found = running.attendable.kernel, list[list[DecodedOutput]]()
    assert prepared is not None, "a kernel that takes all steps takes each"
    for outputs, counts in search_beams(prepared, initial_kernel_state(running.state), rules, BeamSizes(*sizes)):
        own = lengths[len(found) : len(found) + len(counts)]
        rest = iter(split_outputs(outputs, np.repeat(own, counts).tolist()))
        found += [list(islice(rest, count)) for count in counts.tolist()]
    return found


@torch.inference_mode()
def stepwise(running: Inference, lengths: Int[Tensor, " B"], wanted: BeamConfig) -> list[list[Hypothesis]]:
    """Run beam search step by step on any `Inference`, with every score and constraint."""
    wanted = wanted._replace(width=constrained_beam_size(wanted.width, wanted.constraints))
    layers, room, closed = list[BeamStep](), np.full(len(lengths), wanted.width), None
    ends: list[list[HypothesisEnd]] = [[] for _ in range(len(lengths))]
    beam, finite = _start(running, lengths, wanted), np.ones(len(lengths), np.bool_)
    going: Bool[np.ndarray, " b"] = np.ones(len(lengths), np.bool_)
    while going.any():
        seen = beam.running.step(beam.symbols)
        closed = closed or suppressed_symbols(seen.logits.shape[1], lengths.device)
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
    return backtrace(layers, best, lengths.tolist(), wanted.lattice)


def _start(running: Inference, lengths: Int[Tensor, " B"], wanted: BeamConfig) -> _BeamState:
    """Return the initial beam: one empty hypothesis per source."""
    sums, origins = np.zeros((len(lengths), 1), np.float32), np.full((len(lengths), 1), -1)
    held, covered = wanted.constraints.first(len(lengths)), np.zeros((len(lengths), 1, 0), np.float32)
    return _BeamState(np.arange(len(lengths)), sums, origins, held, covered, torch.full_like(lengths, BOS), running)


def _uncovered(seen: StepOutput, lengths: Int[Tensor, " B"]) -> Float[np.ndarray, "B 1 S"]:
    """Return the initial coverage: 0 at source positions, 1 beyond the source's end."""
    weights = seen.weights
    outside = torch.arange(weights.shape[1], device=weights.device) >= lengths[:, None]
    return to_array((outside | (weights.sum(dim=1, keepdim=True) == 0)).to(torch.float32))[:, None]


def _masks(
    beam: _BeamState, seen: StepOutput, closed: SuppressedSymbols, wanted: BeamConfig, written: int
) -> SymbolMasks:
    """Return the symbols that cannot follow each hypothesis."""
    spans, each = wanted.spans, beam.sums.shape[1]
    spot = DecodePosition(beam.sources, written, spans.maximum[beam.sources] - written)
    blocked = wanted.constraints.blocked(spot, beam.held, seen.logits.shape[1])
    return SymbolMasks(closed.of(written, spans.minimum[beam.sources], each), blocked)


def _layer(
    beam: _BeamState, seen: StepOutput, masks: SymbolMasks, wanted: BeamConfig, room: Int[np.ndarray, " b"]
) -> BeamStep:
    """Extend all hypotheses, and divide the best extensions into finished and continuing ones."""
    found, inside = _extended(beam, seen, masks, wanted, room)
    shown = (to_array(seen.weights), *found.top)
    weights, top_ids, top_values = (each.reshape(len(room), -1, each.shape[-1]) for each in shown)
    heads = to_optional_array(seen.heads)
    more = inside & (found.ids != EOS)
    return BeamStep(
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
    beam: _BeamState, seen: StepOutput, masks: SymbolMasks, wanted: BeamConfig, room: Int[np.ndarray, " b"]
) -> tuple[BeamCandidates, Bool[np.ndarray, "b E"]]:
    """Return the extensions in the order of falling score, and which of them are possible."""
    considered, listed = wanted.width + beam.sums.shape[1], wanted.width * wanted.lattice
    if len(wanted.constraints.required):
        lacking = wanted.constraints.required, ~beam.held
        found = extend_constrained(seen.logits, masks, beam.sums, lacking, considered + listed)
        return found, np.isfinite(found.scores)
    allowed = (room if wanted.score.plain else np.full(len(room), considered))[:, None]
    found = extend_hypotheses(seen.logits, masks, beam.sums, int(allowed.max()) + listed)
    return found, np.isfinite(found.scores) & (np.arange(found.ids.shape[1]) < allowed)


def _kept(
    beam: _BeamState, found: BeamCandidates, more: Bool[np.ndarray, "b E"], wanted: BeamConfig
) -> Bool[np.ndarray, "b E"]:
    """Return which continuing extensions have a place in the beam."""
    required = len(wanted.constraints.required)
    if not required:
        return np.asarray(more & (more.cumsum(axis=1) <= wanted.width))
    held = np.take_along_axis(beam.held, found.parents[:, :, None], axis=1)
    met = wanted.constraints.holding(held, found.ids).sum(axis=2)
    return allocate_beam(more, met, required, wanted.width)


def _collect(
    beam: _BeamState, layer: BeamStep, ends: list[list[HypothesisEnd]], wanted: BeamConfig, steps: int
) -> Bool[np.ndarray, " b"]:
    """Record finished outputs, and return the sources whose best outputs can still change."""
    rows, places = layer.ended.nonzero()
    covered = _covered(beam, layer)
    ended = wanted.score.of(layer.sums, steps, np.take_along_axis(covered, layer.parents[:, :, None], axis=1))
    for row, place in zip(rows.tolist(), places.tolist(), strict=True):
        ends[layer.sources[row]].append(HypothesisEnd(False, -float(ended[row, place]), steps - 1, place))
    going: Bool[np.ndarray, " b"] = np.asarray(layer.kept.any(axis=1))
    highest = np.where(layer.kept, layer.sums, -np.inf).max(axis=1)
    bound = wanted.score.bound(highest, wanted.spans.maximum[layer.sources] + 1)
    for row, source in enumerate(layer.sources.tolist()):
        if not going[row] and (steps > wanted.spans.maximum[source] or not ends[source]):
            _cut(beam, layer, ends[source], row, (wanted.score, steps - 1))
        elif going[row] and len(ends[source]) >= wanted.best:
            going[row] = -sorted(ends[source])[wanted.best - 1].loss < float(bound[row])
    return going


def _covered(beam: _BeamState, layer: BeamStep) -> Float[np.ndarray, "b k S"]:
    """Return the coverage of every hypothesis, including this step."""
    if not beam.covered.shape[2]:
        return beam.covered
    covered: Float[np.ndarray, "b k S"] = beam.covered + layer.weights
    return covered


def _cut(
    beam: _BeamState, layer: BeamStep, ends: list[HypothesisEnd], row: int, scored: tuple[CandidateScorer, int]
) -> None:
    """Record the hypotheses of a source that reached the maximum length without EOS."""
    score, steps = scored
    own = slice(row, row + 1)
    finals = score.of(beam.sums[own], steps, beam.covered[own])[0]
    left = set(np.isfinite(beam.sums[row]).nonzero()[0].tolist()) - set(layer.parents[row][layer.ended[row]].tolist())
    ends += [HypothesisEnd(True, -float(finals[place]), steps - 1, int(beam.origins[row, place])) for place in left]


def _advance(
    beam: _BeamState, running: Inference, layer: BeamStep, going: Bool[np.ndarray, " b"], constraints: Constraints
) -> _BeamState:
    """Return the next beam. Finished sources are removed once there are many of them."""
    kept, dropping = layer.kept & going[:, None], bool(going.mean() < SHRINK)
    chosen = going if dropping else np.ones_like(going)
    width = int(kept.sum(axis=1).max())
    origins = np.argsort(~kept, axis=1, kind="stable")[:, :width]

    def of(values: np.ndarray) -> np.ndarray:
        """Select the kept extensions of the chosen sources."""
        taken: np.ndarray = np.take_along_axis(values, origins, axis=1)[chosen]
        return taken

    parents, device = of(layer.parents), beam.symbols.device
    hypotheses = torch.from_numpy((parents + chosen.nonzero()[0][:, None] * beam.sums.shape[1]).ravel()).to(device)
    sources = torch.from_numpy(chosen.nonzero()[0]).to(device) if dropping else None
    across = parents[:, :, None]
    return _BeamState(
        sources=layer.sources[chosen],
        sums=np.where(of(kept), of(layer.sums), np.float32(-np.inf)),
        origins=origins[chosen],
        held=constraints.holding(np.take_along_axis(beam.held[chosen], across, axis=1), of(layer.ids)),
        covered=np.take_along_axis(_covered(beam, layer)[chosen], across, axis=1),
        symbols=torch.from_numpy(of(layer.ids).ravel()).to(device),
        running=running.take(hypotheses, sources),
    )
