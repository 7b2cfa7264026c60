"""Subcommand train: pellucid train TRAIN [--valid VALID] --run DIR [--config FILE] [--ensemble N] [flags]"""

import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from pellucid.cli.arguments import TrainingFlagParser, TrainingFlags, config_from_flags
from pellucid.cli.messages import handle_sigint, print_message
from pellucid.config.settings import Config, Limit
from pellucid.config.validation import reject_unused
from pellucid.errors import ConfigError, RunError


@dataclass(frozen=True, kw_only=True)
class TrainArguments(TrainingFlags):
    """Train a model on pairs of sequences, or resume an unfinished training.

    Flags override the TOML file of --config, which overrides the presets of --size and --task. With --from RUN, the
    training begins from the parameters and symbols of RUN, whose network is the default. If the run folder holds
    an unfinished training with the same configuration and data, training resumes and is bit-for-bit reproducible; a
    finished run stays as it is.
    """

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
    started_at = time.monotonic()
    parser = TrainingFlagParser(TrainArguments, "train", arguments)
    args = parser.parse()
    config = config_from_flags(args)
    reject_unused(config)
    if args.jobs and not args.ensemble:
        raise ConfigError("--jobs requires --ensemble")
    if config.training.time_limit and not parser.is_size_given:
        config = _config_within_time(args, parser)
    return _train_ensemble(args, config) if args.ensemble else _train_single(args, config, started_at)


def _config_within_time(args: TrainArguments, parser: TrainingFlagParser[TrainArguments]) -> Config:
    """Return the configuration with the size that suits the time limit."""
    from pellucid.reporting.progress import training_progress
    from pellucid.training.size_measurement import config_within_time

    with training_progress() as reporter:
        return config_within_time(
            args.run, args.training_files(), lambda size: config_from_flags(parser.parse(size)), reporter.report
        )


def _train_single(args: TrainArguments, config: Config, started_at: float) -> int:
    """Train a single run; `started_at` is the start of the command."""
    # Slow imports follow the checks, so that a wrong argument is reported at once.
    from pellucid.reporting.progress import training_progress
    from pellucid.training.events import CallbackInterrupted, TrainingStarted, TrainingStopped
    from pellucid.training.session import train_run

    with handle_sigint() as interrupt, training_progress() as reporter:
        events = train_run(args.training_files(), args.run, config, started_at)
        for event in events:
            reporter.report(event)
            interrupt.is_training = interrupt.is_training or isinstance(event, TrainingStarted)
            if isinstance(event, CallbackInterrupted):
                return report_interruption(args.run)
            if interrupt.requested and not isinstance(event, TrainingStopped):
                events.close()
                return report_interruption(args.run)
    return 0


def _train_ensemble(args: TrainArguments, config: Config) -> int:
    """Train runs with different seeds in parallel."""
    from pellucid.reporting.progress import multi_progress
    from pellucid.run_folder.run_files import member_folders
    from pellucid.training.ensemble_training import num_parallel_trainings, plan_ensemble, train_ensemble
    from pellucid.training.events import CallbackInterrupted

    training_jobs = plan_ensemble(args.training_files(), args.run, config, args.ensemble)
    folders = {args.run, *(job.folder for job in training_jobs)}
    removed_members = list[str]()
    with suppress(RunError):  # a damaged list is written anew, and one that cannot be read is reported below
        removed_members = [folder.name for folder in member_folders(args.run) if folder not in folders]
    num_parallel = min(args.ensemble, num_parallel_trainings(args.jobs, config))
    with handle_sigint() as interrupt, multi_progress() as progress:
        last_seed = training_jobs[-1].config.seed
        description = (
            f"{args.ensemble} runs, seeds {config.seed} to {last_seed}"
            if len(training_jobs) > 1
            else f"1 run, seed {last_seed}"
        )
        advice = "; --jobs 1 trains one at a time" if num_parallel > 1 else ""
        progress.print_line(f"{description}, {num_parallel} in parallel{advice}")
        interrupt.is_training = True
        events = train_ensemble(training_jobs, args.run, num_parallel)
        for worker_event in events:
            if worker_event is not None:
                progress.report(worker_event.folder.name, worker_event.event)
            is_stopped = worker_event is not None and isinstance(worker_event.event, CallbackInterrupted)
            if interrupt.requested or is_stopped:
                events.close()
                return report_interruption(args.run)
        mean = (
            f"; pellucid evaluate {args.run}/seed-* FILE reports the mean over its seeds" if args.ensemble > 1 else ""
        )
        progress.print_line(f"{args.run}: an ensemble of {args.ensemble}{mean}")
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
