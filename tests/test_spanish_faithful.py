"""The recipe spanish-faithful trains and reports at small size."""

import json
from pathlib import Path

import pytest
from report_documents import read_report, section_titles, select_parts
from spanish_cases import SMALL_ARCHITECTURE

from pellucid.recipes.catalog import find_recipe
from pellucid.recipes.recipe import RecipeRequest
from pellucid.recipes.spanish import faithful
from pellucid.recipes.spanish.training import (
    SpanishExperiment,
)
from pellucid.viewer.report_schema import ReportText


@pytest.mark.slow
def test_recipe_reports_its_trainings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    two_experiments = (
        SpanishExperiment("attention", SMALL_ARCHITECTURE),
        SpanishExperiment("plain encoder-decoder", SMALL_ARCHITECTURE._replace(decoder="plain")),
    )
    monkeypatch.setattr(faithful, "EXPERIMENTS", two_experiments)
    lines = list(find_recipe("spanish-faithful")(RecipeRequest(tmp_path / "out", samples=32)))
    assert [line.split(",")[0] for line in lines[:2]] == ["attention", "plain encoder-decoder"]
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert [len(run["validation_loss"]) for run in report["runs"]] == [2, 2]
    assert report["overfitting"] == lines[2]
    document = read_report(tmp_path / "out" / "report.html")
    assert "Training and validation loss" in section_titles(document)
    assert any("height'" in part.text for part in select_parts(document, ReportText, "Shapes"))
