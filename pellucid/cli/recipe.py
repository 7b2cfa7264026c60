"""pellucid recipe list | pellucid recipe NAME --out DIR [--seeds N] [--samples N] [--data DIR] [--only A,B]"""

from dataclasses import dataclass
from pathlib import Path

import tyro

from pellucid.errors import InputError
from pellucid.recipes.recipe import ABOUT, CHOOSABLE, Request, data_folder, find


@dataclass(frozen=True)
class Arguments:
    """Run a reference experiment from data to report."""

    name: tyro.conf.Positional[str]
    """Name of the recipe (pellucid recipe list)."""
    out: Path
    """Folder for its data, runs and report."""
    seeds: int = 1
    """How many seeds, from 1."""
    samples: int = 0
    """Training samples; 0 takes the recipe's own number."""
    data: Path | None = None
    """Where data sets are; PELLUCID_DATA, or ../shared/data, where not given."""
    only: str = ""
    """Experiments of a recipe that has several, with commas between their names: arm,bul."""


def run(arguments: list[str]) -> int:
    """List the recipes, or run one."""
    if arguments == ["list"]:
        print("\n".join(f"{name:<27}{about}" for name, about in ABOUT.items()))
        return 0
    given = tyro.cli(Arguments, prog="pellucid recipe", args=arguments)
    run_recipe, only = find(given.name), [name for name in given.only.split(",") if name]
    if only and given.name not in CHOOSABLE:
        raise InputError(f"{given.name} has no experiments to choose from: --only is for {', '.join(CHOOSABLE)}")
    if given.seeds < 1:
        raise InputError(f"--seeds: expected 1 or more, got {given.seeds}")
    if given.samples < 0:
        raise InputError(f"--samples: expected 1 or more, or 0 for the recipe's own number, got {given.samples}")
    for line in run_recipe(Request(given.out, given.seeds, given.samples, given.data or data_folder(), only)):
        print(line, flush=True)
    return 0
