"""Scores of hypotheses, compared with all possible outputs and with a beam without early stopping."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_networks import SEEDS, batches, few_examples
from small_searches import (
    HYPOTHESIS_SCORERS,
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
from pellucid.decoding.hypothesis_scorer import MIN_COVERAGE, HypothesisScorer

EXHAUSTIVE_BEAM_SIZE = 5**3 + 5**2 + 5 + 1
KIND = st.sampled_from(NETWORK_KINDS)


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(KIND, batches(), SEEDS, HYPOTHESIS_SCORERS)
def test_exhaustive_beam_finds_the_best_outputs(
    kind: tuple[str, str], batch: Batch, seed: int, score: HypothesisScorer
) -> None:
    network, outputs = make_small_network(kind, seed), enumerate_outputs(2)
    result = run_search(
        network, batch, SearchCase(max_length=2, beam_size=EXHAUSTIVE_BEAM_SIZE, nbest=len(outputs), score=score)
    )[0]
    scores = {
        ids: score_by_definition(each, score)
        for ids, each in zip(outputs, score_outputs(network, batch, 0, outputs), strict=True)
    }
    assert {tuple(each.decoded.ids.tolist()) for each in result} == {*outputs}
    np.testing.assert_allclose([each.score for each in result], sorted(scores.values(), reverse=True), atol=1e-4)
    for each in result:
        assert each.score == pytest.approx(scores[tuple(each.decoded.ids.tolist())], abs=1e-4)


@few_examples
@given(KIND, batches(), SEEDS, HYPOTHESIS_SCORERS, st.integers(1, 4), st.integers(1, 6))
def test_early_stopping_keeps_the_best_outputs(
    kind: tuple[str, str], batch: Batch, seed: int, score: HypothesisScorer, beam_size: int, max_length: int
) -> None:
    """A search for more outputs than exist runs to the maximum length."""
    network = make_small_network(kind, seed)
    case = SearchCase(max_length=max_length, beam_size=beam_size, score=score)
    exhaustive = run_search(network, batch, case._replace(nbest=10_000))
    for (best,), hypotheses in zip(run_search(network, batch, case), exhaustive, strict=True):
        assert best.score == pytest.approx(hypotheses[0].score, abs=1e-5)
        assert (best.decoded.ids[-1:] == EOS).all() == (hypotheses[0].decoded.ids[-1:] == EOS).all()


@few_examples
@given(KIND, batches(), SEEDS, HYPOTHESIS_SCORERS, st.integers(1, 5))
def test_outputs_have_the_defined_scores_in_descending_order(
    kind: tuple[str, str], batch: Batch, seed: int, score: HypothesisScorer, beam_size: int
) -> None:
    network = make_small_network(kind, seed)
    for row, result in enumerate(
        run_search(network, batch, SearchCase(beam_size=beam_size, nbest=beam_size, score=score))
    ):
        for each, rescored in zip(
            result,
            score_outputs(network, batch, row, [hypothesis.decoded.ids.tolist() for hypothesis in result]),
            strict=True,
        ):
            assert each.score == pytest.approx(score_by_definition(each.decoded, score), abs=1e-4)
            np.testing.assert_allclose(each.decoded.log_probabilities, rescored.log_probabilities, atol=1e-5)
            np.testing.assert_allclose(each.decoded.weights, rescored.weights, atol=1e-5)
        finished_scores = [each.score for each in result if each.decoded.ids[-1] == EOS]
        assert (
            finished_scores == sorted(finished_scores, reverse=True)
            and [each.score for each in result[: len(finished_scores)]] == finished_scores
        )


@few_examples
@given(KIND, batches(), SEEDS, HYPOTHESIS_SCORERS, st.integers(1, 4), st.randoms(use_true_random=False))
def test_outputs_are_independent_of_batch_composition(
    kind: tuple[str, str], batch: Batch, seed: int, score: HypothesisScorer, beam_size: int, random: object
) -> None:
    network, case = make_small_network(kind, seed), SearchCase(beam_size=beam_size, nbest=2, score=score)
    for row, result in enumerate(run_search(network, batch, case)):
        rows, length = slice(row, row + 1), int(batch.source_lengths[row])
        single_source = batch._replace(source=batch.source[rows, :length], source_lengths=batch.source_lengths[rows])
        for expected, actual in zip(result, run_search(network, single_source, case)[0], strict=True):
            assert expected.decoded.ids.tolist() == actual.decoded.ids.tolist()
            assert expected.score == pytest.approx(actual.score, abs=1e-4)


def test_length_penalty_equals_the_published_one() -> None:
    assert HypothesisScorer("gnmt", 0.6).length_penalty(np.array([1, 10])) == pytest.approx([1, (15 / 6) ** 0.6])
    assert (
        HypothesisScorer("average").length_penalty(np.array([10])) == 10
        and HypothesisScorer().length_penalty(np.array([10])) == 1
    )


def test_coverage_penalty_equals_the_published_one() -> None:
    covered = np.array([[[0.5, 2.0, 0.0]]], np.float32)
    result = HypothesisScorer("none", 0.0, 0.2).score(np.array([[-1.0]], np.float32), 3, covered)
    assert result == pytest.approx(-1 + 0.2 * (np.log(0.5) + np.log(MIN_COVERAGE)))
