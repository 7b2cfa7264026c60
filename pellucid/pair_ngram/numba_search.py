"""Beam search over graphones (pairs of source and target symbols), and the probability of a given output.

A hypothesis has read the first source positions and written the beginning of an output. Hypotheses at one source
position that have the same node of the n-gram model and the same output are one: their probabilities are added. So
the score of an output is the logarithm of its joint probability with the source, over the alignments in the beam.
With the score α(j, h, y) of the hypothesis at the source position j with the node h and the output y,

    α(j, h, y) = log Σ exp(α(j′, h′, y′) + log p(g | h′)),    score(y) = log Σ_h exp(α(S, h, y) + log p(end | h)),

where the first sum is over hypotheses (j′, h′, y′) in the beam and graphones g whose source symbols are those from j′
to j, that continue y′ to y and h′ to h, the longest history of h′ with g that the model has. Scores α that are lower
than the best at their position by more than the margin are left out.

The beam has the requested size, or a smaller one where a source chunk has thousands of graphones (`MAX_EXTENSIONS`).

S source positions, T target positions, G graphones, M maximum number of target symbols of a graphone, K outputs.
"""

from typing import NamedTuple

import numpy as np

from pellucid.alignment.lattice import chunk_key
from pellucid.kernels.compilation import njit
from pellucid.pair_ngram.kneser_ney import NgramModel, fit_ngram_model
from pellucid.pair_ngram.types import (
    INCREMENT,
    MAX_EXTENSIONS,
    MULTIPLIER,
    SCORE_STEPS,
    SOURCE_CHUNK,
    TIE_TOLERANCE,
    UNSEEN_GRAPHONE,
    GivenTarget,
    GraphoneTable,
    SearchSettings,
    given_target,
)
from pellucid.shapes import Float, Int


class _Search(NamedTuple):
    """Model, sequences and settings of a search, and its work space."""

    model: NgramModel
    table: GraphoneTable
    source: Int[np.ndarray, " S"]
    given: GivenTarget
    settings: SearchSettings
    last_extension: Int[np.ndarray, " tokens"]
    """Number of the last call of `_extend` that tried each graphone; in the last place, the number of calls."""


class _Paths(NamedTuple):
    """Extended hypotheses, each the step of a path; step 0 is the beginning."""

    step: Int[np.ndarray, " steps"]
    """Step before."""
    graphone: Int[np.ndarray, " steps"]
    size: Int[np.ndarray, "1"]
    """Number of steps in use."""


class _ExtendedHypothesis(NamedTuple):
    """The hypothesis that is extended."""

    score: float
    node: int
    output: int
    """Hash of the output; the number of its symbols if the target is given."""
    step: int
    """Its step among the paths."""


class _Hypotheses(NamedTuple):
    """Hypotheses at one source position; the first `size[0]` are in use."""

    score: Float[np.ndarray, " n"]
    node: Int[np.ndarray, " n"]
    output: Int[np.ndarray, " n"]
    """Hash of the output; the number of its symbols if the target is given."""
    step: Int[np.ndarray, " n"]
    """Step of the hypothesis that was extended."""
    graphone: Int[np.ndarray, " n"]
    """Last graphone."""
    size: Int[np.ndarray, "1"]


@njit
def _allocate(capacity: int) -> _Hypotheses:
    """Return room for hypotheses."""
    return _Hypotheses(
        np.empty(capacity, np.float64),
        np.empty(capacity, np.int32),
        np.empty(capacity, np.int64),
        np.empty(capacity, np.int32),
        np.empty(capacity, np.int32),
        np.zeros(1, np.int64),
    )


@njit
def _append(to: _Hypotheses, score: float, node: int, output: int, step: int, graphone: int) -> None:
    """Append a hypothesis."""
    index = to.size[0]
    to.score[index] = score
    to.node[index] = node
    to.output[index] = output
    to.step[index] = step
    to.graphone[index] = graphone
    to.size[0] = index + 1


@njit
def _find_child(model: NgramModel, node: int, token: int) -> int:
    """Return the first child of a node whose token is not below the given one; the end of the children if none is."""
    low: int = model.first_child[node]
    high: int = model.first_child[node + 1]
    while low < high:
        middle = (low + high) // 2
        if model.token[middle] < token:
            low = middle + 1
        else:
            high = middle
    return low


