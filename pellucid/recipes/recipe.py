"""The interface of a recipe: its request, its configuration and the folder of its data sets."""

import os
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pellucid.config.settings import Config
from pellucid.config.toml import load_config
from pellucid.data.synthetic import WORD_LIST

if TYPE_CHECKING:
    from pellucid.reporting.progress import MultiProgress


class ReproductionError(Exception):
    """A recipe does not reproduce the published numbers; the message names each difference."""


class RecipeRequest(NamedTuple):
    """Arguments of a recipe."""

    out: Path
    seeds: int = 1
    """Number of seeds, counted from 1."""
    samples: int = 0
    """Training samples; 0 takes the recipe's default."""
    data: Path = Path("../shared/data")
    """Folder of the data sets."""
    only: Sequence[str] = ()
    """Names of the experiments to run; empty runs all."""
    words: Path = WORD_LIST
    """Word list from which typos are made."""
    progress: "MultiProgress | None" = None
    """Progress display; None shows nothing."""


def load_recipe_config(name: str, overrides: Mapping[str, Any]) -> Config:
    """Return the configuration of a recipe.

    Args:
        name: Name of the recipe; its settings are in `pellucid/recipes/NAME.toml`.
        overrides: Settings that take precedence over the file, as nested tables.
    """
    with resources.as_file(resources.files("pellucid.recipes").joinpath(f"{name}.toml")) as path:
        return load_config(path, overrides)


def data_folder() -> Path:
    """Return the folder of the data sets: PELLUCID_DATA, or ../shared/data."""
    return Path(os.environ.get("PELLUCID_DATA", "../shared/data"))
