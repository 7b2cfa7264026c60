"""Recipes load their configuration and find their data folder."""

from pathlib import Path

import pytest

from pellucid.config.settings import Config
from pellucid.recipes.catalog import TRANSDUCTION_RECIPES
from pellucid.recipes.recipe import data_folder, load_recipe_config


@pytest.mark.parametrize(
    "name",
    [
        "digits-attention",
        "digits-sample-efficiency",
        *TRANSDUCTION_RECIPES,
        "snips",
        "protein-structure",
        "protein-localization",
    ],
)
def test_recipe_settings_can_be_overridden(name: str) -> None:
    assert isinstance(load_recipe_config(name, {}), Config)
    assert load_recipe_config(name, {"seed": 9, "training": {"patience": 3}}).training.patience == 3


def test_the_data_folder_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PELLUCID_DATA", "/somewhere/else")
    assert data_folder() == Path("/somewhere/else")