@njit
def _longest_history(model: NgramModel, node: int) -> int:
    """Return the longest suffix of an n-gram that has children."""
    while node > 0 and model.first_child[node + 1] == model.first_child[node]:
        node = model.suffix[node]
    return node


@njit
def _add_logarithms(first: float, second: float) -> float:
    """Return log(exp(first) + exp(second))."""
    high = max(first, second)
    low = min(first, second)
    return high if low == -np.inf else high + np.log1p(np.exp(low - high))


@njit
def _is_better(hypotheses: _Hypotheses, paths: _Paths, other: int, best: int) -> bool:
    """Return whether a hypothesis has a better score than another; of equally good ones, whether it has the smaller
    graphones, from the last to the first.

    Only ties compare graphones. Without that rule the order of hypotheses, which differs between the backends, would
    decide.
    """
    difference = hypotheses.score[other] - hypotheses.score[best]
    if abs(difference) > TIE_TOLERANCE:
        return bool(difference > 0)
    step, best_step = hypotheses.step[other], hypotheses.step[best]
    graphone, best_graphone = hypotheses.graphone[other], hypotheses.graphone[best]
    while graphone == best_graphone and step != best_step and step > 0 and best_step > 0:
        graphone, step = paths.graphone[step], paths.step[step]
        best_graphone, best_step = paths.graphone[best_step], paths.step[best_step]
    return bool(graphone < best_graphone)


@njit
def _merge(hypotheses: _Hypotheses, paths: _Paths) -> Int[np.ndarray, " n"]:
    """Add the probabilities of equal hypotheses to the best of them; return their numbers, the best first.

    Of equally good hypotheses (`SCORE_STEPS`), the one with the smaller key is first.
    """
    count = hypotheses.size[0]
    keys = hypotheses.output[:count] * MULTIPLIER + hypotheses.node[:count]
    order = np.argsort(keys)
    kept = np.empty(count, np.int64)
    num_kept = 0
    first = 0
    while first < count:
        best = order[first]
        total = hypotheses.score[order[first]]
        end = first + 1
        while end < count and keys[order[end]] == keys[order[first]]:
            total = _add_logarithms(total, hypotheses.score[order[end]])
            if _is_better(hypotheses, paths, order[end], best):
                best = order[end]
            end += 1
        kept[num_kept], hypotheses.score[best] = best, total
        num_kept, first = num_kept + 1, end
    kept = kept[:num_kept]  # in the order of their keys, which a stable sort keeps
    return kept[np.argsort(-np.floor(hypotheses.score[kept] * SCORE_STEPS), kind="mergesort")]


@njit
def _extended_output(search: _Search, graphone: int, output: int) -> int:
    """Return the output with the target symbols of a graphone; −1 if it leaves the given target."""
    symbols = search.table.target[graphone, : search.table.target_length[graphone]]
    if not search.given.exists:
        for symbol in symbols:
            output = output * MULTIPLIER + symbol + INCREMENT
        return output
    if output + symbols.shape[0] > search.given.ids.shape[0]:
        return -1
    for symbol in symbols:
        if search.given.ids[output] != symbol:
            return -1
        output += 1
    return output


@njit
def _extend(search: _Search, chunk: int, hypothesis: _ExtendedHypothesis, minimum: float, to: _Hypotheses) -> float:
    """Append the extensions of a hypothesis by the graphones of a source chunk; return the best score of them.

    A graphone's probability is that after the longest history that it follows.
    """
    model = search.model
    first = search.table.first_graphone[chunk]
    last = search.table.first_graphone[chunk + 1]
    score = hypothesis.score
    history = hypothesis.node
    search.last_extension[-1] += 1
    best = -np.inf
    while True:
        child = _find_child(model, history, first)
        while child < model.first_child[history + 1] and model.token[child] < last:
            graphone = model.token[child]
            total = score + model.log_probability[child]
            is_new = search.last_extension[graphone] != search.last_extension[-1]
            search.last_extension[graphone] = search.last_extension[-1]
            extended = _extended_output(search, graphone, hypothesis.output) if is_new and total > minimum else -1
            if is_new and total > minimum and (not search.given.exists or extended >= 0):
                _append(to, total, _longest_history(model, child), extended, hypothesis.step, graphone)
                best = max(best, total)
            child += 1
        if history == 0:
            return best
        score, history = score + model.backoff[history], model.suffix[history]


