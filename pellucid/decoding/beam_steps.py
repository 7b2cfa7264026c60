"""The steps of beam search with constraints and coverage, for any backend that computes the decoder steps.

PyTorch is not needed to import this module: a `SearchInference` takes and returns arrays.

B batch, b active sources, k hypotheses of each before a step (1 before the first), R = b·k, K beam size, S source
positions, T steps, V vocabulary, C candidates kept for inspection, E extensions considered, M required symbols, N
attention heads, n outputs.

All hypotheses of all sources take each step together; the hypotheses of one source are adjacent. The memory is stored
once per source, whatever the beam size. Hypotheses at one step have equal length and are pruned by log-probability;
finished outputs are ranked by the `HypothesisScorer`. If the score is the log-probability itself, a hypothesis that
writes EOS leaves the beam, which then has one slot fewer (Sutskever et al. 2014, section 3.2). With any other score, a
longer output may still win, and with required symbols it may be needed: the beam keeps its size, and every EOS among
the best K + k extensions is an output. Required symbols divide the beam by the number of symbols already met
(`allocate_beam`).

Guarantee for every score: the search of a source ends only at the maximum length, or when no hypothesis is active, or
when no output that an active hypothesis can become could enter the best outputs (`HypothesisScorer.bound`). The outputs
are those of the same beam run to the maximum length. Only pruning loses hypotheses.

A source with a hypothesis of non-finite probability has no output (`check_finite_outputs`).
"""

from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from pellucid.data.vocabulary import BOS, EOS
from pellucid.decoding.constraints import NO_CONSTRAINTS, Constraints, DecodePosition
from pellucid.decoding.hypothesis import Hypothesis
from pellucid.decoding.hypothesis_scorer import LOG_PROBABILITY, HypothesisScorer
from pellucid.decoding.outputs import (
    MIN_ACTIVE_FRACTION,
    BatchLengthLimits,
    BatchOutputs,
    BeamExtensions,
    SymbolMasks,
    empty_outputs,
    suppressed_mask,
    with_early_end,
)
from pellucid.decoding.search_tree import SearchTreeIds
from pellucid.decoding.trace_schema import NodeStatus
from pellucid.shapes import Bool, Float, Int


class RequiredSymbols(NamedTuple):
    """Required symbols of a batch, and the hypotheses that do not contain them yet."""

    ids: Int[np.ndarray, " M"]
    """Target ids of the required symbols."""
    unmet: Bool[np.ndarray, "b k M"]
    """True if the hypothesis does not contain the symbol."""


@runtime_checkable
class SymbolScores(Protocol):
    """Logits of the next symbols of R hypotheses, ranked by the backend that computed them."""

    @property
    def num_symbols(self) -> int:
        """V, the number of symbols that can be written; with copying, source positions follow the vocabulary."""

    def extend(self, masks: SymbolMasks, cumulative_log_probs: Float[np.ndarray, "b k"], count: int) -> BeamExtensions:
        """Return the best extensions of each source's hypotheses.

        Args:
            masks: Symbols that cannot follow.
            cumulative_log_probs: Log-probability of each hypothesis.
            count: Number of extensions of each source; at most all of them are returned.
        """

    def extend_constrained(
        self,
        masks: SymbolMasks,
        cumulative_log_probs: Float[np.ndarray, "b k"],
        required: "RequiredSymbols",
        counts: "ExtensionCounts",
    ) -> tuple[BeamExtensions, Bool[np.ndarray, "b E"]]:
        """Return the extensions with required symbols, and which of them are possible.

        Args:
            masks: Symbols that cannot follow.
            cumulative_log_probs: Log-probability of each hypothesis.
            required: Required symbols, and the hypotheses that do not contain them.
            counts: Numbers of best extensions of each source.
        """


class SearchStep(NamedTuple):
    """Output of one decoder step of all hypotheses, as arrays."""

    scores: SymbolScores
    """Logits of the next symbols."""
    weights: Float[np.ndarray, "R S"]
    """Attention weights."""
    after: "SearchInference"
    """The hypotheses after this step."""
    heads: Float[np.ndarray, "R N S"] | None = None
    """Attention weights of each of N heads; None for one head, and for ensembles."""


