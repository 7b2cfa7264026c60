"""Candidate scores: against every possible output, and against a beam without early stopping."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_networks import SEEDS, batches, few_examples
from small_searches import (
    CANDIDATE_SCORERS,
    NETWORK_KINDS,
    SearchCase,
    enumerate_outputs,
    make_small_network,
    run_search,
    score_by_definition,
    score_outputs,
)

from pellucid.data.batches import Batch
from pellucid.data.vocabulary import EOS
from pellucid.decoding.candidate_scorer import MIN_COVERAGE, CandidateScorer

EVERYTHING = 5**3 + 5**2 + 5 + 1
KIND = st.sampled_from(NETWORK_KINDS)


@settings(max_examples=15, deadline=None)
@given(KIND, batches(), SEEDS, CANDIDATE_SCORERS)
def test_an_exhaustive_beam_finds_the_best_of_all_outputs(
    kind: tuple[str, str], batch: Batch, seed: int, score: CandidateScorer
) -> None:
    network, every = make_small_network(kind, seed), enumerate_outputs(2)
    found = run_search(network, batch, SearchCase(max_length=2, beam_size=EVERYTHING, nbest=len(every), score=score))[0]
    scores = {
        ids: score_by_definition(each, score)
        for ids, each in zip(every, score_outputs(network, batch, 0, every), strict=True)
    }
    assert {tuple(each.decoded.ids.tolist()) for each in found} == {*every}
    np.testing.assert_allclose([each.score for each in found], sorted(scores.values(), reverse=True), atol=1e-4)
    for each in found:
        assert each.score == pytest.approx(scores[tuple(each.decoded.ids.tolist())], abs=1e-4)


@few_examples
@given(KIND, batches(), SEEDS, CANDIDATE_SCORERS, st.integers(1, 4), st.integers(1, 6))
def test_early_stopping_keeps_the_best_outputs(
    kind: tuple[str, str], batch: Batch, seed: int, score: CandidateScorer, width: int, longest: int
) -> None:
    """A search for more outputs than there can be runs to the greatest length."""
    network = make_small_network(kind, seed)
    asked = SearchCase(max_length=longest, beam_size=width, score=score)
    patient = run_search(network, batch, asked._replace(nbest=10_000))
    for (one,), many in zip(run_search(network, batch, asked), patient, strict=True):
        assert one.score == pytest.approx(many[0].score, abs=1e-5)
        assert (one.decoded.ids[-1:] == EOS).all() == (many[0].decoded.ids[-1:] == EOS).all()


@few_examples
@given(KIND, batches(), SEEDS, CANDIDATE_SCORERS, st.integers(1, 5))
def test_outputs_have_the_defined_scores_in_falling_order(
    kind: tuple[str, str], batch: Batch, seed: int, score: CandidateScorer, width: int
) -> None:
    network = make_small_network(kind, seed)
    for row, found in enumerate(run_search(network, batch, SearchCase(beam_size=width, nbest=width, score=score))):
        for each, again in zip(
            found, score_outputs(network, batch, row, [f.decoded.ids.tolist() for f in found]), strict=True
        ):
            assert each.score == pytest.approx(score_by_definition(each.decoded, score), abs=1e-4)
            np.testing.assert_allclose(each.decoded.log_probabilities, again.log_probabilities, atol=1e-5)
            np.testing.assert_allclose(each.decoded.weights, again.weights, atol=1e-5)
        ended = [each.score for each in found if each.decoded.ids[-1] == EOS]
        assert ended == sorted(ended, reverse=True) and [each.score for each in found[: len(ended)]] == ended


@few_examples
@given(KIND, batches(), SEEDS, CANDIDATE_SCORERS, st.integers(1, 4), st.randoms(use_true_random=False))
def test_batch_composition_changes_nothing(
    kind: tuple[str, str], batch: Batch, seed: int, score: CandidateScorer, width: int, random: object
) -> None:
    network, asked = make_small_network(kind, seed), SearchCase(beam_size=width, nbest=2, score=score)
    for row, found in enumerate(run_search(network, batch, asked)):
        rows, length = slice(row, row + 1), int(batch.source_lengths[row])
        alone = batch._replace(source=batch.source[rows, :length], source_lengths=batch.source_lengths[rows])
        for one, two in zip(found, run_search(network, alone, asked)[0], strict=True):
            assert one.decoded.ids.tolist() == two.decoded.ids.tolist()
            assert one.score == pytest.approx(two.score, abs=1e-4)


def test_the_length_penalty_is_that_of_the_paper() -> None:
    assert CandidateScorer("gnmt", 0.6).length_penalty(np.array([1, 10])) == pytest.approx([1, (15 / 6) ** 0.6])
    assert (
        CandidateScorer("average").length_penalty(np.array([10])) == 10
        and CandidateScorer().length_penalty(np.array([10])) == 1
    )


def test_the_coverage_penalty_is_that_of_the_paper() -> None:
    covered = np.array([[[0.5, 2.0, 0.0]]], np.float32)
    found = CandidateScorer("none", 0.0, 0.2).score(np.array([[-1.0]], np.float32), 3, covered)
    assert found == pytest.approx(-1 + 0.2 * (np.log(0.5) + np.log(MIN_COVERAGE)))
