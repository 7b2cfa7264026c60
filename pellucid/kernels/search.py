"""Greedy and beam search of a whole batch in one call, and the ranking of symbols and hypotheses in both.

The rules are those of decoding/greedy.py and decoding/beam_search.py.

N sources, b of them active, k hypotheses of each before a step, K after it (the width of a step), R = b·k hypotheses,
S source positions, T steps, V vocabulary, C candidates recorded for inspection, L layers, H hidden, W twice the beam
size: the most hypotheses that a source finishes.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeVar

import numpy as np

from pellucid.data.vocabulary import BOS, EOS
from pellucid.error_messages import describe_value
from pellucid.errors import ArgumentError
from pellucid.kernels.argument_checks import (
    check_boolean,
    check_class,
    check_extensions,
    check_fields,
    check_initial_state,
    check_limits,
    check_ranking,
)
from pellucid.kernels.arithmetic import ZERO, Flat, copy_, exp, max_value
from pellucid.kernels.compilation import njit
from pellucid.kernels.decoder_step import (
    PreparedDecoder,
    SearchAttention,
    SearchState,
    TransposedOutputLayer,
    prepare_decoder_numpy,
    search_state,
    step,
)
from pellucid.kernels.runtime import num_slices, split_rows, thread_map
from pellucid.kernels.types import (
    DOT_PRODUCT,
    GRU,
    AttentionInputs,
    DecoderParameters,
    KernelDecoderState,
    KernelSearchOutput,
    OutputLayerParameters,
    SearchLimits,
)
from pellucid.kernels.unroll import DecoderCellParameters
from pellucid.shapes import Bool, Float, Int

IMPOSSIBLE = np.float32(-np.inf)
Settings = TypeVar("Settings")
Output = TypeVar("Output")


def rank_symbols(
    logits: Float[np.ndarray, "R V"], suppressed: Bool[np.ndarray, " V"], count: int
) -> tuple[Int[np.ndarray, "R C"], Float[np.ndarray, "R C"]]:
    """Return the most probable symbols of each hypothesis in descending order, and their log-probabilities.

    Of equal symbols, the one with the lower id comes first. A NaN among the logits makes a row's log-probabilities NaN.

    Args:
        logits: Logits of each hypothesis.
        suppressed: Symbols that have probability zero, that is the log-probability −∞.
        count: C, from 1 to V.

    Raises:
        ArgumentError: An argument has a wrong type, the shapes do not fit each other, or the count is out of range.
    """
    check_ranking(logits, suppressed, count)
    return _rank_symbols(logits, suppressed, count)


@njit
def _rank_symbols(
    logits: Float[np.ndarray, "R V"], suppressed: Bool[np.ndarray, " V"], count: int
) -> tuple[Int[np.ndarray, "R C"], Float[np.ndarray, "R C"]]:
    """Return `rank_symbols` of arguments that fit."""
    ids = np.zeros((logits.shape[0], count), np.int64)
    values = np.empty((logits.shape[0], count), np.float32)
    log_probabilities = _log_probabilities(logits, suppressed)
    for row in range(logits.shape[0]):
        _topk(log_probabilities[row], ids[row], values[row])
    return ids, values


def rank_extensions(
    logits: Float[np.ndarray, "R V"],
    suppressed: Bool[np.ndarray, " V"],
    cumulative_log_probs: Float[np.ndarray, "b k"],
    counts: tuple[int, int],
    is_early: bool,
) -> tuple[
    Int[np.ndarray, "R C"],
    Float[np.ndarray, "R C"],
    Int[np.ndarray, "b K"],
    Float[np.ndarray, "b K"],
    Float[np.ndarray, "b K"],
]:
    """Return the results of `rank_symbols`, and the best K of the k·V extensions of each source.

    An extension's number is its hypothesis's index within the source, times V, plus its symbol. None of the best K
    extends a hypothesis by a symbol that is not among that hypothesis's own best K, or K + 1 if EOS is too early.

    Args:
        logits: Logits of each hypothesis.
        suppressed: Symbols that have probability zero.
        cumulative_log_probs: Sum of the log-probabilities of each hypothesis.
        counts: C, from 1 to V, and K, from 1 to k·V.
        is_early: True before the minimum length: EOS keeps its probability, but an extension by it has −∞.

    Returns:
        Candidate ids and their log-probabilities; numbers of the extensions in descending order of
        their cumulative log-probabilities, log-probabilities of their symbols, and the cumulative ones.

    Raises:
        ArgumentError: An argument has a wrong type, the shapes do not fit each other, or a count is out of range.
    """
    if type(counts) is not tuple or len(counts) != 2:
        raise ArgumentError(f"counts: expected two whole numbers, got {describe_value(counts)}")
    check_boolean("is_early", is_early)
    check_ranking(logits, suppressed, counts[0])
    check_extensions(logits, cumulative_log_probs, counts[1])
    return _rank_extensions(logits, suppressed, cumulative_log_probs, counts, is_early)


@njit
def _rank_extensions(
    logits: Float[np.ndarray, "R V"],
    suppressed: Bool[np.ndarray, " V"],
    cumulative_log_probs: Float[np.ndarray, "b k"],
    counts: tuple[int, int],
    is_early: bool,
) -> tuple[
    Int[np.ndarray, "R C"],
    Float[np.ndarray, "R C"],
    Int[np.ndarray, "b K"],
    Float[np.ndarray, "b K"],
    Float[np.ndarray, "b K"],
]:
    """Return `rank_extensions` of arguments that fit."""
    sources, num_hypotheses = cumulative_log_probs.shape
    vocabulary = logits.shape[1]
    num_recorded, width = counts
    num_extensions = min(width + 1 if is_early else width, vocabulary)
    ids, values = _rank_symbols(logits, suppressed, max(num_recorded, num_extensions))
    numbers = np.zeros((sources, width), np.int64)
    log_probabilities = np.empty((sources, width), np.float32)
    best_log_probs, indices = np.empty((sources, width), np.float32), np.empty(width, np.int64)
    extended_log_probs = np.empty(num_hypotheses * num_extensions, np.float32)
    for source in range(sources):
        first = source * num_hypotheses
        for hypothesis in range(num_hypotheses):
            for candidate in range(num_extensions):
                too_early = is_early and ids[first + hypothesis, candidate] == EOS
                extended_log_probs[hypothesis * num_extensions + candidate] = (
                    IMPOSSIBLE
                    if too_early
                    else values[first + hypothesis, candidate] + cumulative_log_probs[source, hypothesis]
                )
        _topk(extended_log_probs, indices, best_log_probs[source])
        for slot in range(width):
            hypothesis, candidate_rank = indices[slot] // num_extensions, indices[slot] % num_extensions
            numbers[source, slot] = hypothesis * vocabulary + ids[first + hypothesis, candidate_rank]
            log_probabilities[source, slot] = values[first + hypothesis, candidate_rank]
    return ids[:, :num_recorded].copy(), values[:, :num_recorded].copy(), numbers, log_probabilities, best_log_probs


@njit
def _log_probabilities(
    logits: Float[np.ndarray, "R V"], suppressed: Bool[np.ndarray, " V"]
) -> Float[np.ndarray, "R V"]:
    """Return the log-softmax over the symbols that are not suppressed; −∞ for suppressed ones.

    All exponentials are in one loop, which fills the vectors even if there are few symbols.
    """
    log_probabilities = logits.copy()
    for symbol in range(suppressed.shape[0]):
        if suppressed[symbol]:
            log_probabilities[:, symbol] = IMPOSSIBLE
    for row in range(logits.shape[0]):
        log_probabilities[row] -= max_value(log_probabilities[row])
    exponentials = np.empty(log_probabilities.size, np.float32)
    flat = log_probabilities.ravel()
    for i in range(flat.shape[0]):
        exponentials[i] = exp(flat[i])
    row_exponentials = exponentials.reshape(log_probabilities.shape)
    for row in range(logits.shape[0]):
        total = ZERO
        for symbol in range(suppressed.shape[0]):
            total += ZERO if suppressed[symbol] else row_exponentials[row, symbol]
        norm = np.log(total)
        for symbol in range(suppressed.shape[0]):
            log_probabilities[row, symbol] -= norm
    return log_probabilities


@njit
def _topk(values: Flat, ids: Int[np.ndarray, " C"], best: Flat) -> None:
    """Write the greatest values in descending order, and their indices; equal values keep their order."""
    count = best.shape[0]
    size = 0
    for index in range(values.shape[0]):
        value = values[index]
        if size == count and value <= best[count - 1]:
            continue
        slot = min(size, count - 1)
        while slot > 0 and best[slot - 1] < value:
            best[slot], ids[slot] = best[slot - 1], ids[slot - 1]
            slot -= 1
        best[slot], ids[slot] = value, index
        size = min(size + 1, count)


@njit
def _select_sources(attention: SearchAttention, indices: Int[np.ndarray, " R"]) -> SearchAttention:
    """Return the attention with a selection of the active sources; keys and memory are not copied.

    Args:
        attention: Attention score, keys and memory.
        indices: Indices among the active sources.
    """
    return SearchAttention(
        attention.scorer, attention.keys, attention.memory, attention.lengths, attention.rows[indices]
    )


@njit
def _select_rows(states: Float[np.ndarray, "L R H"], rows: Int[np.ndarray, " r"]) -> Float[np.ndarray, "L r H"]:
    """Return the states of some hypotheses in the order of `rows`; an array without hypotheses is returned itself."""
    if states.shape[1] == 0:
        return states
    selected = np.empty((states.shape[0], rows.shape[0], states.shape[2]), np.float32)
    for layer in range(states.shape[0]):
        for index in range(rows.shape[0]):
            copy_(selected[layer, index], states[layer, rows[index]])
    return selected


@njit
def _empty_output(shape: tuple[int, int], positions: int, candidates: int) -> KernelSearchOutput:
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


class GreedyRecord(NamedTuple):
    """One step: the active rows, their attention weights, their candidates and their chosen symbols."""

    rows: Int[np.ndarray, " R"]
    weights: Float[np.ndarray, "R S"]
    top_ids: Int[np.ndarray, "R C"]
    top_log_probabilities: Float[np.ndarray, "R C"]
    ids: Int[np.ndarray, " R"]
    log_probabilities: Float[np.ndarray, " R"]


def greedy_search_numpy(
    decoder: PreparedDecoder, initial_state: KernelDecoderState, limits: SearchLimits
) -> list[KernelSearchOutput]:
    """Return the outputs of greedy search for all sources: one result per thread, each for a slice of the sources.

    The slices are consecutive and in the order of the sources.

    Args:
        decoder: The decoder and its sources, all of them active.
        initial_state: State before the first step.
        limits: Suppressed symbols, length limits and number of recorded candidates.

    Raises:
        ArgumentError: An argument has a wrong type, or the state or the limits do not fit the decoder.
    """
    _check_search(decoder, initial_state, limits)
    task = partial(_search_rows, greedy_search_slice, decoder, search_state(initial_state), limits)
    return thread_map(task, split_rows(len(initial_state.hidden), num_slices(len(initial_state.hidden))))


def _check_search(decoder: PreparedDecoder, initial_state: KernelDecoderState, limits: SearchLimits) -> None:
    """Raise `ArgumentError` unless the state and the limits of a search fit the decoder."""
    check_class("decoder", decoder, PreparedDecoder)
    attention, parameters = decoder.attention, decoder.parameters
    shape = len(attention.rows), len(parameters.upper.inputs) + 1, parameters.recurrent.shape[2]
    positions = attention.memory.shape[1] if attention.scorer.layout.reads_weights else None
    check_initial_state(parameters.layout, positions, initial_state, shape)
    check_limits(limits, len(decoder.output_layer.bias))


def _search_rows(
    steps: Callable[[DecoderCellParameters, TransposedOutputLayer, SearchAttention, SearchState, Settings], Output],
    decoder: PreparedDecoder,
    initial_state: SearchState,
    settings: Settings,
    rows: slice,
) -> Output:
    """Search one slice of the rows with all steps of greedy or beam search."""
    attention = decoder.attention._replace(rows=decoder.attention.rows[rows])
    return steps(decoder.parameters, decoder.output_layer, attention, initial_state.slice_rows(rows), settings)


@njit
def greedy_search_slice(
    parameters: DecoderCellParameters,
    output_layer: TransposedOutputLayer,
    attention: SearchAttention,
    initial_state: SearchState,
    limits: SearchLimits,
) -> KernelSearchOutput:
    """Take all steps of greedy search for one slice of the sources, in the calling thread.

    An output ends with EOS, or is truncated after `limits.max_length` symbols; EOS may follow these as one more step.

    Args:
        parameters: Parameters of the cells.
        output_layer: Parameters of the output layer.
        attention: Attention score, keys and memory.
        initial_state: State before the first step.
        limits: Suppressed symbols, length limits and number of recorded candidates.
    """
    rows = np.arange(initial_state.hidden.shape[1])
    hidden, cell_state, attention_state = initial_state
    symbols = np.full(rows.shape[0], BOS)
    steps = np.zeros(rows.shape[0], np.int64)
    records = []
    for length in range(limits.max_length + 1):
        active = _select_sources(attention, rows)
        hidden, cell_state, _, attn_weights, logits, _ = step(
            parameters, output_layer, active, symbols, SearchState(hidden, cell_state, attention_state)
        )
        ids, values = _rank_symbols(logits, limits.suppressed, limits.num_candidates)
        symbols, log_probabilities = _choose_symbols(ids, values, length < limits.min_length)
        records.append(GreedyRecord(rows, attn_weights, ids, values, symbols, log_probabilities))
        is_finished = symbols == EOS
        for index in range(rows.shape[0]):
            if is_finished[index] or length < limits.max_length:
                steps[rows[index]] = length + 1
        if is_finished.any():
            unfinished = np.flatnonzero(~is_finished)
            if unfinished.shape[0] == 0:
                break
            rows, symbols = rows[unfinished], symbols[unfinished]
            hidden, cell_state = _select_rows(hidden, unfinished), _select_rows(cell_state, unfinished)
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
def _stack_steps(records: list[GreedyRecord], steps: Int[np.ndarray, " N"]) -> KernelSearchOutput:
    """Return the steps of each row."""
    outputs = _empty_output((steps.shape[0], len(records)), records[0].weights.shape[1], records[0].top_ids.shape[1])
    outputs.steps[:] = steps
    for t in range(len(records)):
        rows, weights, top_ids, top_values, ids, values = records[t]
        for index in range(rows.shape[0]):
            row = rows[index]
            outputs.weights[row, t] = weights[index]
            outputs.top_ids[row, t], outputs.top_log_probabilities[row, t] = top_ids[index], top_values[index]
            outputs.ids[row, t], outputs.log_probabilities[row, t] = ids[index], values[index]
    return outputs


class BeamSizes(NamedTuple):
    """Beam size, and the number of outputs to return for each source, at most the beam size."""

    beam_size: int
    nbest: int


class BeamSettings(NamedTuple):
    """Limits and sizes of a beam search."""

    limits: SearchLimits
    sizes: BeamSizes


class BeamRecord(NamedTuple):
    """One step of all hypotheses: weights and candidates of each, and the best K extensions of each source."""

    sources: Int[np.ndarray, " b"]
    weights: Float[np.ndarray, "R S"]
    top_ids: Int[np.ndarray, "R C"]
    top_log_probabilities: Float[np.ndarray, "R C"]
    parents: Int[np.ndarray, "b K"]
    ids: Int[np.ndarray, "b K"]
    log_probabilities: Float[np.ndarray, "b K"]
    cumulative_log_probs: Float[np.ndarray, "b K"]


class FinishedHypotheses(NamedTuple):
    """Step and beam index at which the outputs of each source end, best first; those without EOS last."""

    counts: Int[np.ndarray, " N"]
    negative_log_probs: Float[np.ndarray, "N W"]
    """Minus the cumulative log-probability of each."""
    steps: Int[np.ndarray, "N W"]
    beam_indices: Int[np.ndarray, "N W"]


class FinishedHypothesis(NamedTuple):
    """One finished hypothesis: minus its log-probability, and the step and the beam index at which it ends."""

    negative_log_prob: np.float32
    """Minus the cumulative log-probability."""
    step: int
    beam_index: int


class KernelBeamOutput(NamedTuple):
    """Outputs of a slice of the sources, those of a source consecutive and best first, and their number per source.

    A source has no outputs if a log-probability of its hypotheses was NaN.
    """

    outputs: KernelSearchOutput
    counts: Int[np.ndarray, " N"]


def beam_search_numpy(
    decoder: PreparedDecoder, initial_state: KernelDecoderState, limits: SearchLimits, sizes: BeamSizes
) -> list[KernelBeamOutput]:
    """Return the outputs of beam search for all sources: one result per thread, each for a slice of the sources.

    The slices are consecutive and in the order of the sources.

    Args:
        decoder: The decoder and its sources, all of them active.
        initial_state: State before the first step.
        limits: Suppressed symbols, length limits and number of recorded candidates.
        sizes: Beam size and number of outputs.

    Raises:
        ArgumentError: An argument has a wrong type, the state or the limits do not fit the decoder, or a size is out
            of range.
    """
    _check_search(decoder, initial_state, limits)
    check_fields("sizes", sizes, BeamSizes)
    if not 1 <= sizes.nbest <= sizes.beam_size:
        raise ArgumentError(f"sizes: expected 1 <= nbest <= beam_size, got {sizes.nbest} and {sizes.beam_size}")
    rows = len(initial_state.hidden)
    settings = BeamSettings(limits, sizes)
    task = partial(_search_rows, beam_search_slice, decoder, search_state(initial_state), settings)
    return thread_map(task, split_rows(rows, min(rows, num_slices(rows * sizes.beam_size))))


@njit
def beam_search_slice(
    parameters: DecoderCellParameters,
    output_layer: TransposedOutputLayer,
    attention: SearchAttention,
    initial_state: SearchState,
    settings: BeamSettings,
) -> KernelBeamOutput:
    """Take steps for one slice of the sources until no hypothesis can still be among the best outputs, in one thread.

    Args:
        parameters: Parameters of the cells.
        output_layer: Parameters of the output layer.
        attention: Attention score, keys and memory.
        initial_state: State before the first step.
        settings: Limits and sizes of the search.
    """
    limits = settings.limits
    sizes = settings.sizes
    hidden, cell_state, attention_state = initial_state
    count = hidden.shape[1]
    active = np.arange(count)
    cumulative_log_probs = np.zeros((count, 1), np.float32)
    symbols = np.full(count, BOS)
    free_slots = np.full(count, sizes.beam_size)
    finished = _empty_finished(count, 2 * sizes.beam_size)
    records = []
    for length in range(limits.max_length + 1):
        active_attention = _select_sources(attention, active)
        hidden, cell_state, _, attn_weights, logits, _ = step(
            parameters, output_layer, active_attention, symbols, SearchState(hidden, cell_state, attention_state)
        )
        width = min(free_slots[active].max(), cumulative_log_probs.shape[1] * logits.shape[1])
        ids, values, numbers, log_probabilities, extended_log_probs = _rank_extensions(
            logits, limits.suppressed, cumulative_log_probs, (limits.num_candidates, width), length < limits.min_length
        )
        parents, extension_ids = numbers // logits.shape[1], numbers % logits.shape[1]
        record = BeamRecord(
            active, attn_weights, ids, values, parents, extension_ids, log_probabilities, extended_log_probs
        )
        records.append(record)
        is_active = _collect(record, finished, free_slots, length, sizes.nbest)
        _drop_non_finite(record, cumulative_log_probs, finished, is_active)
        if length == limits.max_length:
            _collect_unfinished(record, cumulative_log_probs, finished, length)
            break
        if not is_active.any():
            break
        parent_rows = _parent_rows(record, is_active, cumulative_log_probs.shape[1])
        active = active[is_active]
        cumulative_log_probs = extended_log_probs[is_active]
        symbols = extension_ids[is_active].ravel()
        hidden, cell_state = _select_rows(hidden, parent_rows), _select_rows(cell_state, parent_rows)
        attention_state = attn_weights[parent_rows] if attention_state.shape[0] else attention_state
    return _backtrace_outputs(records, finished, sizes.nbest)


@njit
def _empty_finished(sources: int, capacity: int) -> FinishedHypotheses:
    """Return arrays for finished hypotheses, without entries."""
    shape = (sources, capacity)
    negative_log_probs, zeros = np.zeros(shape, np.float32), np.zeros(shape, np.int64)
    return FinishedHypotheses(np.zeros(sources, np.int64), negative_log_probs, zeros, zeros.copy())


@njit
def _collect(
    record: BeamRecord,
    finished: FinishedHypotheses,
    free_slots: Int[np.ndarray, " N"],
    step: int,
    nbest: int,
) -> Bool[np.ndarray, " b"]:
    """Record the hypotheses that end with EOS, and return which sources continue; EOS becomes −∞ in the record."""
    is_active = np.zeros(record.sources.shape[0], np.bool_)
    for row in range(record.sources.shape[0]):
        source = record.sources[row]
        log_probs = record.cumulative_log_probs[row]
        best_log_prob = IMPOSSIBLE
        log_probs[free_slots[source] :] = IMPOSSIBLE
        for beam_index in range(log_probs.shape[0]):
            if record.ids[row, beam_index] == EOS and log_probs[beam_index] > IMPOSSIBLE:
                _insert_finished(finished, source, 0, FinishedHypothesis(-log_probs[beam_index], step, beam_index))
                free_slots[source] -= 1
                log_probs[beam_index] = IMPOSSIBLE
            best_log_prob = max(best_log_prob, log_probs[beam_index])
        has_enough = finished.counts[source] >= nbest
        is_beaten = has_enough and -finished.negative_log_probs[source, nbest - 1] >= best_log_prob
        is_active[row] = best_log_prob > IMPOSSIBLE and not is_beaten
    return is_active


@njit
def _drop_non_finite(
    record: BeamRecord,
    previous_log_probs: Float[np.ndarray, "b k"],
    finished: FinishedHypotheses,
    is_active: Bool[np.ndarray, " b"],
) -> None:
    """Remove all outputs and hypotheses of a source if a hypothesis has probabilities that are not finite."""
    num_hypotheses = previous_log_probs.shape[1]
    for row in range(record.sources.shape[0]):
        if np.isnan(record.top_log_probabilities[row * num_hypotheses : (row + 1) * num_hypotheses, 0]).any():
            finished.counts[record.sources[row]], is_active[row] = 0, False
            previous_log_probs[row] = IMPOSSIBLE


@njit
def _insert_finished(finished: FinishedHypotheses, source: int, first: int, hypothesis: FinishedHypothesis) -> None:
    """Insert a hypothesis among a source's entries from `first` on; equal scores keep their order."""
    negative_log_probs = finished.negative_log_probs[source]
    steps, beam_indices = finished.steps[source], finished.beam_indices[source]
    index = finished.counts[source]
    while index > first and negative_log_probs[index - 1] > hypothesis.negative_log_prob:
        negative_log_probs[index] = negative_log_probs[index - 1]
        steps[index], beam_indices[index] = steps[index - 1], beam_indices[index - 1]
        index -= 1
    negative_log_probs[index] = hypothesis.negative_log_prob
    steps[index] = hypothesis.step
    beam_indices[index] = hypothesis.beam_index
    finished.counts[source] += 1


