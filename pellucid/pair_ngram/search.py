"""Beam search over graphones, and the probability of a given output.

A hypothesis has read the first source positions and written the beginning of an output. Hypotheses at one source
position that have the same node of the n-gram model and the same output are one: their probabilities are added. So
the score of an output is the logarithm of its joint probability with the source, over the alignments in the beam.

S source positions, T target positions, G graphones, M maximum number of target symbols of a graphone, K outputs.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from pellucid.kernels.compilation import njit
from pellucid.pair_ngram.alignment import SOURCE_CHUNK, chunk_key
from pellucid.pair_ngram.ngram_model import NgramModel

FREE = -1
"""Number of target symbols of a search without a given target."""
MULTIPLIER, INCREMENT = np.int64(6364136223846793005), np.int64(1442695040888963407)
"""Constants of the linear congruential generator by which outputs are hashed (Knuth's MMIX)."""
SKIP = np.int32(-1)
"""In place of a graphone that is not in the table."""


class GraphoneTable(NamedTuple):
    """The graphones of a model in the order of their keys; the graphone number g is token g of the n-gram model."""

    chunks: Int[np.ndarray, " chunks"]
    """Keys of the distinct source chunks, in ascending order."""
    first: Int[np.ndarray, " chunks+1"]
    """First graphone of each source chunk, and the number of graphones."""
    target: Int[np.ndarray, "G M"]
    """Target ids of each graphone."""
    target_length: Int[np.ndarray, " G"]
    """Number of target ids of each graphone."""
    source_size: int
    """Number of source ids."""
    begin: int
    """Node after the begin token."""
    end: int
    """End token."""
    unseen: float
    """Log-probability of a graphone that is not in the table, after the shortest history (given targets only)."""


class _Hypotheses(NamedTuple):
    """Arrays of hypotheses at one source position; `count[0]` are in use."""

    score: Float[np.ndarray, " n"]
    node: Int[np.ndarray, " n"]
    output: Int[np.ndarray, " n"]
    """Hash of the output; the number of its symbols if the target is given."""
    step: Int[np.ndarray, " n"]
    """Step of the hypothesis that was extended."""
    graphone: Int[np.ndarray, " n"]
    """Last graphone."""
    count: Int[np.ndarray, "1"]


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
    place = to.count[0]
    to.score[place], to.node[place], to.output[place] = score, node, output
    to.step[place], to.graphone[place] = step, graphone
    to.count[0] = place + 1


@njit
def _find_child(model: NgramModel, node: int, token: int) -> int:
    """Return the first child of a node whose token is not below the given one; the end of the children if none is."""
    low, high = model.first_child[node], model.first_child[node + 1]
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
    high, low = max(first, second), min(first, second)
    return high if low == -np.inf else high + np.log1p(np.exp(low - high))


@njit
def _merge(found: _Hypotheses) -> Int[np.ndarray, " n"]:
    """Add the probabilities of equal hypotheses to the best of them; return their numbers, the best first."""
    count = found.count[0]
    keys = found.output[:count] * MULTIPLIER + found.node[:count]
    order = np.argsort(keys)
    kept, num_kept, first = np.empty(count, np.int64), 0, 0
    while first < count:
        best, total, end = order[first], found.score[order[first]], first + 1
        while end < count and keys[order[end]] == keys[order[first]]:
            total = _add_logarithms(total, found.score[order[end]])
            if found.score[order[end]] > found.score[best]:
                best = order[end]
            end += 1
        kept[num_kept], found.score[best] = best, total
        num_kept, first = num_kept + 1, end
    kept = kept[:num_kept]
    return kept[np.argsort(-found.score[kept])]


@njit
def _extended_output(
    table: GraphoneTable, graphone: int, output: int, target: Int[np.ndarray, " T"], free: bool
) -> int:
    """Return the output with the target symbols of a graphone; −1 if it leaves the given target."""
    length = table.target_length[graphone]
    if free:
        for place in range(length):
            output = output * MULTIPLIER + table.target[graphone, place] + INCREMENT
        return output
    if output + length > target.shape[0]:
        return -1
    for place in range(length):
        if target[output + place] != table.target[graphone, place]:
            return -1
    return output + length


@njit
def _extend(
    model: NgramModel,
    table: GraphoneTable,
    chunk: int,
    hypothesis: tuple[float, int, int, int],
    target: Int[np.ndarray, " T"],
    free: bool,
    minimum: float,
    seen: Int[np.ndarray, " tokens"],
    to: _Hypotheses,
) -> float:
    """Append the extensions of a hypothesis by the graphones of a source chunk; return the best score of them.

    A graphone's probability is that after the longest history that it follows. `seen` is the stamp of each graphone
    that a longer history has given, and, in its last place, the current stamp. A given target also has extensions by
    graphones that are not in the table.
    """
    score, node, output, step = hypothesis
    seen[-1] += 1
    stamp, best, history = seen[-1], -np.inf, node
    while True:
        child, end = _find_child(model, history, table.first[chunk]), model.first_child[history + 1]
        while child < end and model.token[child] < table.first[chunk + 1]:
            graphone = model.token[child]
            if seen[graphone] != stamp:
                seen[graphone] = stamp
                extended, total = (
                    _extended_output(table, graphone, output, target, free),
                    score + model.log_probability[child],
                )
                if (free or extended >= 0) and total > minimum:
                    _append(to, total, _longest_history(model, child), extended, step, graphone)
                    best = max(best, total)
            child += 1
        if history == 0:
            break
        score, history = score + model.backoff[history], model.suffix[history]
    return best


@njit
def _guess(
    table: GraphoneTable,
    hypothesis: tuple[float, int, int, int],
    target_length: int,
    is_known: bool,
    to: _Hypotheses,
) -> float:
    """Append extensions without a graphone of the table, at the cost of an unseen one; return their score.

    A source symbol that is no chunk by itself writes nothing. If a target is given, every source symbol may also write
    any 0 to M symbols of it.
    """
    score, node, output, step = hypothesis
    longest = 0
    if target_length == FREE:
        if is_known:
            return -np.inf
    else:
        longest = min(table.target.shape[1], target_length - output)
    for length in range(longest + 1):
        _append(to, score + table.unseen, 0, output + length, step, SKIP)
    return score + table.unseen


@njit
def _end_scores(model: NgramModel, table: GraphoneTable, found: _Hypotheses) -> None:
    """Add the log-probability of the end to each hypothesis, after which all have the same node."""
    for number in range(found.count[0]):
        node, score = found.node[number], found.score[number]
        while True:
            child = _find_child(model, node, table.end)
            if child < model.first_child[node + 1] and model.token[child] == table.end:
                score += model.log_probability[child]
                break
            if node == 0:
                score += table.unseen
                break
            score, node = score + model.backoff[node], model.suffix[node]
        found.score[number], found.node[number] = score, 0


@njit
def _capacity(table: GraphoneTable, source: Int[np.ndarray, " S"], beam_size: int) -> int:
    """Return the maximum number of hypotheses at a source position before they are merged."""
    most = 1
    for position in range(source.shape[0]):
        for size in range(1, SOURCE_CHUNK + 1):
            chunk = _find_chunk(table, source[position : position + size])
            if chunk >= 0:
                most = max(most, table.first[chunk + 1] - table.first[chunk])
    return SOURCE_CHUNK * beam_size * (most + table.target.shape[1] + 2)


@njit
def _find_chunk(table: GraphoneTable, symbols: Int[np.ndarray, " n"]) -> int:
    """Return the number of a source chunk, or −1."""
    key = chunk_key(symbols, table.source_size)
    place = np.searchsorted(table.chunks, key)
    return place if place < table.chunks.shape[0] and table.chunks[place] == key else -1


@njit
def search_outputs(
    model: NgramModel,
    table: GraphoneTable,
    source: Int[np.ndarray, " S"],
    target: Int[np.ndarray, " T"],
    settings: tuple[int, float, int, bool],
    seen: Int[np.ndarray, " tokens"],
) -> tuple[Int[np.ndarray, "K steps"], Float[np.ndarray, " K"]]:
    """Return the graphones of the best outputs of a source, −1 where there is none, and their scores.

    Args:
        model: N-gram model over graphones.
        table: The graphones.
        source: Source ids.
        target: Given target ids; empty if `free`.
        settings: Beam size, greatest difference to the best score of a position, K, and True for a search without a
            given target (`free`).
        seen: Work space: one stamp per token, and the last stamp.
    """
    beam_size, margin, num_outputs, free = settings
    length, capacity = source.shape[0], _capacity(table, source, beam_size)
    rows = (_allocate(capacity), _allocate(capacity), _allocate(capacity))  # of successive positions, in a ring
    best, chunks = np.full(length + 1, -np.inf), np.empty(SOURCE_CHUNK, np.int64)
    steps, graphones = np.empty(length * beam_size + 1, np.int32), np.empty(length * beam_size + 1, np.int32)
    num_steps, target_length = 1, FREE if free else target.shape[0]
    _append(rows[0], 0.0, table.begin, 0, -1, SKIP)
    best[0], steps[0], graphones[0] = 0.0, -1, SKIP
    for position in range(length):
        here = rows[position % (SOURCE_CHUNK + 1)]
        for size in range(1, SOURCE_CHUNK + 1):
            chunks[size - 1] = _find_chunk(table, source[position : position + size])
        numbers = _merge(here)
        for rank in range(min(len(numbers), beam_size)):
            number = numbers[rank]
            if here.score[number] < best[position] - margin:
                break
            if position > 0:
                steps[num_steps], graphones[num_steps] = here.step[number], here.graphone[number]
                num_steps += 1
            hypothesis = (here.score[number], here.node[number], here.output[number], num_steps - 1)
            for size in range(1, min(SOURCE_CHUNK, length - position) + 1):
                end, chunk = position + size, chunks[size - 1]
                to = rows[end % (SOURCE_CHUNK + 1)]
                if chunk >= 0:
                    minimum = best[end] - margin
                    found = _extend(model, table, chunk, hypothesis, target, free, minimum, seen, to)
                    best[end] = max(best[end], found)
                if size == 1:
                    best[end] = max(best[end], _guess(table, hypothesis, target_length, chunk >= 0, to))
        here.count[0] = 0
    last = rows[length % (SOURCE_CHUNK + 1)]
    if not free:
        _drop_incomplete(last, target_length)
    _end_scores(model, table, last)
    numbers = _merge(last)[:num_outputs]
    outputs = np.full((len(numbers), length), SKIP, np.int32)
    for rank in range(len(numbers)):
        graphone, step = last.graphone[numbers[rank]], last.step[numbers[rank]]
        for place in range(length):
            outputs[rank, place] = graphone
            if step <= 0:
                break
            graphone, step = graphones[step], steps[step]
    return outputs, last.score[numbers]


@njit
def _drop_incomplete(found: _Hypotheses, target_length: int) -> None:
    """Keep the hypotheses that have written the whole target."""
    count = 0
    for number in range(found.count[0]):
        if found.output[number] == target_length:
            found.score[count], found.node[count], found.output[count] = found.score[number], found.node[number], 0
            found.step[count], found.graphone[count] = found.step[number], found.graphone[number]
            count += 1
    found.count[0] = count
