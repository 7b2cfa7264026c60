"""auditing/out_of_fold_scores.py: out-of-fold scores by pair n-gram models and networks."""

from pathlib import Path

import msgspec
import pytest
from audited_pairs import spelled_pairs, word_config

from pellucid.auditing import out_of_fold_scores
from pellucid.auditing.folds import assign_folds
from pellucid.auditing.out_of_fold_scores import MAX_MARGIN, fit_pair_ngram, score_by_pair_ngram, score_out_of_fold
from pellucid.auditing.types import AuditModels, AuditOptions, ModelScore
from pellucid.config.settings import Config, DataConfig
from pellucid.data.examples import Example
from pellucid.errors import DataError
from pellucid.worker_pool import WorkerPool, use_pool

EXAMPLES = [*spelled_pairs(200), Example("aaaa", "B B B B"), Example("bb", "A " * 30)]


def short_config() -> Config:
    """Return a configuration of networks that are trained for one epoch."""
    config = word_config()
    return msgspec.structs.replace(config, training=msgspec.structs.replace(config.training, epochs=1.0))


def test_correct_targets_have_margin_zero_and_wrong_ones_more() -> None:
    scores = score_out_of_fold(EXAMPLES, assign_folds(EXAMPLES, 5, 1), word_config(), AuditOptions())
    right = [score == ModelScore(pair.target, 0.0) for score, pair in zip(scores.pair_ngram, EXAMPLES, strict=True)]
    assert sum(right) > 190 and not any(right[-2:]) and not scores.network
    wrong, unalignable = scores.pair_ngram[-2:]
    assert wrong is not None and wrong.output == "A A A A" and wrong.margin > 3
    assert unalignable is not None and unalignable.margin == MAX_MARGIN
    assert scores.chunks[-2] == ((0, 1, 0, 1), (1, 2, 1, 2), (2, 3, 2, 3), (3, 4, 3, 4)) and not scores.chunks[10]


def test_kernels_are_compiled_here_only_if_folds_are_computed_here(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = list[str]()
    monkeypatch.setattr(out_of_fold_scores, "will_compile", lambda: True)
    monkeypatch.setattr(out_of_fold_scores, "load_kernels", lambda: calls.append("compiled"))
    monkeypatch.setattr(out_of_fold_scores, "parallel_map", lambda task, jobs, max_workers: iter(()))
    options = AuditOptions(models="network", jobs=0)
    with use_pool(WorkerPool):
        score_out_of_fold([], [], word_config(), options)
    assert calls == []
    score_out_of_fold([], [], word_config(), options)
    assert calls == ["compiled"]


def test_a_source_that_a_model_does_not_know_has_a_positive_margin_or_no_score() -> None:
    """Regression test: a target of unknown symbols had margin 0, as if the models wrote it."""
    pairs = [Example(a + b + c, f"{a}{b}{c}".upper()) for a in "abc" for b in "abc" for c in "abc"]
    pairs += [Example(f"{a}qu{b}", f"{a}KW{b}".upper()) for a in "abc" for b in "abc" for _ in range(2)]
    predictor = fit_pair_ngram(pairs, DataConfig())
    assert predictor is not None
    unknown, wrong, right, alone = score_by_pair_ngram(
        predictor, [Example("§", "Z"), Example("ab§", "CCCCCCC"), Example("abc", "ABC"), Example("aq", "AZ")]
    )
    assert unknown is None and right == ModelScore("ABC", 0.0)
    assert wrong is not None and wrong.margin > 0
    assert alone is None  # q is known, but only before u


@pytest.mark.slow
@pytest.mark.parametrize("models", ["pair-ngram", "both"])
def test_scores_do_not_depend_on_the_number_of_jobs(models: AuditModels) -> None:
    folds = assign_folds(EXAMPLES, 2, 1)
    one, two = (
        score_out_of_fold(EXAMPLES, folds, short_config(), AuditOptions(models=models, folds=2, jobs=jobs))
        for jobs in (1, 2)
    )
    assert one == two and len(one.network) == (len(EXAMPLES) if models == "both" else 0)


def test_networks_stay_in_the_run_folder_and_progress_is_reported(tmp_path: Path) -> None:
    options, messages = AuditOptions(models="network", folds=2, run=tmp_path / "runs"), list[str]()
    folds = assign_folds(EXAMPLES, 2, 1)
    first = score_out_of_fold(EXAMPLES, folds, short_config(), options, messages.append)
    assert not first.pair_ngram and messages[1].startswith("fold 2 of 2: ")
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == ["fold-1", "fold-2"]
    assert score_out_of_fold(EXAMPLES, folds, short_config(), options) == first  # loads the finished runs


def test_features_are_read_by_networks_only() -> None:
    examples = [pair._replace(features="V;PST") for pair in EXAMPLES[:40]]
    config = short_config()
    config = msgspec.structs.replace(config, data=msgspec.structs.replace(config.data, features_column="3"))
    scores = score_out_of_fold(examples, assign_folds(examples, 2, 1), config, AuditOptions(models="both", folds=2))
    assert len(scores.network) == len(scores.pair_ngram) == 40


def test_pairs_that_cannot_be_aligned_need_networks() -> None:
    examples = [Example(word, "x " * 50) for word in ("a", "b", "c", "d")]
    with pytest.raises(DataError, match=r'use models = "network" \(--models network\)'):
        score_out_of_fold(examples, assign_folds(examples, 2, 1), word_config(), AuditOptions(folds=2))