@runtime_checkable
class SearchInference(Protocol):
    """Active hypotheses with their sources: an immutable value of any backend."""

    def step(self, symbols: Int[np.ndarray, " R"]) -> SearchStep:
        """Run one decoder step.

        Args:
            symbols: Previous symbol of each hypothesis.
        """

    def take(
        self, hypotheses: Int[np.ndarray, " R"], sources: Int[np.ndarray, " b"] | None = None
    ) -> "SearchInference":
        """Select hypotheses and sources, in the given order.

        Args:
            hypotheses: Rows of the selected hypotheses, equally many for each source and adjacent; a row may be
                repeated.
            sources: Rows of the sources that stay; None for all.
        """


class ExtensionCounts(NamedTuple):
    """Numbers of best extensions that a step considers. Each source has its own: others do not change its outputs."""

    allowed: Int[np.ndarray, " b"]
    """Number of extensions of each source that may end or continue."""
    listed: int
    """Number of further extensions, which only the search tree lists."""

    @property
    def total(self) -> int:
        """Greatest number of extensions of a source."""
        return int(self.allowed.max()) + self.listed

    def are_allowed(self, width: int) -> Bool[np.ndarray, "b E"]:
        """Return which of E = `width` extensions, in descending order, may end or continue.

        Args:
            width: Number of extensions of each source.
        """
        return np.arange(width) < self.allowed[:, None]

    def are_listed(self, width: int) -> Bool[np.ndarray, "b E"]:
        """Return which of E = `width` extensions, in descending order, are allowed or only listed.

        Args:
            width: Number of extensions of each source.
        """
        return np.arange(width) < self.allowed[:, None] + self.listed


def constrained_beam_size(beam_size: int, constraints: Constraints) -> int:
    """Return the beam size, at least M + 1: one slot for each number of required symbols contained, 0 to M.

    Args:
        beam_size: Requested beam size.
        constraints: Constraints of the batch.
    """
    return max(beam_size, len(constraints.required) + 1) if len(constraints.required) else beam_size


def allocate_beam(
    continuable: Bool[np.ndarray, "b E"], num_met: Int[np.ndarray, "b E"], num_required: int, beam_size: int
) -> Bool[np.ndarray, "b E"]:
    """Return which extensions stay in the beam.

    Each number of required symbols contained, 0 to M, has ⌊K / (M + 1)⌋ slots; a remainder goes to the highest numbers,
    one slot each. The best other extensions get the slots that a number cannot fill.

    Args:
        continuable: Extensions that can be continued, by descending score.
        num_met: Number of required symbols that each extension contains.
        num_required: M, the number of required symbols.
        beam_size: K, the number of slots per source.

    References:
        Post and Vilar 2018, section 3.3.
    """
    counts = np.arange(num_required + 1)
    quotas = beam_size // len(counts) + (counts >= len(counts) - beam_size % len(counts))
    of_count = continuable[:, :, None] & (num_met[:, :, None] == counts)
    within_quota = (of_count & (of_count.cumsum(axis=1) <= quotas)).any(axis=2)
    others = continuable & ~within_quota
    free_slots = beam_size - within_quota.sum(axis=1, keepdims=True)
    allocated: Bool[np.ndarray, "b E"] = within_quota | (others & (others.cumsum(axis=1) <= free_slots))
    return allocated


class BeamStep(NamedTuple):
    """One beam search step of all hypotheses: the decoder output before it, and the extensions considered."""

    sources: Int[np.ndarray, " b"]
    """Rows of the active sources in the batch, ascending."""
    weights: Float[np.ndarray, "b k S"]
    """Attention weights of each hypothesis."""
    top_ids: Int[np.ndarray, "b k C"]
    """Most probable next symbols of each hypothesis."""
    top_log_probabilities: Float[np.ndarray, "b k C"]
    """Their log-probabilities."""
    parents: Int[np.ndarray, "b E"]
    """Hypothesis, 0 to k − 1, that each extension continues."""
    origins: Int[np.ndarray, "b E"]
    """Index of that hypothesis among the extensions of the previous step; −1 at the first step."""
    ids: Int[np.ndarray, "b E"]
    """Symbol of each extension."""
    log_probabilities: Float[np.ndarray, "b E"]
    """Log-probability of that symbol."""
    cumulative_log_probs: Float[np.ndarray, "b E"]
    """Log-probability of each extended hypothesis, in descending order."""
    ended: Bool[np.ndarray, "b E"]
    """Extensions that are finished outputs."""
    kept: Bool[np.ndarray, "b E"]
    """Extensions that stay in the beam and may be continued."""
    heads: Float[np.ndarray, "b k N S"] | None = None
    """Attention weights of each of N heads; None for one head, and for ensembles."""


