"""Reports of the digit recipes, and the authors' curves."""

import json
from pathlib import Path

import pytest
from digits_cases import make_digits_request
from report_documents import read_report, select_parts

from pellucid.errors import DataError
from pellucid.recipes.catalog import find_recipe
from pellucid.recipes.digits import report as lesson
from pellucid.recipes.digits.report import load_reference_curves
from pellucid.recipes.digits.training import (
    DigitsExperiment,
)
from pellucid.viewer.report_schema import ReportFigure

RECIPES = ["digits-repeat", "digits-init", "digits-attention-faithful", "digits-variable-length", "digits-cells"]


@pytest.mark.slow
@pytest.mark.parametrize("name", RECIPES)
def test_lesson_writes_its_page_and_its_numbers(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    request = make_digits_request(tmp_path)
    monkeypatch.setattr(
        lesson, "run_jobs", lambda task, jobs, request: iter([task(_shorten_experiment(job)) for _, job in jobs])
    )
    lines = list(find_recipe(name)(request))
    report = json.loads((request.out / "report.json").read_text())
    keys = {"name", "parameters", "samples", "seconds", "symbol_accuracy", "exact_match", "per_position", "reference"}
    assert keys | {"attention_mean", "runs"} <= set(report) and report["name"] == name and report["samples"] == 200
    assert len(report["symbol_accuracy"]) == len(report["exact_match"]) == len(report["validation_samples"])
    assert len(select_parts(read_report(request.out / "report.html"), ReportFigure)) >= 2
    assert lines[-1] == f"report: {request.out / 'report.html'}"


def _shorten_experiment(experiment: DigitsExperiment) -> DigitsExperiment:
    """Return the experiment with few short samples."""
    return experiment._replace(plan=experiment.plan._replace(digits=(2, 3), validation_samples=20))


def test_missing_curves_raise_data_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"curves.json does not exist: .* PELLUCID_DATA"):
        load_reference_curves(tmp_path, "repeat")


def test_damaged_curves_raise_data_error(tmp_path: Path) -> None:
    request = make_digits_request(tmp_path)
    (request.data / "digits-curves" / "curves.json").write_text("{")
    with pytest.raises(DataError, match="does not hold the authors' curves"):
        load_reference_curves(request.data, "repeat")
