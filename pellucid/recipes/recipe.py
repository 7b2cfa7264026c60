"""What a recipe is given: a request, the configuration of its TOML file, and the folder of its data sets."""

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


class MismatchError(Exception):
    """What came out is not what a recipe exists to show; the message says where."""


class Request(NamedTuple):
    """What a person asks of a recipe."""

    out: Path
    seeds: int = 1
    """Seeds 1 to n."""
    samples: int = 0
    """Training samples; 0 takes the recipe's own number."""
    data: Path = Path("../shared/data")
    """Where data sets are."""
    only: Sequence[str] = ()
    """The experiments to run, by name; all where none is named."""
    words: Path = WORD_LIST
    """The list of words that typos are made of."""
    seen: "MultiProgress | None" = None
    """Where to tell how trainings go; nowhere where it is not given."""


def recipe_config(name: str, overrides: Mapping[str, Any]) -> Config:
    """The configuration of a recipe's TOML file, with overrides."""
    with resources.as_file(resources.files("pellucid.recipes").joinpath(f"{name}.toml")) as path:
        return load_config(path, overrides)


def data_folder() -> Path:
    """Where data sets are looked for: PELLUCID_DATA, or ../shared/data."""
    return Path(os.environ.get("PELLUCID_DATA", "../shared/data"))