class HypothesisEnd(NamedTuple):
    """Last symbol of an output, among the extensions of a beam step.

    Ends are sorted as tuples: finished outputs come before truncated ones, then higher scores before lower ones.
    """

    truncated: bool
    """True if the output has no EOS at the maximum length."""
    negative_score: float
    """The negative score."""
    step: int
    """Index of the beam step."""
    extension: int
    """Index among the extensions of that step."""


def backtrace(
    steps: list[BeamStep], ends: list[list[HypothesisEnd]], lengths: list[int], search_tree: bool = False
) -> list[list[Hypothesis]]:
    """Trace outputs from their ends back to their first symbols, all of them in one pass over the steps.

    Args:
        steps: Beam steps of the search, at least one.
        ends: Ends of the outputs of each source, the best first.
        lengths: Source lengths.
        search_tree: Add the search tree to each hypothesis.

    Returns:
        The hypotheses of each source, in the order of their ends.
    """
    flat = [(source, end) for source, source_ends in enumerate(ends) for end in source_ends]
    sources = np.array([source for source, _ in flat], np.int64)
    last_steps = np.array([end.step for _, end in flat], np.int64)
    extensions = np.array([end.extension for _, end in flat], np.int64)
    heads = 0 if steps[0].heads is None else steps[0].heads.shape[2]
    outputs = empty_outputs(len(flat), len(steps), steps[0].weights.shape[2], steps[0].top_ids.shape[2], heads)
    for t in range(len(steps) - 1, -1, -1):
        rows = (last_steps >= t).nonzero()[0]
        extensions[rows] = _write_step(steps[t], outputs, (rows, t), sources[rows], extensions[rows])
    trees = [
        _search_tree(steps, source, length) if search_tree and ends[source] else None
        for source, length in enumerate(lengths)
    ]
    hypotheses: list[list[Hypothesis]] = [[] for _ in ends]
    for row, (source, end) in enumerate(flat):
        decoded = outputs.output(row, end.step + 1, lengths[source])
        tree = trees[source]
        leaf = -1 if tree is None else tree.nodes.get((end.step, end.extension), -1)
        hypotheses[source].append(Hypothesis(decoded, -end.negative_score, None if tree is None else tree.ids, leaf))
    return hypotheses


def _write_step(
    step: BeamStep,
    outputs: BatchOutputs,
    index: tuple[Int[np.ndarray, " n"], int],
    sources: Int[np.ndarray, " n"],
    extensions: Int[np.ndarray, " n"],
) -> Int[np.ndarray, " n"]:
    """Write step t of the output rows `index` = (rows, t), and return their extensions in the previous step."""
    rows = np.searchsorted(step.sources, sources)
    parents = step.parents[rows, extensions]
    outputs.ids[index] = step.ids[rows, extensions]
    outputs.log_probabilities[index] = step.log_probabilities[rows, extensions]
    outputs.weights[index] = step.weights[rows, parents]
    outputs.top_ids[index] = step.top_ids[rows, parents]
    outputs.top_log_probabilities[index] = step.top_log_probabilities[rows, parents]
    if outputs.heads is not None and step.heads is not None:
        outputs.heads[index[0], :, index[1]] = step.heads[rows, parents]
    origins: Int[np.ndarray, " n"] = step.origins[rows, extensions]
    return origins


class _SourceTree(NamedTuple):
    """Search tree of one source, and the node of each (step, extension) in it."""

    ids: SearchTreeIds
    nodes: dict[tuple[int, int], int]


