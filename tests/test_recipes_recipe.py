"""Recipes load their configuration."""

from pathlib import Path

import pytest
from command_line import run_pellucid, usage_error_message

from pellucid.config.settings import Config
from pellucid.recipes.catalog import TRANSDUCTION_RECIPES
from pellucid.recipes.experiments import change_settings
from pellucid.recipes.recipe import RecipeRequest, load_recipe_config
from pellucid.recipes.transduction import g2p_suite


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


def test_another_setting_applies_to_all_experiments_and_is_named() -> None:
    suite = g2p_suite()
    request = RecipeRequest(Path("out"), settings={"attention": {"type": "dot"}, "training": {"patience": 3}})
    changed = change_settings(suite, request)
    assert change_settings(suite, RecipeRequest(Path("out"))) is suite
    assert changed.introduction.endswith("are not those of the recipe: attention.type = 'dot', training.patience = 3.")
    for before, after in zip(suite.experiments, changed.experiments, strict=True):
        config = load_recipe_config(suite.name, after.settings)
        assert (config.attention.type, config.training.patience) == ("dot", 3)
        expected = load_recipe_config(suite.name, {**before.settings, "attention": {"type": "dot"}})
        assert config.encoder == expected.encoder and config.decoder == expected.decoder


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("scan", "attention.typ=dot", "--set: unknown key 'attention.typ'; did you mean 'attention.type'?"),
        ("scan", "attention=dot", "--set: attention: expected a table, got 'dot'"),
        ("scan", "training.patience=many", "--set: training.patience: expected a whole number"),
        ("scan", "dot", "--set: expected KEY=VALUE, such as attention.type=dot, got 'dot'"),
        ("scan", "seed=3", "--set: the seeds of a recipe are set by --seeds"),
        ("digits-attention", "attention.type=dot", "digits-attention compares fixed settings: --set applies to g2p"),
    ],
)
def test_wrong_settings_are_refused_before_the_data_is_read(name: str, change: str, message: str) -> None:
    result = run_pellucid("recipe", name, "--run", "nowhere", "--set", change)
    assert usage_error_message(result).startswith(message)
