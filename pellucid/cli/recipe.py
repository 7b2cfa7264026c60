"""Subcommand recipe: pellucid recipe list
pellucid recipe NAME --run DIR [--seeds N] [--max-train-samples N] [--data DIR] [--only A,B] [--words FILE]
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from pellucid.cli.arguments import parse_arguments
from pellucid.cli.messages import print_message
from pellucid.errors import InputError
from pellucid.recipes.catalog import RECIPES, RECIPES_WITH_EXPERIMENTS, find_recipe
from pellucid.recipes.recipe import RecipeRequest, ReproductionError, data_folder


@dataclass(frozen=True)
class RecipeArguments:
    """Run a reference experiment, from data to report."""

    name: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="NAME")]
    """Name of the recipe; pellucid recipe list prints all names."""
    run: Path
    """Output folder for data, runs and report."""
    seeds: int = 1
    """Number of random seeds, 1 or more: each network is trained with the seeds 1, 2, ... up to this number.
    digits-data, spanish-studies and protein-pretrained ignore it."""
    max_train_samples: int = 0
    """Number of training samples, to shorten a recipe: samples seen in training, or pairs taken from a published data
    set, whose validation set is reduced in proportion; 0: as in the recipe. digits-data and protein-pretrained ignore
    it."""
    data: Path | None = None
    """Folder of published data sets, for the recipes that use them. Default: the environment variable PELLUCID_DATA,
    else ../shared/data."""
    only: str = ""
    """Names of the experiments to run, separated by commas, such as arm,bul; for recipes with several. Default: all of
    the recipe."""
    words: Path | None = None
    """File with one word per line, for the typo recipes. Default: /usr/share/dict/words."""


def main(arguments: list[str]) -> int:
    """Print the names of the recipes, or run one and print the lines of its report.

    Args:
        arguments: Command line of the subcommand.

    Returns:
        Exit code: 0, or 1 if the recipe does not reproduce the published numbers.

    Raises:
        InputError: An argument is invalid, or a data set cannot be read.
    """
    if arguments == ["list"]:
        print("\n".join(f"{name:<27}{summary}" for name, (summary, *_) in RECIPES.items()))
        return 0
    args = parse_arguments(RecipeArguments, "recipe", arguments)
    if args.name == "list":
        raise InputError("recipe list takes no options: pellucid recipe list")
    run_recipe, only = find_recipe(args.name), [name for name in args.only.split(",") if name]
    if only and args.name not in RECIPES_WITH_EXPERIMENTS:
        raise InputError(
            f"{args.name} has only one experiment: --only applies to {', '.join(RECIPES_WITH_EXPERIMENTS)}"
        )
    if args.seeds < 1:
        raise InputError(f"--seeds: expected 1 or more, got {args.seeds}")
    if args.max_train_samples < 0:
        raise InputError(
            f"--max-train-samples: expected 1 or more, or 0 for the recipe's own number, got {args.max_train_samples}"
        )
    from pellucid.reporting.progress import multi_progress

    request = RecipeRequest(args.run, args.seeds, args.max_train_samples, args.data or data_folder(), only)
    if args.words is not None:
        if not args.name.startswith("typo-"):
            raise InputError(f"{args.name} uses no list of words: --words applies to the typo recipes")
        request = request._replace(words=args.words)
    try:
        with multi_progress() as progress:
            for line in run_recipe(request._replace(progress=progress)):
                print(line, flush=True)
    except ReproductionError as error:
        print_message(str(error))
        return 1
    return 0