def _search_tree(steps: list[BeamStep], source: int, length: int) -> _SourceTree:
    """Return the search tree of one source."""
    nodes: dict[tuple[int, int], int] = {}
    attention_rows: dict[tuple[int, int], int] = {}
    rows: list[tuple[int, int, int, float, float]] = []
    statuses, attention = list[NodeStatus](), list[Float[np.ndarray, " S"]]()
    for t, beam_step in enumerate(steps):
        row = int(np.searchsorted(beam_step.sources, source))
        if row == len(beam_step.sources) or beam_step.sources[row] != source:
            break
        for extension in np.isfinite(beam_step.cumulative_log_probs[row]).nonzero()[0].tolist():
            parent = int(beam_step.parents[row, extension])
            if (t, parent) not in attention_rows:
                attention_rows[t, parent] = len(attention)
                attention.append(beam_step.weights[row, parent, :length])
            nodes[t, extension] = len(rows)
            parent_node = nodes[t - 1, int(beam_step.origins[row, extension])] if t else -1
            log_probability = float(beam_step.log_probabilities[row, extension])
            cumulative_log_prob = float(beam_step.cumulative_log_probs[row, extension])
            symbol, weight_row = int(beam_step.ids[row, extension]), attention_rows[t, parent]
            rows.append((symbol, parent_node, weight_row, log_probability, cumulative_log_prob))
            statuses.append(
                "ended" if beam_step.ended[row, extension] else "kept" if beam_step.kept[row, extension] else "pruned"
            )
    ids, parents, weight_rows, log_probabilities, cumulative_log_probs = (
        np.array(column) for column in zip(*rows, strict=True)
    )
    tree = SearchTreeIds(
        ids, parents, weight_rows, log_probabilities, cumulative_log_probs, tuple(statuses), np.stack(attention)
    )
    return _SourceTree(tree, nodes)


class BeamConfig(NamedTuple):
    """Settings of one beam search."""

    limits: BatchLengthLimits
    beam_size: int
    """K, the maximum number of hypotheses per source."""
    nbest: int = 1
    """Maximum number of outputs per source."""
    scorer: HypothesisScorer = LOG_PROBABILITY
    """Score that ranks finished outputs; hypotheses are always pruned by log-probability."""
    constraints: Constraints = NO_CONSTRAINTS
    search_tree: bool = False
    """Add the search tree of the source to each hypothesis."""


class BeamState(NamedTuple):
    """State of the beam: active sources with k hypotheses of each. The log-probability of an empty place is −∞."""

    sources: Int[np.ndarray, " b"]
    cumulative_log_probs: Float[np.ndarray, "b k"]
    origins: Int[np.ndarray, "b k"]
    """Index of each hypothesis among the extensions of the previous step."""
    met: Bool[np.ndarray, "b k M"]
    """Required symbols that each hypothesis contains."""
    coverage: Float[np.ndarray, "b k S"]
    """Sum of the attention weights of each position; 1 where coverage does not count, of size 0 without coverage."""
    symbols: Int[np.ndarray, " R"]
    inference: SearchInference


def search_beam(
    inference: SearchInference, lengths: Int[np.ndarray, " B"], config: BeamConfig
) -> list[list[Hypothesis]]:
    """Run beam search step by step, with every score and constraint.

    Args:
        inference: One empty hypothesis per source.
        lengths: Number of encoder positions of each source.
        config: Settings of the search.

    Returns:
        At most `config.nbest` hypotheses of each source, the best first; outputs truncated at the maximum length follow
        the finished ones. A source with non-finite probabilities has none.
    """
    config = config._replace(beam_size=constrained_beam_size(config.beam_size, config.constraints))
    steps = list[BeamStep]()
    free_slots = np.full(len(lengths), config.beam_size)
    ends: list[list[HypothesisEnd]] = [[] for _ in range(len(lengths))]
    state = _initial_beam(inference, lengths, config)
    finite = np.ones(len(lengths), np.bool_)
    active: Bool[np.ndarray, " b"] = np.ones(len(lengths), np.bool_)
    while active.any():
        output = state.inference.step(state.symbols)
        if not steps and config.scorer.coverage_penalty:
            state = state._replace(coverage=_initial_coverage(output, lengths))
        masks = _symbol_masks(state, output.scores.num_symbols, config, len(steps))
        step = _beam_step(state, output, masks, config, free_slots[state.sources])
        finite[step.sources] &= ~np.isnan(step.top_log_probabilities[:, :, 0]).any(axis=1)
        step.kept[(config.limits.maximum[step.sources] <= len(steps)) | ~finite[step.sources]] = False
        steps.append(step)
        active = _record_finished(state, step, ends, config, len(steps))
        free_slots[step.sources] -= step.ended.sum(axis=1)
        if active.any():
            state = _next_beam(state, output.after, step, active, config.constraints)
    best_ends = [
        sorted(source_ends)[: config.nbest] if is_finite else []
        for source_ends, is_finite in zip(ends, finite, strict=True)
    ]
    return backtrace(steps, best_ends, lengths.tolist(), config.search_tree)


