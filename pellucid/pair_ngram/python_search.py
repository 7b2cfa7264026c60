"""The search of `pair_ngram.numba_search` in Python: for a few sources, in a process that has not loaded Numba.

Hypotheses at one source position are a dict, so that equal ones are found by their key. Arrays of the model are read as
memoryviews, whose numbers are Python's.

S source positions, T target positions, K outputs.
"""

import math
from bisect import bisect_left
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from pellucid.pair_ngram.kneser_ney import NgramModel
from pellucid.pair_ngram.types import (
    INCREMENT,
    MAX_EXTENSIONS,
    MULTIPLIER,
    SCORE_STEPS,
    SOURCE_CHUNK,
    TIE_TOLERANCE,
    UNSEEN_GRAPHONE,
    GraphoneTable,
    SearchSettings,
)
from pellucid.shapes import Float, Int

GraphonePath = tuple[Any, int] | None
"""Graphones (pairs of source and target symbols) of a hypothesis: those before the last one, and the last one."""
Key = tuple[int, int]
"""Node of the n-gram model, and the hash of the output; the number of its symbols if the target is given."""


class _Hypothesis(NamedTuple):
    """Hypotheses of one key: the logarithm of their total probability, and the path of the best of them."""

    total: float
    best: float
    """Score of the best: the total of the hypothesis that it extends, with its last graphone."""
    path: GraphonePath


class _Extension(NamedTuple):
    """A hypothesis with one more graphone."""

    score: float
    node: int
    output: int
    """Hash of the output; the number of its symbols if the target is given."""
    graphone: int