@njit
def _extend_by_unseen(search: _Search, is_known: bool, hypothesis: _ExtendedHypothesis, to: _Hypotheses) -> float:
    """Append extensions without a graphone of the table, at the cost of an unseen one; return their score.

    A source symbol that is not a chunk by itself (`is_known` is False) writes nothing. If a target is given, every
    source symbol may also write any 0 to M symbols of it.
    """
    if not search.given.exists and is_known:
        return -np.inf
    score = hypothesis.score + search.table.unseen_log_probability
    longest = 0
    if search.given.exists:
        longest = min(search.table.target.shape[1], search.given.ids.shape[0] - hypothesis.output)
    for length in range(longest + 1):
        _append(to, score, 0, hypothesis.output + length, hypothesis.step, UNSEEN_GRAPHONE)
    return score


@njit
def _end_scores(model: NgramModel, table: GraphoneTable, hypotheses: _Hypotheses) -> None:
    """Add the log-probability of the end to each hypothesis, after which all have the same node."""
    for number in range(hypotheses.size[0]):
        node, score = hypotheses.node[number], hypotheses.score[number]
        while True:
            child = _find_child(model, node, table.end_token)
            if child < model.first_child[node + 1] and model.token[child] == table.end_token:
                score += model.log_probability[child]
                break
            if node == 0:
                score += table.unseen_log_probability
                break
            score, node = score + model.backoff[node], model.suffix[node]
        hypotheses.score[number], hypotheses.node[number] = score, 0


@njit
def _find_chunk(table: GraphoneTable, symbols: Int[np.ndarray, " n"]) -> int:
    """Return the number of a source chunk, or −1."""
    key = chunk_key(symbols, table.source_size)
    chunk = np.searchsorted(table.chunk_keys, key)
    is_found = chunk < table.chunk_keys.shape[0] and table.chunk_keys[chunk] == key
    return int(chunk) if is_found else -1


@njit
def _max_extensions(table: GraphoneTable, source: Int[np.ndarray, " S"]) -> int:
    """Return the maximum number of extensions of a hypothesis by one source chunk."""
    maximum: int = 1
    for position in range(source.shape[0]):
        for size in range(1, SOURCE_CHUNK + 1):
            chunk = _find_chunk(table, source[position : position + size])
            if chunk >= 0:
                maximum = max(maximum, int(table.first_graphone[chunk + 1] - table.first_graphone[chunk]))
    return maximum + int(table.target.shape[1]) + 2