def _initial_beam(inference: SearchInference, lengths: Int[np.ndarray, " B"], config: BeamConfig) -> BeamState:
    """Return the initial beam: one empty hypothesis per source."""
    cumulative_log_probs = np.zeros((len(lengths), 1), np.float32)
    origins = np.full((len(lengths), 1), -1)
    met = config.constraints.initial_met(len(lengths))
    coverage = np.zeros((len(lengths), 1, 0), np.float32)
    return BeamState(
        np.arange(len(lengths)), cumulative_log_probs, origins, met, coverage, np.full(len(lengths), BOS), inference
    )


def _initial_coverage(output: SearchStep, lengths: Int[np.ndarray, " B"]) -> Float[np.ndarray, "B 1 S"]:
    """Return the initial coverage: 0 at source positions, 1 beyond the source's end."""
    weights = output.weights
    outside = np.arange(weights.shape[1]) >= lengths[:, None]
    covered = (outside | (weights.sum(axis=1, keepdims=True) == 0)).astype(np.float32)
    return np.asarray(covered[:, None])


def _symbol_masks(state: BeamState, num_symbols: int, config: BeamConfig, length: int) -> SymbolMasks:
    """Return the symbols that cannot follow each hypothesis."""
    limits = config.limits
    shape = (state.cumulative_log_probs.shape[1], num_symbols)
    suppressed = suppressed_mask(num_symbols)
    position = DecodePosition(state.sources, length, limits.maximum[state.sources] - length)
    blocked = config.constraints.blocked_symbols(position, state.met, num_symbols)
    early: Bool[np.ndarray, " b"] = length < limits.minimum[state.sources]
    if early.all():
        return SymbolMasks(suppressed, blocked, is_early=True)
    return SymbolMasks(suppressed, with_early_end(blocked, early, shape))


def _beam_step(
    state: BeamState, output: SearchStep, masks: SymbolMasks, config: BeamConfig, free_slots: Int[np.ndarray, " b"]
) -> BeamStep:
    """Extend all hypotheses, and divide the best extensions into finished and continuing ones."""
    extensions, possible = _extend_beam(state, output, masks, config, free_slots)
    by_row = (output.weights, extensions.top.ids, extensions.top.log_probabilities)
    weights, top_ids, top_values = (values.reshape(len(free_slots), -1, values.shape[-1]) for values in by_row)
    heads = output.heads
    continuable = possible & (extensions.ids != EOS)
    return BeamStep(
        sources=state.sources,
        weights=weights,
        top_ids=top_ids,
        top_log_probabilities=top_values,
        parents=extensions.parents,
        origins=np.take_along_axis(state.origins, extensions.parents, axis=1),
        ids=extensions.ids,
        log_probabilities=extensions.log_probabilities,
        cumulative_log_probs=extensions.cumulative_log_probs,
        ended=possible & ~continuable,
        kept=_continued(state, extensions, continuable, config),
        heads=None if heads is None else heads.reshape(len(free_slots), -1, *heads.shape[1:]),
    )


def _extend_beam(
    state: BeamState, output: SearchStep, masks: SymbolMasks, config: BeamConfig, free_slots: Int[np.ndarray, " b"]
) -> tuple[BeamExtensions, Bool[np.ndarray, "b E"]]:
    """Return the extensions by descending score, and which of them are possible.

    If outputs are ranked by log-probability and no symbol is required, a source has one extension per free slot, and
    otherwise K + k with k hypotheses of its own; beside a source with more hypotheses, it has empty places.
    """
    num_hypotheses = np.isfinite(state.cumulative_log_probs).sum(axis=1)
    is_reduced = config.scorer.is_log_probability and not len(config.constraints.required)
    allowed = free_slots if is_reduced else config.beam_size + num_hypotheses
    counts = ExtensionCounts(allowed, config.beam_size * config.search_tree)
    if len(config.constraints.required):
        required = RequiredSymbols(config.constraints.required, ~state.met)
        return output.scores.extend_constrained(masks, state.cumulative_log_probs, required, counts)
    extensions = output.scores.extend(masks, state.cumulative_log_probs, counts.total)
    width = extensions.ids.shape[1]
    listed = np.where(counts.are_listed(width), extensions.cumulative_log_probs, np.float32(-np.inf))
    extensions = extensions._replace(cumulative_log_probs=listed)
    return extensions, np.isfinite(listed) & counts.are_allowed(width)


