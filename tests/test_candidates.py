"""Candidates: the first is what greedy and beam search write; oracle accuracy and ranks by plain loops."""

from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trained_runs import digits_run

from pellucid.data.examples import Example
from pellucid.data.synthetic import spelled_digits
from pellucid.errors import InputError
from pellucid.evaluation.candidates import n_best, oracle, reciprocal_rank
from pellucid.evaluation.metrics import Scored
from pellucid.search.trace import Trace
from pellucid.search.transducer import Transducer
from pellucid.training.run import load

PAIRS = [*spelled_digits(7, 1, 3, seed=4), Example("", ""), Example("twß", "2")]
LETTERS = st.sampled_from(["a", "b", "c", "d"])
CANDIDATES = st.lists(st.lists(LETTERS, min_size=1, max_size=4), min_size=1, max_size=6)


@cache
def transducer() -> Transducer:
    return load(digits_run().run).with_beam(4)


def plain(trace: Trace) -> dict[str, object]:
    return trace.to_dict()


def test_the_first_is_what_the_search_writes_and_scores_fall() -> None:
    found = n_best(transducer(), PAIRS, 3)
    assert [plain(own[0]) for own in found] == [plain(trace) for trace in transducer().trace(PAIRS)]
    assert [len(own) for own in found] == [3] * 7 + [1, 3]
    for own in found:
        assert [trace.score for trace in own] == sorted((trace.score for trace in own), reverse=True)
        assert len({trace.target for trace in own}) == len(own)
        assert all(trace.text == own[0].text and trace.unknown == own[0].unknown for trace in own)
    assert found[-2][0].output == "" and found[-1][0].unknown == (2,)


def test_one_candidate_is_the_plain_search() -> None:
    alone = n_best(transducer().with_beam(1), PAIRS, 1)
    assert [plain(own[0]) for own in alone] == [plain(trace) for trace in transducer().with_beam(1).trace(PAIRS)]


def test_company_changes_nothing() -> None:
    together = n_best(transducer(), PAIRS, 2)
    apart = [n_best(transducer(), [pair], 2)[0] for pair in PAIRS]
    for one, other in zip(together, apart, strict=True):
        assert [trace.target for trace in one] == [trace.target for trace in other]
        assert [trace.score for trace in one] == pytest.approx([trace.score for trace in other], abs=1e-5)


def test_more_candidates_than_hypotheses_are_refused() -> None:
    with pytest.raises(InputError, match="beam of 5 at least, got 4"):
        n_best(transducer(), PAIRS, 5)


@given(CANDIDATES)
def test_oracle_and_rank_by_plain_loops(outputs: list[list[str]]) -> None:
    scored = [[Scored((output,), (("a",), ("b",)), 1) for output in own] for own in outputs]
    for each in oracle(scored, 4):
        right = sum(any(output in "ab" for output in own[: each.k]) for own in outputs)
        assert each.accuracy == pytest.approx(100 * right / len(outputs))
        assert each.ci95.low <= each.accuracy <= each.ci95.high
    ranks = [next((at for at, output in enumerate(own, 1) if output in "ab"), None) for own in outputs]
    assert reciprocal_rank(scored) == pytest.approx(sum(1 / rank for rank in ranks if rank) / len(outputs))
