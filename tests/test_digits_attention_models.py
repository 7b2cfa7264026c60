"""Attention models on spelled digits: the recipes with small data."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from digits_cases import make_digits_request
from report_documents import read_report, select_parts
from trained_runs import read_folder_state

from pellucid.data.examples import read_examples
from pellucid.decoding.trace import Trace
from pellucid.recipes.catalog import find_recipe
from pellucid.recipes.digits import attention_models
from pellucid.recipes.digits.training import discard_progress
from pellucid.recipes.recipe import RecipeRequest
from pellucid.run_folder.log import read_log
from pellucid.run_folder.predictor_loader import load
from pellucid.viewer.report_schema import ReportExamples, ReportFigure


@pytest.mark.slow
def test_extrapolation_is_measured_at_every_length(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    request = make_digits_request(tmp_path)
    small_values = {"EXTRAPOLATION_DEV_PAIRS": 10, "EXTRAPOLATION_TEST_PAIRS": 10, "PAIRS_PER_LENGTH": 4}
    for name, value in {**small_values, "TEST_LENGTHS": (1, 3), "ATTENTION_TYPES": ("location",)}.items():
        monkeypatch.setattr(attention_models, name, value)
    lines = list(attention_models.run_extrapolate(request))
    report = json.loads((request.out / "report.json").read_text())
    assert [each["digits"] for each in report["lengths"]["location, seed 1"]] == [1, 3]
    assert "location, seed 1, 3 digits" in lines[1]


def _make_trace(weights: np.ndarray) -> Trace:
    """Return a trace with these attention weights."""
    steps = len(weights)
    zeros, none = np.zeros(steps, np.float32), np.zeros((steps, 0), np.float32)
    return Trace("one", ("o", "n", "e"), 0, (), ("1",) * steps, "1", False, zeros, weights, ((),) * steps, none)


def test_stationary_steps_are_counted() -> None:
    rows = np.array([[1, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 1]], np.float32)
    assert attention_models.stationary_fraction([_make_trace(rows), _make_trace(rows[:1])]) == 0.5


@pytest.mark.slow
def test_samples_to_99_percent_are_none_without_reaching_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    request = make_digits_request(tmp_path)
    monkeypatch.setattr(attention_models, "EFFICIENCY_DEV_PAIRS", 10)
    monkeypatch.setattr(attention_models, "EFFICIENCY_TEST_PAIRS", 10)
    monkeypatch.setattr(
        attention_models, "ABLATIONS", {"pellucid": {}, "no feedback": {"decoder": {"embedding": "none"}}}
    )
    monkeypatch.setattr(attention_models, "ADDITIONS", {})
    monkeypatch.setattr(
        attention_models, "run_jobs", lambda task, jobs, request: [task(job, discard_progress) for _, job in jobs]
    )
    list(attention_models.run_sample_efficiency(request._replace(samples=60)))
    report = json.loads((request.out / "report.json").read_text())
    assert report["samples_to_99"] == {"pellucid, seed 1": None, "no feedback, seed 1": None}


@pytest.fixture(scope="module")
def module_patch() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:
        yield patch


@pytest.fixture(scope="module")
def digits_recipe(tmp_path_factory: pytest.TempPathFactory, module_patch: pytest.MonkeyPatch) -> tuple[Path, list[str]]:
    """Return the output folder and the lines of digits-attention with three digits, few samples and two seeds."""
    small_values = {"DEMO_DIGITS": 3, "DEMO_DEV_PAIRS": 20, "DEMO_TEST_PAIRS": 30, "DEMO_NUMBERS": ("314",)}
    for name, value in small_values.items():
        module_patch.setattr(attention_models, name, value)
    out = tmp_path_factory.mktemp("digits") / "out"
    return out, list(find_recipe("digits-attention")(RecipeRequest(out, seeds=2, samples=120)))


def test_digit_pairs_differ_by_seed_and_split(digits_recipe: tuple[Path, list[str]]) -> None:
    out, _ = digits_recipe
    texts = [(out / "data" / f"seed-{seed}" / name).read_text() for seed in (1, 2) for name in SPLIT_SIZES]
    assert len(set(texts)) == 6
    assert [text.count("\n") for text in texts] == 2 * list(SPLIT_SIZES.values())


SPLIT_SIZES = {"train.tsv": 120, "dev.tsv": 20, "test.tsv": 30}


def test_report_of_digits_attention_agrees_with_the_runs(digits_recipe: tuple[Path, list[str]]) -> None:
    out, _ = digits_recipe
    report: dict[str, Any] = json.loads((out / "report.json").read_text())
    assert report["name"] == "digits-attention" and [run["seed"] for run in report["runs"]] == [1, 2]
    for run in report["runs"]:
        log = read_log(out / "runs" / f"seed-{run['seed']}")
        curve = [record for record in log if record["event"] == "validated"]
        assert run["samples"] == 120 and run["validation_samples"] == [record["samples"] for record in curve]
        assert run["exact_match"] == [record["exact_match"] / 100 for record in curve]
        transducer = load(out / "runs" / f"seed-{run['seed']}")
        test = read_examples(out / "data" / f"seed-{run['seed']}" / "test.tsv", transducer.config.data).examples
        num_correct = sum(t.output == e.target for t, e in zip(transducer.predict_examples(test), test, strict=True))
        assert run["final"]["exact_match"] == pytest.approx(num_correct / 30)
        assert len(run["per_position"]) == 4 and 1 <= len(run["attention_mean"]) <= 4
        assert 0 <= run["final"]["alignment_error"] <= 1 and 0 < run["final"]["alignment_mass"] < 1
    document = read_report(out / "report.html")
    assert len(select_parts(document, ReportFigure)) >= 2 and len(select_parts(document, ReportExamples)) >= 1


def test_lines_of_digits_attention_name_each_seed(digits_recipe: tuple[Path, list[str]]) -> None:
    lines = digits_recipe[1]
    assert "three one four →" in lines[0]
    assert [line.split(":")[0] for line in lines[-3:]] == ["attention, seed 1", "attention, seed 2", "report"]
    assert "120 samples in" in lines[-2]


def test_finished_recipe_is_not_trained_again(digits_recipe: tuple[Path, list[str]]) -> None:
    out, lines = digits_recipe
    before = read_folder_state(out / "runs")
    assert list(find_recipe("digits-attention")(RecipeRequest(out, seeds=2, samples=120))) == lines
    assert read_folder_state(out / "runs") == before