def _continued(
    state: BeamState, extensions: BeamExtensions, continuable: Bool[np.ndarray, "b E"], config: BeamConfig
) -> Bool[np.ndarray, "b E"]:
    """Return which continuing extensions have a place in the beam."""
    num_required = len(config.constraints.required)
    if not num_required:
        return np.asarray(continuable & (continuable.cumsum(axis=1) <= config.beam_size))
    met = np.take_along_axis(state.met, extensions.parents[:, :, None], axis=1)
    num_met = config.constraints.update_met(met, extensions.ids).sum(axis=2)
    return allocate_beam(continuable, num_met, num_required, config.beam_size)


def _record_finished(
    state: BeamState, step: BeamStep, ends: list[list[HypothesisEnd]], config: BeamConfig, steps: int
) -> Bool[np.ndarray, " b"]:
    """Record finished outputs, and return the sources whose best outputs can still change."""
    rows, extensions = step.ended.nonzero()
    coverage = _updated_coverage(state, step)
    scores = config.scorer.score(
        step.cumulative_log_probs, steps, np.take_along_axis(coverage, step.parents[:, :, None], axis=1)
    )
    for row, extension in zip(rows.tolist(), extensions.tolist(), strict=True):
        ends[step.sources[row]].append(HypothesisEnd(False, -float(scores[row, extension]), steps - 1, extension))
    active: Bool[np.ndarray, " b"] = np.asarray(step.kept.any(axis=1))
    highest = np.where(step.kept, step.cumulative_log_probs, -np.inf).max(axis=1)
    bound = config.scorer.bound(highest, config.limits.maximum[step.sources] + 1)
    for row, source in enumerate(step.sources.tolist()):
        if not active[row] and (steps > config.limits.maximum[source] or not ends[source]):
            ends[source].extend(_truncated_ends(state, step, row, config.scorer, steps - 1))
        elif active[row] and len(ends[source]) >= config.nbest:
            active[row] = -sorted(ends[source])[config.nbest - 1].negative_score < float(bound[row])
    return active


def _updated_coverage(state: BeamState, step: BeamStep) -> Float[np.ndarray, "b k S"]:
    """Return the coverage of every hypothesis, including this step."""
    if not state.coverage.shape[2]:
        return state.coverage
    coverage: Float[np.ndarray, "b k S"] = state.coverage + step.weights
    return coverage


def _truncated_ends(
    state: BeamState, step: BeamStep, row: int, scorer: HypothesisScorer, steps: int
) -> list[HypothesisEnd]:
    """Return the ends of the hypotheses of a source that have no EOS after the maximum number of steps."""
    source = slice(row, row + 1)
    scores = scorer.score(state.cumulative_log_probs[source], steps, state.coverage[source])[0]
    finite = set(np.isfinite(state.cumulative_log_probs[row]).nonzero()[0].tolist())
    unfinished = finite - set(step.parents[row][step.ended[row]].tolist())
    return [HypothesisEnd(True, -float(scores[k]), steps - 1, int(state.origins[row, k])) for k in unfinished]


def _next_beam(
    state: BeamState,
    inference: SearchInference,
    step: BeamStep,
    active: Bool[np.ndarray, " b"],
    constraints: Constraints,
) -> BeamState:
    """Return the next beam. Finished sources are removed once there are many of them."""
    kept = step.kept & active[:, None]
    dropping = bool(active.mean() < MIN_ACTIVE_FRACTION)
    selected = active if dropping else np.ones_like(active)
    width = int(kept.sum(axis=1).max())
    origins = np.argsort(~kept, axis=1, kind="stable")[:, :width]

    def select(values: np.ndarray) -> np.ndarray:
        """Select the kept extensions of the selected sources.

        Args:
            values: Values of all extensions.
        """
        result: np.ndarray = np.take_along_axis(values, origins, axis=1)[selected]
        return result

    parents = select(step.parents)
    rows = selected.nonzero()[0]
    hypotheses = (parents + rows[:, None] * state.cumulative_log_probs.shape[1]).ravel()
    across = parents[:, :, None]
    return BeamState(
        sources=step.sources[selected],
        cumulative_log_probs=np.where(select(kept), select(step.cumulative_log_probs), np.float32(-np.inf)),
        origins=origins[selected],
        met=constraints.update_met(np.take_along_axis(state.met[selected], across, axis=1), select(step.ids)),
        coverage=np.take_along_axis(_updated_coverage(state, step)[selected], across, axis=1),
        symbols=select(step.ids).ravel(),
        inference=inference.take(hypotheses, rows if dropping else None),
    )
