"""Experiments on published data sets reduce their data and report the progress of their trainings."""

from collections import Counter
from pathlib import Path

import pytest
from command_line import run_pellucid
from trained_runs import make_copy_examples

from pellucid.data.examples import Example
from pellucid.recipes.experiments import MIN_DEV_PAIRS, DataSplits, Experiment, write_splits
from pellucid.training.training_length import derived_epochs


def test_validation_pairs_are_reduced_in_proportion_with_a_message(tmp_path: Path) -> None:
    train, dev = make_copy_examples(400, seed=1), make_copy_examples(100, seed=2)
    experiment = Experiment("copies", lambda folder: DataSplits(train, dev, dev))
    paths = write_splits(experiment, tmp_path, tmp_path / "pairs", 120)
    counts = [len(path.read_text().splitlines()) for path in paths[:3] if isinstance(path, Path)]
    assert counts == [120, 30, 100] and paths.max_epochs == round(derived_epochs(400))
    assert paths.reduction == "120 of 400 training pairs, 30 of 100 validation pairs"
    reduced = write_splits(experiment, tmp_path, tmp_path / "few", 10)
    assert len(reduced.dev.read_text().splitlines()) == MIN_DEV_PAIRS
    test = [Example(f"{number % 1200}", f"{number}") for number in range(2400)]  # two correct outputs of each source
    many = write_splits(Experiment("many", lambda folder: DataSplits(train, dev, test)), tmp_path, tmp_path / "m", 120)
    assert many.test is not None and many.reduction.endswith(", 2,000 of 2,400 test pairs")
    pairs = [line.split("\t") for line in many.test.read_text().splitlines()]
    assert {*Counter(source for source, _ in pairs).values()} == {2} and pairs[0] == ["0", "0"]
    for samples in (0, 400, 500):
        full = write_splits(experiment, tmp_path, tmp_path / "full", samples)
        assert full.reduction == "" and len(full.dev.read_text().splitlines()) == 100


@pytest.mark.slow
def test_recipe_reports_progress_of_training(tmp_path: Path) -> None:
    for part, count in {"train": 3600, "dev": 30, "test": 8}.items():  # 30 epochs by default for this number of pairs
        lines = "".join(f"{each.source}\t{each.target}\n" for each in make_copy_examples(count, seed=count))
        (tmp_path / "spelling-codespell").mkdir(exist_ok=True)
        (tmp_path / "spelling-codespell" / f"{part}.tsv").write_text(lines)
    arguments = (
        "recipe",
        "spelling-codespell",
        "--run",
        tmp_path / "out",
        "--max-train-samples",
        24,
        "--data",
        tmp_path,
    )
    result = run_pellucid(*arguments)
    assert result.code == 0
    assert "codespell: 24 of 3,600 training pairs, 20 of 30 validation pairs, at most 30 epochs\n" in result.err
    first = "codespell, seed 1 (1 of 2)"
    assert f"{first}: new run, " in result.err and f"{first}: epoch" in result.err
    assert f"{first}: decoding for evaluation" in result.err
    assert result.out.splitlines()[-1].startswith("report: ")
    assert "test sets of at most 1,000 sources" in (tmp_path / "out" / "report.html").read_text("utf-8")
