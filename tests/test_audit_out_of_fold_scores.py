"""auditing/out_of_fold_scores.py: out-of-fold scores by pair n-gram models and networks."""

from pathlib import Path

import msgspec
import pytest
from audited_pairs import spelled_pairs, word_config

from pellucid.auditing.folds import assign_folds
from pellucid.auditing.out_of_fold_scores import MAX_MARGIN, score_out_of_fold
from pellucid.auditing.types import AuditModels, AuditOptions, MemberScores
from pellucid.config.settings import Config
from pellucid.data.examples import Example
from pellucid.errors import DataError

EXAMPLES = [*spelled_pairs(200), Example("aaaa", "B B B B"), Example("bb", "A " * 30)]


def short_config() -> Config:
    """Return a configuration of networks that are trained for one epoch."""
    config = word_config()
    return msgspec.structs.replace(config, training=msgspec.structs.replace(config.training, epochs=1.0))


def test_correct_targets_have_margin_zero_and_wrong_ones_more() -> None:
    scores = score_out_of_fold(EXAMPLES, assign_folds(EXAMPLES, 5, 1), word_config(), AuditOptions())
    right = [member == MemberScores(pair.target, 0.0) for member, pair in zip(scores.pair_ngram, EXAMPLES, strict=True)]
    assert sum(right) > 190 and not any(right[-2:]) and not scores.network
    assert scores.pair_ngram[-2].output == "A A A A" and scores.pair_ngram[-2].margin > 3
    assert scores.pair_ngram[-1].margin == MAX_MARGIN  # it cannot be aligned
    assert scores.chunks[-2] == ((0, 1, 0, 1), (1, 2, 1, 2), (2, 3, 2, 3), (3, 4, 3, 4)) and not scores.chunks[10]


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
    with pytest.raises(DataError, match="give --models network"):
        score_out_of_fold(examples, assign_folds(examples, 2, 1), word_config(), AuditOptions(folds=2))
