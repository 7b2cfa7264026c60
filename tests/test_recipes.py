"""Recipes at small size: catalog, data, training, report and its numbers."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from command_line import complaint, pellucid
from report_documents import parts_of, written_document
from trained_runs import contents, copies

from pellucid.config.settings import Config
from pellucid.data.examples import read_examples
from pellucid.errors import InputError
from pellucid.recipes.catalog import RECIPES, TRANSDUCTION_RECIPES, find_recipe
from pellucid.recipes.digits import attention_models
from pellucid.recipes.experiments import MIN_DEV_PAIRS, DataSplits, Experiment, sample_evenly, write_splits
from pellucid.recipes.jobs import SampleProgress, run_jobs
from pellucid.recipes.recipe import RecipeRequest, data_folder, load_recipe_config
from pellucid.reporting.progress import multi_progress
from pellucid.training.loop import derived_epochs
from pellucid.training.run_folder import load, read_log
from pellucid.viewer.report_schema import ReportExamples, ReportFigure
from pellucid.worker_pool import ProgressCallback


@pytest.fixture(scope="module")
def patched() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:
        yield patch


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory, patched: pytest.MonkeyPatch) -> tuple[Path, list[str]]:
    """Return the output folder and the lines of digits-attention with three digits, few samples and two seeds."""
    small = {"DEMO_DIGITS": 3, "DEMO_DEV_PAIRS": 20, "DEMO_TEST_PAIRS": 30, "DEMO_NUMBERS": ("314",)}
    for name, value in small.items():
        patched.setattr(attention_models, name, value)
    out = tmp_path_factory.mktemp("digits") / "out"
    return out, list(find_recipe("digits-attention")(RecipeRequest(out, seeds=2, samples=120)))


def test_recipe_list_has_every_recipe() -> None:
    done = pellucid("recipe", "list")
    assert done.code == 0 and done.err == ""
    assert [line.split()[0] for line in done.out.splitlines()] == list(RECIPES)


def test_error_for_misspelled_recipe_suggests_nearest(tmp_path: Path) -> None:
    message = complaint(pellucid("recipe", "digits-atention", "--out", tmp_path / "out"))
    assert message.startswith("there is no recipe 'digits-atention'; did you mean 'digits-attention'?")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_has_a_function(name: str) -> None:
    assert callable(find_recipe(name))


@pytest.mark.parametrize(
    "name", ["digits-attention", "digits-fewest", *TRANSDUCTION_RECIPES, "snips", "protein-structure", "protein-place"]
)
def test_recipe_settings_can_be_overridden(name: str) -> None:
    assert isinstance(load_recipe_config(name, {}), Config)
    assert load_recipe_config(name, {"seed": 9, "training": {"patience": 3}}).training.patience == 3


def test_an_unknown_recipe_is_an_input_error() -> None:
    with pytest.raises(InputError, match=r"there is no recipe 'x' \(pellucid recipe list\)"):
        find_recipe("x")


def test_digit_pairs_differ_by_seed_and_split(digits: tuple[Path, list[str]]) -> None:
    out, _ = digits
    texts = [(out / "data" / f"seed-{seed}" / name).read_text() for seed in (1, 2) for name in SIZES]
    assert len(set(texts)) == 6
    assert [text.count("\n") for text in texts] == 2 * list(SIZES.values())


SIZES = {"train.tsv": 120, "dev.tsv": 20, "test.tsv": 30}


def test_report_of_digits_attention_agrees_with_the_runs(digits: tuple[Path, list[str]]) -> None:
    out, _ = digits
    report: dict[str, Any] = json.loads((out / "report.json").read_text())
    assert report["name"] == "digits-attention" and [run["seed"] for run in report["runs"]] == [1, 2]
    for run in report["runs"]:
        log = read_log(out / "runs" / f"seed-{run['seed']}")
        curve = [record for record in log if record["event"] == "validated"]
        assert run["samples"] == 120 and run["validation_samples"] == [record["samples"] for record in curve]
        assert run["exact_match"] == [record["exact_match"] / 100 for record in curve]
        transducer = load(out / "runs" / f"seed-{run['seed']}")
        test = read_examples(out / "data" / f"seed-{run['seed']}" / "test.tsv", transducer.config.data).examples
        right = sum(t.output == e.target for t, e in zip(transducer.trace(test), test, strict=True))
        assert run["final"]["exact_match"] == pytest.approx(right / 30)
        assert len(run["per_position"]) == 4 and len(run["attention_mean"]) == 4
        assert 0 <= run["final"]["alignment_error"] <= 1 and 0 < run["final"]["alignment_mass"] < 1
    document = written_document(out / "report.html")
    assert len(parts_of(document, ReportFigure)) >= 2 and len(parts_of(document, ReportExamples)) >= 1


def test_lines_of_digits_attention(digits: tuple[Path, list[str]]) -> None:
    lines = digits[1]
    assert "three one four →" in lines[0]
    assert [line.split(":")[0] for line in lines[-3:]] == ["attention, seed 1", "attention, seed 2", "report"]
    assert "120 samples in" in lines[-2]


def test_a_finished_recipe_is_not_trained_again(digits: tuple[Path, list[str]]) -> None:
    out, lines = digits
    before = contents(out / "runs")
    assert list(find_recipe("digits-attention")(RecipeRequest(out, seeds=2, samples=120))) == lines
    assert contents(out / "runs") == before


def test_the_data_folder_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PELLUCID_DATA", "/somewhere/else")
    assert data_folder() == Path("/somewhere/else")


class CountingJob(NamedTuple):
    """A job that counts to a number."""

    number: int


def count_to(job: CountingJob, tell: ProgressCallback) -> int:
    """Report progress at half of the count and at its end."""
    tell(SampleProgress(job.number // 2, job.number, "half"))
    tell("finished")
    return job.number


@pytest.mark.parametrize("jobs", [[8], [4, 6, 8]])
def test_progress_of_jobs_is_reported_with_their_number(jobs: list[int], capsys: pytest.CaptureFixture[str]) -> None:
    with multi_progress() as progress:
        request = RecipeRequest(Path("unused"), progress=progress)
        results = list(run_jobs(count_to, [(f"to {number}", CountingJob(number)) for number in jobs], request))
    output = capsys.readouterr().err
    assert results == jobs and output.count("half") == output.count("finished") == len(jobs)
    if len(jobs) > 1:
        assert "to 4 (1 of 3): 2 of 4 samples · half\n" in output and "to 8 (3 of 3): finished\n" in output
    else:
        assert output == "to 8: 4 of 8 samples · half\nto 8: finished\n"


def test_validation_pairs_are_reduced_in_proportion_with_a_message(tmp_path: Path) -> None:
    train, dev = copies(400, seed=1), copies(100, seed=2)
    experiment = Experiment("copies", lambda folder: DataSplits(train, dev, dev))
    paths = write_splits(experiment, tmp_path, tmp_path / "pairs", 120)
    counts = [len(path.read_text().splitlines()) for path in paths[:3] if isinstance(path, Path)]
    assert counts == [120, 30, 100] and paths.max_epochs == round(derived_epochs(400))
    assert paths.reduction == "120 of 400 training pairs, 30 of 100 validation pairs"
    reduced = write_splits(experiment, tmp_path, tmp_path / "few", 10)
    assert len(reduced.dev.read_text().splitlines()) == MIN_DEV_PAIRS
    for samples in (0, 400, 500):
        full = write_splits(experiment, tmp_path, tmp_path / "full", samples)
        assert full.reduction == "" and len(full.dev.read_text().splitlines()) == 100
    assert sample_evenly(dev, 3) == [dev[0], dev[33], dev[66]] and sample_evenly(dev[:2], 9) == dev[:2]


def test_recipe_reports_progress_of_training(tmp_path: Path) -> None:
    for part, count in {"train": 3600, "dev": 30, "test": 8}.items():  # 30 epochs by default for this number of pairs
        lines = "".join(f"{each.source}\t{each.target}\n" for each in copies(count, seed=count))
        (tmp_path / "spelling-codespell").mkdir(exist_ok=True)
        (tmp_path / "spelling-codespell" / f"{part}.tsv").write_text(lines)
    arguments = ("recipe", "spelling-codespell", "--out", tmp_path / "out", "--samples", 24, "--data", tmp_path)
    done = pellucid(*arguments)
    assert done.code == 0
    assert "codespell: 24 of 3,600 training pairs, 20 of 30 validation pairs, at most 30 epochs\n" in done.err
    first = "codespell, seed 1 (1 of 2)"
    assert f"{first}: new run, " in done.err and f"{first}: update " in done.err
    assert f"{first}: decoding for evaluation" in done.err
    assert done.out.splitlines()[-1].startswith("report: ")
