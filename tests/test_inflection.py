"""recipes/inflection.py: languages and sizes, published scores, and files with tags."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from trained_runs import make_small_config, run_jobs_serially

from pellucid.config.settings import Config
from pellucid.data.examples import Example
from pellucid.errors import DataError
from pellucid.recipes import experiments, transduction_experiments
from pellucid.recipes.catalog import find_recipe
from pellucid.recipes.experiments import write_splits
from pellucid.recipes.inflection import inflection_suite
from pellucid.recipes.recipe import RecipeRequest, load_recipe_config

FILES = {
    "hun_large.train": "ház\tházban\tN;IN+ESS;SG\nkéz\tkezek\tN;NOM;PL\n",
    "hun.dev": "fa\tfák\tN;NOM;PL\n",
    "hun.test": "só\tsót\tN;ACC;SG\n",
}


def test_every_language_has_the_published_accuracy_of_its_size() -> None:
    scores = {each.name: each.published["neural baseline"] for each in inflection_suite().experiments}
    assert len(scores) == 20 + 33
    assert (scores["kat-large"], scores["kat-small"], scores["hsi-small"]) == (87.25, 60.2, 0.0)
    settings = [each.settings_name for each in inflection_suite().experiments]
    assert settings == ["large"] * 20 + ["small"] * 33


def test_lemma_form_and_tags_are_read_and_written(tmp_path: Path) -> None:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text, "utf-8")
    experiment = inflection_suite().experiment("hun-large")
    splits = experiment.read_splits(tmp_path)
    assert splits.train[0] == Example("ház", "házban", "N;IN+ESS;SG") and splits.test[0].target == "sót"
    paths = write_splits(experiment, tmp_path, tmp_path / "written", 0)
    assert paths.train.read_text("utf-8") == FILES["hun_large.train"]


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"hun_large\.train"):
        inflection_suite().experiment("hun-large").read_splits(tmp_path)


@pytest.mark.slow
def test_the_recipe_trains_and_scores_with_tags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pair n-gram model does not read tags, so the report has none."""

    def quick_config(name: str, overrides: Mapping[str, Any], train: Path | None = None) -> Config:
        """Return a configuration of the smallest sizes."""
        config = load_recipe_config(name, overrides)
        return msgspec.structs.replace(make_small_config({"epochs": 2}), data=config.data, seed=config.seed)

    folder = tmp_path / "inflection-sigmorphon2022"
    folder.mkdir()
    for name, text in FILES.items():
        (folder / name).write_text(text, "utf-8")
    monkeypatch.setattr(experiments, "load_recipe_config", quick_config)
    monkeypatch.setattr(transduction_experiments, "run_jobs", run_jobs_serially)
    request = RecipeRequest(tmp_path / "out", data=tmp_path, only=["hun-large"])
    lines = list(find_recipe("inflection-sigmorphon2022")(request))
    assert "accuracy" in lines[0] and "pair n-gram" not in lines[0]
