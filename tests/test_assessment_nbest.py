"""Oracle accuracy and mean reciprocal rank, compared with plain loops."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.evaluation.assessment import mean_reciprocal_rank, oracle_accuracy
from pellucid.evaluation.metrics import ScoredExample

LETTERS = st.sampled_from(["a", "b", "c", "d"])
CANDIDATES = st.lists(st.lists(LETTERS, min_size=1, max_size=4), min_size=1, max_size=6)


@given(CANDIDATES)
def test_oracle_accuracy_and_reciprocal_rank_equal_plain_loops(outputs: list[list[str]]) -> None:
    scored = [[ScoredExample((output,), (("a",), ("b",)), 1) for output in candidates] for candidates in outputs]
    for oracle in oracle_accuracy(scored, 4):
        num_correct = sum(any(output in "ab" for output in candidates[: oracle.k]) for candidates in outputs)
        assert oracle.accuracy == pytest.approx(100 * num_correct / len(outputs))
        assert oracle.ci95.low <= oracle.accuracy <= oracle.ci95.high
    ranks = [
        next((position for position, output in enumerate(candidates, 1) if output in "ab"), None)
        for candidates in outputs
    ]
    assert mean_reciprocal_rank(scored) == pytest.approx(sum(1 / rank for rank in ranks if rank) / len(outputs))
