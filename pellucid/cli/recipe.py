"""Subcommand recipe: pellucid recipe list [NAME]
pellucid recipe NAME --run DIR [--seeds N] [--max-train-samples N] [--data DIR] [--only A,B] [--words FILE]
"""

import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from pellucid.cli.arguments import parse_arguments
from pellucid.cli.cluster_jobs import OnFlag, run_jobs_on
from pellucid.cli.messages import describe_stop, print_message, stop_signal
from pellucid.cli.output_files import check_output_folder
from pellucid.config.toml import check_settings
from pellucid.errors import ConfigError, InputError, quote
from pellucid.recipes.catalog import (
    RECIPES,
    RECIPES_WITH_EXPERIMENTS,
    RECIPES_WITH_SETTINGS,
    experiment_names,
    find_recipe,
)
from pellucid.recipes.published_data import data_folder
from pellucid.recipes.recipe import RecipeRequest, ReproductionError

RUNS = "runs"
"""Folder of the runs of a recipe, which are resumed."""
RECIPE_FILES = ("data", RUNS, "report.json", "report.html")
"""Files and folders that recipes write."""


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
    set, whose validation set is reduced in proportion, and whose test set to that number of sources, or 1,000 if that
    is more; 0: as in the recipe. digits-data and protein-pretrained ignore it."""
    data: Path | None = None
    """Folder of published data sets, for the recipes that use them; pellucid data get NAME downloads one. Default: the
    environment variable PELLUCID_DATA, else ../shared/data if it exists, else ~/.cache/pellucid/data."""
    only: str = ""
    """Names of the experiments to run, separated by commas, such as arm,bul; for recipes with several, which pellucid
    recipe list NAME prints. Default: all of the recipe."""
    set: Annotated[tuple[str, ...], tyro.conf.UseAppendAction, tyro.conf.arg(metavar="KEY=VALUE")] = ()
    """Setting that replaces that of the recipe in all its experiments, such as attention.type=dot; the report names it.
    Can be repeated. For the recipes on published data sets."""
    words: Path | None = None
    """File with one word per line, for the typo recipes. Default: /usr/share/dict/words."""
    on: OnFlag = None
    """Run the trainings on the machines of a Ray cluster, as many at once as it has CPUs for. --run and --data must be
    in folders that all machines share."""


def main(arguments: list[str]) -> int:
    """Print the names of the recipes or of the experiments of one, or run a recipe and print the lines of its report.

    Args:
        arguments: Command line of the subcommand.

    Returns:
        Exit code: 0, 1 if the recipe does not reproduce the published numbers, 130 after Ctrl-C, 143 after SIGTERM, or
        129 after SIGHUP.

    Raises:
        InputError: An argument is invalid, or a data set cannot be read.
    """
    if arguments == ["list"]:
        print("\n".join(f"{name:<27}{summary}" for name, (summary, *_) in RECIPES.items()))
        return 0
    if arguments[:1] == ["list"] and len(arguments) == 2 and not arguments[1].startswith("-"):
        print("\n".join(experiment_names(arguments[1])))
        return 0
    args = parse_arguments(RecipeArguments, "recipe", arguments)
    if args.name == "list":
        raise InputError("recipe list takes no options: pellucid recipe list, or pellucid recipe list NAME")
    check_output_folder(args, "run", RECIPE_FILES)
    run_recipe, only = find_recipe(args.name), [name for name in args.only.split(",") if name]
    settings = _parse_settings(args.set)
    _check_arguments(args, only, settings)
    from pellucid.reporting.progress import multi_progress

    request = RecipeRequest(
        args.run, args.seeds, args.max_train_samples, args.data or data_folder(), only, settings=settings
    )
    if args.words is not None:
        request = request._replace(words=args.words)
    try:
        output = sys.stdout  # --on ray redirects other output
        with run_jobs_on(args.on, args.run, threads=1), multi_progress() as progress:
            for line in run_recipe(request._replace(progress=progress)):
                print(line, flush=True, file=output)
    except ReproductionError as error:
        print_message(str(error))
        return 1
    except KeyboardInterrupt as error:
        # The other recipes keep nothing of an interrupted training.
        continues = (args.run / RUNS).is_dir()
        end = f"; the same command continues in {args.run}" if continues else ""
        print_message(f"{describe_stop(stop_signal(error))}{end}")
        return 128 + stop_signal(error)
    return 0


def _check_arguments(args: RecipeArguments, only: Sequence[str], settings: Mapping[str, Any]) -> None:
    """Raise `InputError` for counts out of range, and for arguments that the recipe does not read."""
    if only and args.name not in RECIPES_WITH_EXPERIMENTS:
        raise InputError(
            f"{args.name} has only one experiment: --only applies to {', '.join(RECIPES_WITH_EXPERIMENTS)}"
        )
    if settings and args.name not in RECIPES_WITH_SETTINGS:
        raise InputError(f"{args.name} compares fixed settings: --set applies to {', '.join(RECIPES_WITH_SETTINGS)}")
    if args.seeds < 1:
        raise InputError(f"--seeds: expected 1 or more, got {args.seeds}")
    if args.max_train_samples < 0:
        raise InputError(
            f"--max-train-samples: expected 1 or more, or 0 for the recipe's own number, got {args.max_train_samples}"
        )
    if args.words is not None and not args.name.startswith("typo-"):
        raise InputError(f"{args.name} uses no list of words: --words applies to the typo recipes")


def _parse_settings(changes: Sequence[str]) -> dict[str, Any]:
    """Return the settings of --set as nested tables; `ConfigError` for an unknown key or a wrong value."""
    settings: dict[str, Any] = {}
    for change in changes:
        key, equals, text = change.partition("=")
        if not equals or not key:
            raise InputError(f"--set: expected KEY=VALUE, such as attention.type=dot, got {quote(change)}")
        try:
            value = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            value = text  # texts need no quotes
        section, _, name = key.rpartition(".")
        if key == "seed":
            raise InputError("--set: the seeds of a recipe are set by --seeds")
        try:
            check_settings({section: {name: value}} if section else {name: value})
        except ConfigError as error:
            raise ConfigError(f"--set: {error}") from error
        table = settings.setdefault(section, {}) if section else settings
        table[name] = value
    return settings
