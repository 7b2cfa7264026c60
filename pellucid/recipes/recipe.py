"""The interface of a recipe: its request and its configuration."""

from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pellucid.config.settings import Config
from pellucid.config.toml import load_config, read_settings
from pellucid.data.size_choice import build_sized_config
from pellucid.data.synthetic import WORD_LIST

if TYPE_CHECKING:
    from pellucid.reporting.progress import MultiProgress


class ReproductionError(Exception):
    """Raised at the end of a recipe whose numbers differ from the published ones; the message names each difference."""


class RecipeRequest(NamedTuple):
    """Arguments of a recipe, from the command line of `pellucid recipe`."""

    out: Path
    """Output folder for data, runs and report; created if it is missing."""
    seeds: int = 1
    """Number of seeds: each experiment is trained with the seeds 1 to this number."""
    samples: int = 0
    """Number of training samples; 0 takes the recipe's default. Recipes with a fixed data set take at most all."""
    data: Path = Path("../shared/data")
    """Folder of the data sets."""
    only: Sequence[str] = ()
    """Names of the experiments to run; empty runs all. Only the recipes in `RECIPES_WITH_EXPERIMENTS` read it."""
    words: Path = WORD_LIST
    """Word list from which the typo recipes make typos, one word per line."""
    settings: Mapping[str, Any] = {}
    """Settings that replace those of the recipe and of its experiments, as nested tables. Only the recipes in
    `RECIPES_WITH_SETTINGS` read it."""
    progress: "MultiProgress | None" = None
    """Progress display; None shows nothing."""


def load_recipe_config(name: str, overrides: Mapping[str, Any], train: Path | None = None) -> Config:
    """Return the configuration of a recipe.

    Args:
        name: Name of the recipe; its settings are in `pellucid/recipes/NAME.toml`.
        overrides: Settings that take precedence over the file, as nested tables.
        train: Training file, which determines the size if neither gives it; None without one: the size is "base".

    Raises:
        ConfigError: The file is missing, a key is unknown, or a value is invalid.
    """
    with resources.as_file(resources.files("pellucid.recipes").joinpath(f"{name}.toml")) as path:
        if train is None:
            return load_config(path, overrides)
        return build_sized_config(read_settings(path, overrides), str(path), train)
