"""Subcommand train: pellucid train TRAIN --valid VALID --run DIR [--config FILE] [--ensemble N] [flags]"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro
from msgspec import Meta

from pellucid.cli.arguments import SettingFlags, config_from_flags, default_settings, parse_arguments
from pellucid.cli.messages import handle_sigint, say
from pellucid.config.settings import Config, Limit
from pellucid.config.validation import reject_unused
from pellucid.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class TrainArguments(SettingFlags):
    """Train a model on pairs of sequences, or resume an unfinished training.

    Flags override the TOML file of --config, which overrides the preset of --size. If the run folder holds an
    unfinished training with the same configuration and data, training resumes and is bit-for-bit reproducible.
    """

    train: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="TRAIN")]
    """Training set: TSV, CSV, JSON lines or Parquet (also .gz), or the sources of two parallel files."""
    valid: Path
    """Validation set."""
    run: Path
    """Run folder; created, or resumed."""
    train_target: Path | None = None
    """Targets of TRAIN, one per line, if TRAIN holds sources only."""
    valid_target: Path | None = None
    """Targets of the validation set, one per line, if --valid holds sources only."""
    ensemble: Annotated[int, Meta(ge=0, le=1000)] = 0
    """Number of ensemble members, trained with different seeds in subfolders of --run; 0 trains a single run."""
    jobs: Limit = 0
    """Number of ensemble members trained in parallel; 0: as many as the cores allow (one on a GPU)."""


def main(arguments: list[str]) -> int:
    """Train, with progress on standard error.

    Args:
        arguments: Command line of the subcommand.

    Returns:
        Exit code.
    """
    given = parse_train_arguments(arguments)
    config = config_from_flags(given)
    reject_unused(config)
    if given.jobs and not given.ensemble:
        raise ConfigError("--jobs requires --ensemble")
    return _train_ensemble(given, config) if given.ensemble else _train_run(given, config)


def _train_run(given: TrainArguments, config: Config) -> int:
    """Train a single run."""
    # Slow imports follow the checks, so that a wrong argument is reported at once.
    from pellucid.reporting.progress import training_progress
    from pellucid.training.loop import TrainingStarted, TrainingStopped
    from pellucid.training.session import TrainingFiles, train_run

    with handle_sigint() as interruption, training_progress() as teller:
        events = train_run(
            TrainingFiles(given.train, given.valid, given.train_target, given.valid_target), given.run, config
        )
        for event in events:
            teller.report(event)
            interruption.training = interruption.training or isinstance(event, TrainingStarted)
            if interruption.requested and not isinstance(event, TrainingStopped):
                events.close()
                return report_interruption(given.run)
    return 0


def _train_ensemble(given: TrainArguments, config: Config) -> int:
    """Train runs with different seeds in parallel."""
    from pellucid.reporting.progress import multi_progress
    from pellucid.training.ensemble_training import jobs_at_once, plan_ensemble, train_ensemble
    from pellucid.training.run_folder import members
    from pellucid.training.session import TrainingFiles

    files = TrainingFiles(given.train, given.valid, given.train_target, given.valid_target)
    trainings = plan_ensemble(files, given.run, config, given.ensemble)
    kept = {given.run, *(training.folder for training in trainings)}
    left_out = [folder.name for folder in members(given.run) if folder not in kept]
    at_once = min(given.ensemble, jobs_at_once(given.jobs, config))
    with handle_sigint() as interruption, multi_progress() as seen:
        last = trainings[-1].config.seed
        told = f"{given.ensemble} runs, seeds {config.seed} to {last}" if len(trainings) > 1 else f"1 run, seed {last}"
        seen.print_line(f"{told}, {at_once} in parallel")
        interruption.training = True
        events = train_ensemble(trainings, given.run, at_once)
        for heard in events:
            if heard is not None:
                seen.report(heard.folder.name, heard.event)
            if interruption.requested:
                events.close()
                return report_interruption(given.run)
        seen.print_line(f"{given.run}: an ensemble of {given.ensemble}")
        if left_out:
            seen.print_line(f"{', '.join(left_out)}: no longer members of the ensemble; their folders are kept")
    return 0


def report_interruption(folder: Path) -> int:
    """Report how to resume.

    Args:
        folder: Folder of the interrupted run.

    Returns:
        Exit code 130.
    """
    say(f"interrupted; the same command resumes from {folder}")
    return 130


def parse_train_arguments(arguments: Sequence[str]) -> TrainArguments:
    """Parse flags over a TOML file over a preset.

    Args:
        arguments: Command line of the subcommand.

    Returns:
        Parsed arguments.
    """
    required: Any = tyro.MISSING
    defaults = TrainArguments(train=required, valid=required, run=required, **default_settings(arguments))
    return parse_arguments(TrainArguments, "train", arguments, defaults)