class PythonSearch:
    """Search of one model."""

    def __init__(self, model: NgramModel, table: GraphoneTable) -> None:
        """Make the arrays of the model readable as Python's numbers, without a copy.

        Args:
            model: N-gram model over graphones.
            table: The graphones.
        """
        self.model = model
        self.table = table
        self.token, self.log_probability, self.backoff, self.suffix, self.first_child = (
            np.ascontiguousarray(values).data
            for values in (model.token, model.log_probability, model.backoff, model.suffix, model.first_child)
        )

    def __reduce__(self) -> tuple[type["PythonSearch"], tuple[NgramModel, GraphoneTable]]:
        """Return the pickle form; views of the memory of arrays cannot be pickled."""
        return type(self), (self.model, self.table)

    def search_outputs(
        self, source: list[int], target: list[int] | None, settings: SearchSettings
    ) -> tuple[Int[np.ndarray, "K S"], Float[np.ndarray, " K"]]:
        """Return the best outputs of a source, the best first.

        Args:
            source: Source ids.
            target: Given target ids; None for a search of all outputs.
            settings: Settings of the search.

        Returns:
            The graphones of the most probable alignment of each output, the last first, then −1; and the scores.
        """
        chunks = [self._find_chunks(source[position : position + SOURCE_CHUNK]) for position in range(len(source))]
        beam_size = self._beam_size(chunks, settings)
        rows: list[dict[Key, _Hypothesis]] = [{} for _ in range(len(source) + SOURCE_CHUNK)]
        rows[0][self.table.begin_node, 0] = _Hypothesis(0.0, 0.0, None)
        best = [0.0] + [-math.inf] * (len(source) + SOURCE_CHUNK)
        for position, sizes in enumerate(chunks):
            for (node, output), hypothesis in _ranked(rows[position])[:beam_size]:
                if hypothesis.total < best[position] - settings.margin:
                    break
                for extension in self._unseen_extensions(hypothesis.total, output, sizes[0] >= 0, target):
                    _add(rows[position + 1], extension, hypothesis.path, best, position + 1)
                for size, chunk in enumerate(sizes, 1):
                    if chunk >= 0:
                        minimum = best[position + size] - settings.margin
                        for extension in self._extensions(hypothesis.total, node, output, chunk, minimum, target):
                            _add(rows[position + size], extension, hypothesis.path, best, position + size)
        return self._results(rows[len(source)], len(source), target, settings.num_outputs)

    def _find_chunks(self, symbols: list[int]) -> list[int]:
        """Return the number of the chunk of the first symbol, of the first two, and so on; −1 in place of others."""
        return [self._find_chunk(symbols[:size]) for size in range(1, len(symbols) + 1)]

    def _find_chunk(self, symbols: list[int]) -> int:
        """Return the number of a source chunk, or −1."""
        key = 0
        for symbol in symbols:
            key = key * (self.table.source_size + 1) + symbol + 1
        chunk = int(np.searchsorted(self.table.chunk_keys, key))
        return chunk if chunk < len(self.table.chunk_keys) and self.table.chunk_keys[chunk] == key else -1

    def _beam_size(self, chunks: list[list[int]], settings: SearchSettings) -> int:
        """Return the number of hypotheses that are extended, fewer where a chunk has thousands of graphones."""
        first = self.table.first_graphone
        counts = [int(first[chunk + 1] - first[chunk]) for sizes in chunks for chunk in sizes if chunk >= 0]
        extensions = max([1, *counts]) + int(self.table.target.shape[1]) + 2
        return max(1, min(settings.beam_size, MAX_EXTENSIONS // extensions))

    def _unseen_extensions(
        self, total: float, output: int, is_known: bool, target: list[int] | None
    ) -> Iterator[_Extension]:
        """Yield the extensions without a graphone of the table, at the cost of an unseen one.

        They are those of `numba_search._extend_by_unseen`.
        """
        if target is None:
            if not is_known:
                yield _Extension(total + self.table.unseen_log_probability, 0, output, UNSEEN_GRAPHONE)
            return
        for length in range(min(self.table.target.shape[1], len(target) - output) + 1):
            yield _Extension(total + self.table.unseen_log_probability, 0, output + length, UNSEEN_GRAPHONE)

    def _extensions(
        self, total: float, node: int, output: int, chunk: int, minimum: float, target: list[int] | None
    ) -> Iterator[_Extension]:
        """Yield the extensions by the graphones of a source chunk, each after the longest history that it follows."""
        first, last = int(self.table.first_graphone[chunk]), int(self.table.first_graphone[chunk + 1])
        extended_by: set[int] = set()
        while True:
            end = self.first_child[node + 1]
            child = bisect_left(self.token, first, self.first_child[node], end)
            while child < end and (graphone := self.token[child]) < last:
                score = total + self.log_probability[child]
                if graphone not in extended_by:
                    extended_by.add(graphone)
                    extended = self._extended_output(graphone, output, target) if score > minimum else None
                    if extended is not None:
                        yield _Extension(score, self._longest_history(child), extended, graphone)
                child += 1
            if node == 0:
                return
            total, node = total + self.backoff[node], self.suffix[node]

    def _longest_history(self, node: int) -> int:
        """Return the longest suffix of an n-gram that has children."""
        while node > 0 and self.first_child[node + 1] == self.first_child[node]:
            node = self.suffix[node]
        return node

    def _extended_output(self, graphone: int, output: int, target: list[int] | None) -> int | None:
        """Return the output with the target symbols of a graphone; None if it leaves the given target."""
        symbols = self.table.target[graphone, : self.table.target_length[graphone]].tolist()
        if target is None:
            for symbol in symbols:
                output = _as_int64(output * MULTIPLIER + symbol + INCREMENT)
            return output
        end = output + len(symbols)
        return end if target[output:end] == symbols else None

    def _end_score(self, node: int) -> float:
        """Return the log-probability of the end after a node."""
        score = 0.0
        while True:
            end = self.first_child[node + 1]
            child = bisect_left(self.token, self.table.end_token, self.first_child[node], end)
            if child < end and self.token[child] == self.table.end_token:
                return score + float(self.log_probability[child])
            if node == 0:
                return score + self.table.unseen_log_probability
            score, node = score + self.backoff[node], self.suffix[node]

    def _results(
        self, last: dict[Key, _Hypothesis], length: int, target: list[int] | None, count: int
    ) -> tuple[Int[np.ndarray, "K S"], Float[np.ndarray, " K"]]:
        """Return the best complete outputs, with the probability of the end added."""
        ended: dict[Key, _Hypothesis] = {}
        for (node, output), (total, best, path) in last.items():
            if target is None or output == len(target):
                end = self._end_score(node)
                key = (0, output if target is None else 0)
                ended[key] = _merged(ended.get(key), _Hypothesis(total + end, best + end, path))
        ranked = [hypothesis for _, hypothesis in _ranked(ended)[:count]]
        outputs = np.full((len(ranked), length), UNSEEN_GRAPHONE, np.int32)
        for rank, (_, _, path) in enumerate(ranked):
            index = 0
            while path is not None:
                path, outputs[rank, index] = path
                index += 1
        return outputs, np.array([hypothesis.total for hypothesis in ranked])


def _as_int64(number: int) -> int:
    """Return a number modulo 2⁶⁴, from −2⁶³ on, as NumPy's products of 64 bits."""
    return (number + 2**63) % 2**64 - 2**63


def _ranked(hypotheses: dict[Key, _Hypothesis]) -> list[tuple[Key, _Hypothesis]]:
    """Return hypotheses, the best first; of equally good ones, the one with the smaller key (`numba_search._merge`)."""

    def _rank(item: tuple[Key, _Hypothesis]) -> tuple[int, int]:
        """Return the negative rounded score, and the key as a number."""
        (node, output), hypothesis = item
        return -math.floor(hypothesis.total * SCORE_STEPS), _as_int64(output * MULTIPLIER + node)

    return sorted(hypotheses.items(), key=_rank)


def _add(
    row: dict[Key, _Hypothesis], extension: _Extension, path: GraphonePath, best: list[float], position: int
) -> None:
    """Add an extension to the hypotheses of a position, and raise the best score there."""
    score, node, output, graphone = extension
    key = node, output
    row[key] = _merged(row.get(key), _Hypothesis(score, score, (path, graphone)))
    best[position] = max(best[position], score)


def _is_better(other: _Hypothesis, best: _Hypothesis) -> bool:
    """Return whether a hypothesis is better than another, or as good with smaller graphones, as in Numba."""
    difference = other.best - best.best
    if abs(difference) > TIE_TOLERANCE:
        return difference > 0
    path, best_path = other.path, best.path
    while path is not best_path and path is not None and best_path is not None:
        if path[1] != best_path[1]:
            return bool(path[1] < best_path[1])
        path, best_path = path[0], best_path[0]
    return False


def _merged(known: _Hypothesis | None, other: _Hypothesis) -> _Hypothesis:
    """Return equal hypotheses as one: the sum of their probabilities, and the path of the best of them."""
    if known is None:
        return other
    high = max(known.total, other.total)
    low = min(known.total, other.total)
    better = other if _is_better(other, known) else known
    return better._replace(total=high + math.log1p(math.exp(low - high)))
