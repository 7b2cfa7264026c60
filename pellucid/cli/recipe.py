"""pellucid recipe list | pellucid recipe NAME --out DIR [--seeds N] [--samples N] [--data DIR] [--only A,B]"""

from dataclasses import dataclass
from pathlib import Path

import tyro

from pellucid.cli.parsing import parsed
from pellucid.errors import InputError
from pellucid.recipes.recipe import ABOUT, REFERENCES, Request, data_folder, find


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
    """Training samples; 0 takes the recipe's own number. Published sets are cut: development pairs in proportion."""
    data: Path | None = None
    """Where data sets are; PELLUCID_DATA, or ../shared/data, where not given."""
    only: str = ""
    """Experiments of a recipe of published sets, with commas between their names: arm,bul."""


def run(arguments: list[str]) -> int:
    """List the recipes, or run one."""
    if arguments == ["list"]:
        print("\n".join(f"{name:<27}{about}" for name, about in ABOUT.items()))
        return 0
    given = parsed(Arguments, "recipe", arguments)
    run_recipe, only = find(given.name), [name for name in given.only.split(",") if name]
    if only and given.name not in REFERENCES:
        raise InputError(f"{given.name} has no experiments to choose from: --only is for {', '.join(REFERENCES)}")
    if given.seeds < 1:
        raise InputError(f"--seeds: expected 1 or more, got {given.seeds}")
    if given.samples < 0:
        raise InputError(f"--samples: expected 1 or more, or 0 for the recipe's own number, got {given.samples}")
    from pellucid.look.rows import rows

    with rows() as seen:
        data = given.data or data_folder()
        for line in run_recipe(Request(given.out, given.seeds, given.samples, data, only, seen)):
            print(line, flush=True)
    return 0
