"""Subcommand train: pellucid train TRAIN --valid VALID --run DIR [--config FILE] [--ensemble N] [flags]"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro
from msgspec import Meta

from pellucid.cli.arguments import SettingFlags, config_from_flags, default_settings, parse_arguments
from pellucid.cli.messages import handle_sigint, print_message
from pellucid.config.settings import Config, Limit
from pellucid.config.validation import reject_unused
from pellucid.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class TrainArguments(SettingFlags):
    """Train a model on pairs of sequences, or resume an unfinished training.

    Flags override the TOML file of --config, which overrides the presets of --size and --task. If the run folder holds
    an unfinished training with the same configuration and data, training resumes and is bit-for-bit reproducible; a
    finished run stays as it is.
    """

    train: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="TRAIN")]
    """Training set: TSV, CSV, JSON lines or Parquet (also .gz), or the sources of two parallel files."""
    valid: Path
    """Validation set, in the form of TRAIN; it selects the saved model and decides early stopping."""
    run: Path
    """Run folder, which receives the model, the settings and the log; created, or resumed."""
    train_target: Path | None = None
    """Targets of TRAIN, one per line, if TRAIN holds sources only."""
    valid_target: Path | None = None
    """Targets of the validation set, one per line, if --valid holds sources only."""
    ensemble: Annotated[int, Meta(ge=0, le=1000)] = 0
    """Number of ensemble members, trained with the seeds --seed, --seed + 1, ... in subfolders of --run; 0 trains a
    single run."""
    jobs: Limit = 0
    """Number of ensemble members trained in parallel; 0: the number of cores divided by --threads (one on a GPU).
    Requires --ensemble."""


def main(arguments: list[str]) -> int:
    """Train, with progress on standard error.

    Args:
        arguments: Command line of the subcommand.

    Returns:
        Exit code: 0, or 130 after Ctrl-C.

    Raises:
        InputError: An argument or a file is invalid, or the run folder holds something else.
        DivergenceError: A loss, gradient or parameter is not finite.
    """
    args = parse_train_arguments(arguments)
    config = config_from_flags(args)
    reject_unused(config)
    if args.jobs and not args.ensemble:
        raise ConfigError("--jobs requires --ensemble")
    return _train_ensemble(args, config) if args.ensemble else _train_single(args, config)


def _train_single(args: TrainArguments, config: Config) -> int:
    """Train a single run."""
    # Slow imports follow the checks, so that a wrong argument is reported at once.
    from pellucid.reporting.progress import training_progress
    from pellucid.training.events import TrainingStarted, TrainingStopped
    from pellucid.training.session import train_run
    from pellucid.training.training_data import TrainingFiles

    with handle_sigint() as interrupt, training_progress() as reporter:
        events = train_run(
            TrainingFiles(args.train, args.valid, args.train_target, args.valid_target), args.run, config
        )
        for event in events:
            reporter.report(event)
            interrupt.is_training = interrupt.is_training or isinstance(event, TrainingStarted)
            if interrupt.requested and not isinstance(event, TrainingStopped):
                events.close()
                return report_interruption(args.run)
    return 0


def _train_ensemble(args: TrainArguments, config: Config) -> int:
    """Train runs with different seeds in parallel."""
    from pellucid.reporting.progress import multi_progress
    from pellucid.run_folder.run_files import member_folders
    from pellucid.training.ensemble_training import num_parallel_trainings, plan_ensemble, train_ensemble
    from pellucid.training.training_data import TrainingFiles

    files = TrainingFiles(args.train, args.valid, args.train_target, args.valid_target)
    training_jobs = plan_ensemble(files, args.run, config, args.ensemble)
    folders = {args.run, *(job.folder for job in training_jobs)}
    removed_members = [folder.name for folder in member_folders(args.run) if folder not in folders]
    num_parallel = min(args.ensemble, num_parallel_trainings(args.jobs, config))
    with handle_sigint() as interrupt, multi_progress() as progress:
        last_seed = training_jobs[-1].config.seed
        description = (
            f"{args.ensemble} runs, seeds {config.seed} to {last_seed}"
            if len(training_jobs) > 1
            else f"1 run, seed {last_seed}"
        )
        progress.print_line(f"{description}, {num_parallel} in parallel")
        interrupt.is_training = True
        events = train_ensemble(training_jobs, args.run, num_parallel)
        for worker_event in events:
            if worker_event is not None:
                progress.report(worker_event.folder.name, worker_event.event)
            if interrupt.requested:
                events.close()
                return report_interruption(args.run)
        progress.print_line(f"{args.run}: an ensemble of {args.ensemble}")
        if removed_members:
            progress.print_line(
                f"{', '.join(removed_members)}: no longer members of the ensemble; their folders are kept"
            )
    return 0


def report_interruption(folder: Path) -> int:
    """Print a message on how to resume.

    Args:
        folder: Folder of the interrupted run, ensemble or search.

    Returns:
        Exit code 130.
    """
    print_message(f"interrupted; the same command resumes from {folder}")
    return 130


def parse_train_arguments(arguments: Sequence[str]) -> TrainArguments:
    """Parse the command line of train; the file of --config and the presets give the defaults of the settings.

    Args:
        arguments: Command line of the subcommand.

    Returns:
        Parsed arguments.

    Raises:
        InputError: An argument is unknown, missing or invalid, or the file of --config is.
    """
    required: Any = tyro.MISSING
    defaults = TrainArguments(train=required, valid=required, run=required, **default_settings(arguments))
    return parse_arguments(TrainArguments, "train", arguments, defaults)