@njit
def _collect_unfinished(
    record: BeamRecord, previous_log_probs: Float[np.ndarray, "b k"], finished: FinishedHypotheses, step: int
) -> None:
    """Record the hypotheses that have the maximum length and do not end with EOS."""
    for row in range(record.sources.shape[0]):
        source = record.sources[row]
        num_finished = finished.counts[source]
        is_unfinished = np.isfinite(previous_log_probs[row])
        for entry in range(num_finished):
            if finished.steps[source, entry] == step:
                is_unfinished[record.parents[row, finished.beam_indices[source, entry]]] = False
        for beam_index in range(is_unfinished.shape[0]):
            if is_unfinished[beam_index]:
                hypothesis = FinishedHypothesis(-previous_log_probs[row, beam_index], step - 1, beam_index)
                _insert_finished(finished, source, num_finished, hypothesis)


@njit
def _parent_rows(record: BeamRecord, is_active: Bool[np.ndarray, " b"], num_hypotheses: int) -> Int[np.ndarray, " R"]:
    """Return the rows of the parents of the hypotheses that continue, among all rows of the step."""
    rows = np.flatnonzero(is_active)
    parent_rows = np.empty((rows.shape[0], record.parents.shape[1]), np.int64)
    for index in range(rows.shape[0]):
        parent_rows[index] = record.parents[rows[index]] + rows[index] * num_hypotheses
    return parent_rows.ravel()


