"""alignment/attention_path.py: the best path, compared with all paths one by one."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_lattice import LIMITS, list_alignments

from pellucid.alignment.attention_path import MIN_MASS, monotone_path
from pellucid.alignment.types import DEFAULT_LIMITS, ChunkLimits
from pellucid.errors import ArgumentError


def path_score(weights: np.ndarray, sizes: list[tuple[int, int]]) -> float:
    """Return the score of a path by its definition."""
    score, row, column = 0.0, 0, 0
    num_source = weights.shape[1]
    for height, width in sizes:
        targets = weights[column : column + width, row : row + height]
        if not height:
            score -= math.log(num_source + 1)
        elif not width:
            score += sum(math.log(max(MIN_MASS, 1 - weight)) for weight in weights[:, row].tolist())
        else:
            score += sum(math.log(max(MIN_MASS, mass)) for mass in targets.sum(axis=1).tolist())
            score -= (height - 1) * math.log(2)
        row, column = row + height, column + width
    return score


@given(st.integers(1, 4), st.integers(0, 4), LIMITS, st.integers(0, 2**32 - 1))
def test_path_has_the_highest_score_of_all(num_source: int, num_target: int, limits: ChunkLimits, seed: int) -> None:
    weights = np.random.default_rng(seed).dirichlet(np.full(num_source, 0.3), num_target)
    paths = list(list_alignments(tuple(range(num_source)), tuple(range(num_target)), limits))
    scores = [path_score(weights, [(len(source), len(target)) for source, target in path]) for path in paths]
    found = monotone_path(weights, limits)
    assert (found is None) == (not paths)
    if found is not None:
        sizes = [(c.source_stop - c.source_start, c.target_stop - c.target_start) for c in found.chunks]
        assert sum(height for height, _ in sizes) == num_source and sum(width for _, width in sizes) == num_target
        assert found.score == pytest.approx(max(scores)) == pytest.approx(path_score(weights, sizes))


def spans(weights: list[list[float]], limits: ChunkLimits = DEFAULT_LIMITS) -> list[tuple[int, ...]]:
    found = monotone_path(np.array(weights), limits)
    assert found is not None
    return [tuple(chunk) for chunk in found.chunks]


def test_clear_weights_give_the_expected_chunks() -> None:
    assert spans([[0.9, 0.1], [0.1, 0.9]]) == [(0, 1, 0, 1), (1, 2, 1, 2)]
    assert spans([[0.5, 0.5]]) == [(0, 2, 0, 1)]
    assert spans([[0.95, 0.05]]) == [(0, 1, 0, 1), (1, 2, 1, 1)]
    assert spans([[0.95, 0.05]], ChunkLimits(deletions=False)) == [(0, 2, 0, 1)]
    assert spans([[0.9, 0.1], [0.9, 0.1]]) == [(0, 1, 0, 2), (1, 2, 2, 2)]


def test_two_crossed_symbols_are_one_chunk_if_several_may_meet_several() -> None:
    crossed = [[0.05, 0.95], [0.95, 0.05]]
    assert spans(crossed, ChunkLimits(insertions=False, deletions=False, many_to_many=True)) == [(0, 2, 0, 2)]


def test_words_are_segmented_where_the_attention_changes() -> None:
    weights = [[0.2, 0.6, 0.2, 0, 0, 0], [0, 0, 0, 0.3, 0.5, 0.2]]
    limits = ChunkLimits(6, 1, insertions=False, deletions=False)
    assert spans(weights, limits) == [(0, 3, 0, 1), (3, 6, 1, 2)]


def test_without_a_path_there_is_none() -> None:
    assert monotone_path(np.full((3, 1), 1.0), ChunkLimits(insertions=False)) is None
    assert monotone_path(np.zeros((0, 2)), ChunkLimits(deletions=False)) is None
    assert monotone_path(np.zeros((2, 0))) is None
    assert monotone_path(np.full((1500, 1500), 1 / 1500), ChunkLimits(16, 16, many_to_many=True)) is None, "too long"


def test_invalid_weights_are_refused() -> None:
    with pytest.raises(ArgumentError, match=r"^weights\[0, 0\]: expected a number from 0"):
        monotone_path(np.array([[-1.0, 2.0]]))
    with pytest.raises(ArgumentError, match="limits"):
        monotone_path(np.array([[1.0]]), ChunkLimits(0))
