"""Sampled softmax and batching schemes equal their equations and brute-force computations."""

import json
import math
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from report_documents import read_report, select_parts
from torch import nn

from pellucid.data.examples import Example
from pellucid.recipes.catalog import find_recipe
from pellucid.recipes.experiments import DataSplits
from pellucid.recipes.recipe import RecipeRequest
from pellucid.recipes.spanish import studies
from pellucid.recipes.spanish.sentences import EOS, GO, PAIRS, build_corpus
from pellucid.recipes.spanish.studies import (
    BATCHING_SCHEMES,
    BUCKETS,
    PADDING_MODES,
    BatchingJob,
    BatchingScheme,
    SampledWords,
    SoftmaxExperiment,
    cut_batch,
    draw_distinct_words,
    draw_words,
    find_bucket,
    full_softmax_loss,
    generate_sentences,
    inclusion_probabilities,
    log_uniform_probabilities,
    measure_batching,
    plan_batches,
    sampled_softmax_loss,
    sequence_loss,
    train_softmax,
)
from pellucid.viewer.report_schema import ReportTable


def test_log_uniform_probabilities_sum_to_one_and_decrease() -> None:
    probabilities = log_uniform_probabilities(np.arange(1_000), 1_000)
    assert float(probabilities.sum()) == pytest.approx(1.0)
    assert (np.diff(probabilities) < 0).all()
    assert probabilities[0] == pytest.approx(math.log(2) / math.log(1_001))


def test_words_are_drawn_from_the_log_uniform_distribution() -> None:
    words = draw_words(np.random.default_rng(1), 200_000, 50)
    counts = np.bincount(words, minlength=50) / 200_000
    np.testing.assert_allclose(counts, log_uniform_probabilities(np.arange(50), 50), atol=0.004)


@given(st.integers(0, 2**31), st.integers(1, 99))
def test_drawn_words_are_distinct_and_the_draws_are_counted(seed: int, count: int) -> None:
    sample = draw_distinct_words(np.random.default_rng(seed), count, 100)
    assert len(set(sample.words.tolist())) == count <= sample.draws
    again = draw_distinct_words(np.random.default_rng(seed), count, 100)
    assert again.draws == sample.draws and (again.words == sample.words).all()


def test_inclusion_probability_is_the_frequency_of_a_word_in_samples() -> None:
    generator = np.random.default_rng(2)
    frequencies = np.mean([np.bincount(draw_words(generator, 8, 20), minlength=20) > 0 for _ in range(20_000)], axis=0)
    np.testing.assert_allclose(frequencies, inclusion_probabilities(np.arange(20), 8, 20), atol=0.015)


def test_sampled_softmax_loss_equals_its_equation() -> None:
    torch.manual_seed(1)
    softmax, outputs, targets = nn.Linear(4, 9), torch.randn(3, 4), torch.tensor([2, 5, 0])
    sample = SampledWords(np.array([0, 3, 5]), 4)
    logits = softmax(outputs).detach().numpy()
    losses = []
    for row, target in enumerate(targets.tolist()):
        target_logit = logits[row, target] - math.log(inclusion_probabilities(np.array([target]), 4, 9)[0])
        sample_logits = [
            logits[row, word] - math.log(inclusion_probabilities(np.array([word]), 4, 9)[0])
            for word in (0, 3, 5)
            if word != target
        ]
        losses.append(math.log(sum(map(math.exp, [target_logit, *sample_logits]))) - target_logit)
    loss = sampled_softmax_loss(outputs, targets, softmax, sample).item()
    assert loss == pytest.approx(float(np.mean(losses)), rel=1e-4)


def test_sampled_loss_of_nearly_all_words_is_the_full_loss() -> None:
    torch.manual_seed(2)
    softmax, outputs, targets = nn.Linear(4, 30), torch.randn(5, 4), torch.tensor([1, 4, 9, 0, 28])
    sample = SampledWords(np.arange(30), 100_000)
    loss = sampled_softmax_loss(outputs, targets, softmax, sample).item()
    assert loss == pytest.approx(full_softmax_loss(outputs, targets, softmax).item(), rel=1e-3)


def test_only_drawn_words_and_targets_are_trained() -> None:
    softmax, outputs, targets = nn.Linear(4, 30), torch.randn(2, 4), torch.tensor([7, 8])
    torch.autograd.backward(sampled_softmax_loss(outputs, targets, softmax, SampledWords(np.array([1, 2, 3]), 3)))
    assert softmax.weight.grad is not None
    assert set(softmax.weight.grad.abs().sum(dim=1).nonzero().flatten().tolist()) == {1, 2, 3, 7, 8}