@njit
def _backtrace_outputs(records: list[BeamRecord], finished: FinishedHypotheses, best: int) -> KernelBeamOutput:
    """Return the best outputs of each source, each traced back from its end to its first symbol."""
    counts = np.minimum(finished.counts, best)
    positions, candidates = (records[0].weights.shape[1], records[0].top_ids.shape[1])
    total = counts.sum()
    outputs = _empty_output((total, len(records)), positions, candidates)
    sources, beam_indices = np.empty(total, np.int64), np.empty(total, np.int64)
    output = 0
    for source in range(counts.shape[0]):
        for entry in range(counts[source]):
            sources[output], beam_indices[output] = source, finished.beam_indices[source, entry]
            outputs.steps[output] = finished.steps[source, entry] + 1
            output += 1
    for number in range(len(records) - 1, -1, -1):
        _backtrace_step(records[number], outputs, number, sources, beam_indices)
    return KernelBeamOutput(outputs, counts)


@njit
def _backtrace_step(
    record: BeamRecord,
    outputs: KernelSearchOutput,
    step: int,
    sources: Int[np.ndarray, " n"],
    beam_indices: Int[np.ndarray, " n"],
) -> None:
    """Write one step of all outputs that have it; `beam_indices` become those of their parents."""
    num_hypotheses = record.weights.shape[0] // record.sources.shape[0]
    rows = np.searchsorted(record.sources, sources)
    for output in range(sources.shape[0]):
        if step < outputs.steps[output]:
            row, beam_index = rows[output], beam_indices[output]
            parent = record.parents[row, beam_index]
            parent_row = row * num_hypotheses + parent
            outputs.ids[output, step] = record.ids[row, beam_index]
            outputs.log_probabilities[output, step] = record.log_probabilities[row, beam_index]
            outputs.weights[output, step] = record.weights[parent_row]
            outputs.top_ids[output, step] = record.top_ids[parent_row]
            outputs.top_log_probabilities[output, step] = record.top_log_probabilities[parent_row]
            beam_indices[output] = parent