@njit
def search_outputs(
    model: NgramModel,
    table: GraphoneTable,
    source: Int[np.ndarray, " S"],
    given: GivenTarget,
    settings: SearchSettings,
) -> tuple[Int[np.ndarray, "K S"], Float[np.ndarray, " K"]]:
    """Return the best outputs of a source, the best first.

    Args:
        model: N-gram model over graphones.
        table: The graphones.
        source: Source ids.
        given: Given target, the only output; or none, for a search of all outputs.
        settings: Settings of the search.

    Returns:
        The graphones of the most probable alignment of each output, the last first, then −1; and the scores.
    """
    length = source.shape[0]
    extensions = _max_extensions(table, source)
    beam_size = max(1, min(settings.beam_size, MAX_EXTENSIONS // extensions))
    settings = SearchSettings(beam_size, settings.margin, settings.num_outputs)
    capacity = SOURCE_CHUNK * beam_size * extensions
    search = _Search(model, table, source, given, settings, np.zeros(table.target_length.shape[0] + 1, np.int64))
    max_steps = length * settings.beam_size + 1
    paths = _Paths(np.empty(max_steps, np.int32), np.empty(max_steps, np.int32), np.ones(1, np.int64))
    paths.step[0], paths.graphone[0] = -1, UNSEEN_GRAPHONE
    rows = (_allocate(capacity), _allocate(capacity), _allocate(capacity))  # of successive positions, in a ring
    best = np.full(length + 1, -np.inf)
    _append(rows[0], 0.0, table.begin_node, 0, -1, UNSEEN_GRAPHONE)
    best[0] = 0.0
    for position in range(length):
        current_row = rows[position % (SOURCE_CHUNK + 1)]
        next_rows = (rows[(position + 1) % (SOURCE_CHUNK + 1)], rows[(position + 2) % (SOURCE_CHUNK + 1)])
        _extend_position(search, position, current_row, next_rows, best, paths)
    last = rows[length % (SOURCE_CHUNK + 1)]
    if given.exists:
        _drop_incomplete(last, given.ids.shape[0])
    _end_scores(model, table, last)
    numbers = _merge(last, paths)[: settings.num_outputs]
    outputs = np.full((numbers.shape[0], length), UNSEEN_GRAPHONE, np.int32)
    for rank in range(numbers.shape[0]):
        graphone, step = last.graphone[numbers[rank]], last.step[numbers[rank]]
        for index in range(length):
            outputs[rank, index] = graphone
            if step <= 0:
                break
            graphone, step = paths.graphone[step], paths.step[step]
    return outputs, last.score[numbers]


@njit
def _extend_position(
    search: _Search,
    position: int,
    current_row: _Hypotheses,
    next_rows: tuple[_Hypotheses, _Hypotheses],
    best: Float[np.ndarray, " S+1"],
    paths: _Paths,
) -> None:
    """Extend the best hypotheses of a position by graphones of one and of two source symbols, and drop the others."""
    chunks = np.full(SOURCE_CHUNK, -1)
    for size in range(1, min(SOURCE_CHUNK, search.source.shape[0] - position) + 1):
        chunks[size - 1] = _find_chunk(search.table, search.source[position : position + size])
    for number in _merge(current_row, paths)[: search.settings.beam_size]:
        if current_row.score[number] < best[position] - search.settings.margin:
            break
        step = 0
        if position > 0:
            step = paths.size[0]
            paths.step[step], paths.graphone[step] = current_row.step[number], current_row.graphone[number]
            paths.size[0] = step + 1
        hypothesis = _ExtendedHypothesis(
            current_row.score[number], current_row.node[number], current_row.output[number], step
        )
        unseen_score = _extend_by_unseen(search, chunks[0] >= 0, hypothesis, next_rows[0])
        best[position + 1] = max(best[position + 1], unseen_score)
        for size in range(1, SOURCE_CHUNK + 1):
            if chunks[size - 1] >= 0:
                end = position + size
                extended = _extend(
                    search, chunks[size - 1], hypothesis, best[end] - search.settings.margin, next_rows[size - 1]
                )
                best[end] = max(best[end], extended)
    current_row.size[0] = 0


@njit
def _drop_incomplete(hypotheses: _Hypotheses, target_length: int) -> None:
    """Keep the hypotheses that have written the whole target."""
    count = 0
    for number in range(hypotheses.size[0]):
        if hypotheses.output[number] == target_length:
            for values in (hypotheses.node, hypotheses.step, hypotheses.graphone):
                values[count] = values[number]
            hypotheses.score[count], hypotheses.output[count] = hypotheses.score[number], 0
            count += 1
    hypotheses.size[0] = count


def warm_up() -> None:
    """Call every kernel of this module with small arguments, at which Numba loads it from the disk or compiles it."""
    graphone, begin_token, end_token = 0, 1, 2
    model = fit_ngram_model(np.array([begin_token, graphone, end_token]), np.array([True, False, False]), 3, 2)
    source = np.array([4], np.int64)
    table = GraphoneTable(
        chunk_keys=np.array([5], np.int64),
        first_graphone=np.array([0, 1], np.int64),
        target=np.full((1, 2), 5, np.int64),
        target_length=np.array([1], np.int64),
        source_size=6,
        begin_node=1 + begin_token,
        end_token=end_token,
        unseen_log_probability=-1.0,
    )
    search_outputs(model, table, source, given_target(None), SearchSettings(1, 1.0, 1))