def test_sample_of_the_whole_vocabulary_is_refused() -> None:
    with pytest.raises(ValueError, match="expected a sample of 1 to 8 distinct words of 9, got 9"):
        draw_distinct_words(np.random.default_rng(1), 9, 9)


def test_generated_sentences_are_translated_word_by_word() -> None:
    batch = generate_sentences(np.random.default_rng(1), 5, 60)
    assert torch.equal(batch.inputs[:, 1:], batch.source) and torch.equal(batch.targets[:, :-1], batch.source)
    assert (batch.inputs[:, 0] == GO).all() and (batch.targets[:, -1] == EOS).all()
    assert int(batch.source.min()) >= 4 and int(batch.source.max()) < 60


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["full", "sampled"])
def test_training_lowers_the_full_softmax_loss(
    loss: Literal["full", "sampled"], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(studies, "SOFTMAX_ARCHITECTURE", studies.SOFTMAX_ARCHITECTURE._replace(hidden=16, embedding=16))
    monkeypatch.setattr(studies, "SOFTMAX_BATCH", 8)
    result = train_softmax(SoftmaxExperiment(loss, 60, 1, vocabulary_size=200, num_sampled=20))
    assert [point.updates for point in result.curve] == [0, 50, 60]
    assert result.curve[-1].loss < result.curve[0].loss - 0.2


def test_pair_is_assigned_to_the_first_fitting_bucket() -> None:
    assert find_bucket(5, 10) == 0 and find_bucket(6, 10) == 1 and find_bucket(1, 11) == 1
    assert find_bucket(40, 50) == 3 and find_bucket(41, 2) is None


@pytest.mark.parametrize("scheme", BATCHING_SCHEMES)
def test_every_batching_scheme_has_each_pair_once_and_complete(scheme: BatchingScheme) -> None:
    data, all_rows = build_corpus(PAIRS).data, []
    for rows, widths in plan_batches(data, scheme):
        batch = cut_batch(data, rows, widths)
        all_rows += rows.tolist()
        assert batch.source.shape == (len(rows), widths[0]) and batch.targets.shape == (len(rows), widths[1])
        assert ((batch.targets == EOS).sum(dim=1) == 1).all()
        assert ((batch.source != 0).sum(dim=1) == batch.lengths).all()
        assert scheme != "buckets" or widths in BUCKETS
    assert sorted(all_rows) == list(range(20))


@pytest.mark.slow
def test_batching_schemes_are_equal_with_masked_padding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(studies, "BATCH_SIZE", 4)
    measurements = [
        measure_batching(BatchingJob(PAIRS, scheme, padding, hidden=6))
        for padding in PADDING_MODES
        for scheme in BATCHING_SCHEMES
    ]
    comparisons = studies.compare_batching(measurements)
    attended, masked = comparisons[:3], comparisons[3:]
    assert all(each.loss_difference < 1e-5 and each.gradient_difference < 1e-5 for each in masked)
    assert all(each.loss_difference > 1e-5 for each in attended[1:])
    assert masked[0].measurement.target_padding > masked[2].measurement.target_padding


def test_sequence_loss_is_a_mean_of_means() -> None:
    assert float(sequence_loss(torch.tensor([6.0, 4.0]), torch.tensor([3, 1]))) == pytest.approx((2 + 4) / 2)


@pytest.mark.slow
def test_recipe_reports_its_measurements(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = [Example(*pair) for pair in PAIRS]
    monkeypatch.setattr(studies, "read_tatoeba", lambda data, samples: DataSplits(pairs, pairs, pairs))
    monkeypatch.setattr(studies, "NUM_SAMPLED", 20)
    monkeypatch.setattr(studies, "parallel_map", lambda work, jobs: (work(job, print) for job in jobs))
    monkeypatch.setattr(studies, "SOFTMAX_ARCHITECTURE", studies.SOFTMAX_ARCHITECTURE._replace(hidden=4, embedding=4))
    lines = list(find_recipe("spanish-studies")(RecipeRequest(tmp_path / "out", samples=20)))
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert [run["loss"] for run in report["sampled_softmax"]] == ["full", "sampled"]
    assert len(report["batching"]) == 6 and report["sentences"] == 20
    assert lines[-1].startswith("report: ")
    assert len(select_parts(read_report(tmp_path / "out" / "report.html"), ReportTable)) == 2