def _smallest_search() -> tuple[PreparedDecoder, KernelDecoderState, SearchLimits]:
    """Return the smallest example of a search: decoder, initial state and limits."""
    empty = np.zeros((3, 1), np.float32)
    square = np.zeros((1, 1), np.float32)
    one = np.ones(1, np.int64)
    projected_inputs, column = np.zeros((4, 3), np.float32), np.zeros((4, 1), np.float32)
    parameters = DecoderParameters(GRU, DOT_PRODUCT, projected_inputs, square[0], empty, empty)
    output_layer = OutputLayerParameters(column, column, column[:, 0])
    inputs = AttentionInputs(square[None], square[None], one)
    limits = SearchLimits(np.zeros(4, np.bool_), 0, 1, 1)
    return prepare_decoder_numpy(parameters, output_layer, inputs), KernelDecoderState(square[None], None, None), limits


def warm_up() -> None:
    """Compile every kernel of this module by running the smallest examples."""
    logits, suppressed = np.zeros((1, 4), np.float32), np.zeros(4, np.bool_)
    rank_symbols(logits, suppressed, 1)
    rank_extensions(logits, suppressed, np.zeros((1, 1), np.float32), (1, 1), False)
    greedy_search_numpy(*_smallest_search())
    beam_search_numpy(*_smallest_search(), BeamSizes(1, 1))
