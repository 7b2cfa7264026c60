"""pellucid recipe list
pellucid recipe NAME --out DIR [--seeds N] [--samples N] [--data DIR] [--only A,B] [--words FILE]
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from pellucid.cli.arguments import parse_arguments
from pellucid.cli.messages import say
from pellucid.errors import InputError
from pellucid.recipes.catalog import RECIPES, RECIPES_WITH_EXPERIMENTS, find_recipe
from pellucid.recipes.recipe import RecipeRequest, ReproductionError, data_folder


@dataclass(frozen=True)
class RecipeArguments:
    """Run a reference experiment from data to report."""

    name: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="NAME")]
    """Name of the recipe (pellucid recipe list)."""
    out: Path
    """Folder for its data, runs and report."""
    seeds: int = 1
    """How many seeds, from 1."""
    samples: int = 0
    """Training samples; 0 takes the recipe's own number. Published sets are cut: development pairs in proportion."""
    data: Path | None = None
    """Where data sets are; PELLUCID_DATA, or ../shared/data, where not given."""
    only: str = ""
    """Experiments of a recipe that has several, with commas between their names: arm,bul."""
    words: Path | None = None
    """A list of words, one a line, for recipes about typos; /usr/share/dict/words where not given."""


def main(arguments: list[str]) -> int:
    """List the recipes, or run one."""
    if arguments == ["list"]:
        print("\n".join(f"{name:<27}{about}" for name, (about, *_) in RECIPES.items()))
        return 0
    given = parse_arguments(RecipeArguments, "recipe", arguments)
    if given.name == "list":
        raise InputError("list tells the recipes and takes no options: pellucid recipe list")
    run_recipe, only = find_recipe(given.name), [name for name in given.only.split(",") if name]
    if only and given.name not in RECIPES_WITH_EXPERIMENTS:
        raise InputError(
            f"{given.name} has no experiments to choose from: --only is for {', '.join(RECIPES_WITH_EXPERIMENTS)}"
        )
    if given.seeds < 1:
        raise InputError(f"--seeds: expected 1 or more, got {given.seeds}")
    if given.samples < 0:
        raise InputError(f"--samples: expected 1 or more, or 0 for the recipe's own number, got {given.samples}")
    from pellucid.reporting.progress import multi_progress

    request = RecipeRequest(given.out, given.seeds, given.samples, given.data or data_folder(), only)
    if given.words is not None:
        if not given.name.startswith("typo-"):
            raise InputError(f"{given.name} has no use for a list of words: --words is for the recipes about typos")
        request = request._replace(words=given.words)
    try:
        with multi_progress() as progress:
            for line in run_recipe(request._replace(progress=progress)):
                print(line, flush=True)
    except ReproductionError as error:
        say(str(error))
        return 1
    return 0
