"""Oracle accuracy and ranks by plain loops."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.evaluation.assessment import mean_reciprocal_rank, oracle_accuracy
from pellucid.evaluation.metrics import ScoredExample

LETTERS = st.sampled_from(["a", "b", "c", "d"])
CANDIDATES = st.lists(st.lists(LETTERS, min_size=1, max_size=4), min_size=1, max_size=6)


@given(CANDIDATES)
def test_oracle_accuracy_and_reciprocal_rank_equal_plain_loops(outputs: list[list[str]]) -> None:
    scored = [[ScoredExample((output,), (("a",), ("b",)), 1) for output in own] for own in outputs]
    for each in oracle_accuracy(scored, 4):
        right = sum(any(output in "ab" for output in own[: each.k]) for own in outputs)
        assert each.accuracy == pytest.approx(100 * right / len(outputs))
        assert each.ci95.low <= each.accuracy <= each.ci95.high
    ranks = [next((at for at, output in enumerate(own, 1) if output in "ab"), None) for own in outputs]
    assert mean_reciprocal_rank(scored) == pytest.approx(sum(1 / rank for rank in ranks if rank) / len(outputs))
