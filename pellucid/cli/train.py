"""Subcommand train: pellucid train TRAIN [--valid VALID] --run DIR [--config FILE] [--ensemble N] [flags]"""

import signal
import time
from collections.abc import Generator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

from msgspec import Meta

from pellucid.cli.arguments import TrainingFlagParser, TrainingFlags, config_from_flags
from pellucid.cli.cluster_jobs import OnFlag, connected_cluster, job_resources, run_jobs_on
from pellucid.cli.messages import (
    InterruptHandler,
    describe_stop,
    handle_stop_signals,
    print_message,
    stop_signal,
    termination_signals,
)
from pellucid.cli.output_files import RUN_FOLDER_FILES, check_output_folder
from pellucid.cluster.ray_pool import JobResources
from pellucid.config.settings import Config, Limit
from pellucid.config.task_settings import PAIR_NGRAM_REQUIREMENT, uses_pair_ngram
from pellucid.config.validation import reject_unused
from pellucid.dependencies import require_package
from pellucid.errors import ConfigError, RunError
from pellucid.files import file_exists
from pellucid.launched_workers import launched_workers, worker_rank
from pellucid.run_folder.progress import read_progress
from pellucid.run_folder.run_files import CHECKPOINT, MEMBER_PREFIX
from pellucid.worker_pool import WorkerDiedError

if TYPE_CHECKING:
    from pellucid.reporting.progress import ProgressReporter
    from pellucid.training.events import RunEvent, SizeOrigin


@dataclass(frozen=True, kw_only=True)
class TrainArguments(TrainingFlags):
    """Train a model on pairs of sequences, or resume an unfinished training.

    Flags override the TOML file of --config, which overrides the presets of --size and --task. With --init-from RUN,
    the training begins from the parameters and symbols of RUN, whose network is the default. If the run folder holds
    an unfinished training with the same configuration and data, training resumes and is bit-for-bit reproducible; a
    finished run stays as it is.
    """

    ensemble: Annotated[int, Meta(ge=0, le=1000)] = 0
    """Number of ensemble members, trained with the seeds --seed, --seed + 1, ... in subfolders of --run; 0 trains a
    single run."""
    jobs: Limit = 0
    """Number of ensemble members trained in parallel; 0: the number of cores divided by --threads (one on a GPU).
    Requires --ensemble."""
    workers: Annotated[int, Meta(ge=1, le=1000)] = 1
    """Number of processes that train one network together; the batch size is that of all of them."""
    on: OnFlag = None
    """Train on the machines of a Ray cluster: one network by --workers processes, or the members of an ensemble, as
    many at once as the cluster has CPUs for. --run must be in a folder that all machines share."""


class TrainingPlan(NamedTuple):
    """A checked command."""

    args: TrainArguments
    config: Config
    started_at: float
    """Start of the command, as time of `time.monotonic`."""
    size_origin: "SizeOrigin"
    """How the size was chosen."""


def main(arguments: list[str]) -> int:
    """Train, with progress on standard error.

    Args:
        arguments: Command line of the subcommand.

    Returns:
        Exit code: 0, 130 after Ctrl-C, 143 after SIGTERM, or 129 after SIGHUP.

    Raises:
        InputError: An argument or a file is invalid, or the run folder holds something else.
        DivergenceError: A loss, gradient or parameter is not finite.
    """
    started_at = time.monotonic()
    if worker_rank():
        return _serve_updates()
    parser = TrainingFlagParser(TrainArguments, "train", arguments, measures_size=True)
    args = parser.parse()
    try:
        return _train(parser, args, arguments, started_at)
    except KeyboardInterrupt as error:  # before the training has begun
        return _report_stop(args.run, stop_signal(error))


def _train(
    parser: TrainingFlagParser[TrainArguments], args: TrainArguments, arguments: list[str], started_at: float
) -> int:
    """Check the arguments, and train; return the exit code."""
    config = config_from_flags(args)
    reject_unused(config)
    if parser.is_flag_given("--training.pair-ngram") and config.training.pair_ngram and not uses_pair_ngram(config):
        raise ConfigError(f"training.pair_ngram (--pair-ngram) needs {PAIR_NGRAM_REQUIREMENT}")
    _check_inputs(args)
    if args.jobs and not args.ensemble:
        raise ConfigError("--jobs requires --ensemble")
    if args.workers > 1 and args.ensemble:
        raise ConfigError("--workers trains a single run: leave out --ensemble, whose members are trained in parallel")
    if args.workers > 1 and not args.on:
        if (launched := launched_workers()) == 1:
            return _train_in_workers(args, arguments)
        if args.workers != launched:
            raise ConfigError(
                f"--workers is {args.workers}, and torchrun has started {launched} processes: leave out --workers"
            )
    # Slow imports follow the checks, so that a wrong argument is reported at once.
    from pellucid.training.events import DEFAULT_SIZE, GIVEN_SIZE

    plan = TrainingPlan(args, config, started_at, GIVEN_SIZE if parser.is_size_given else DEFAULT_SIZE)
    if config.training.time_limit and not parser.is_size_given:
        plan = _plan_within_time(plan, parser)
    return _train_ensemble(plan) if args.ensemble else _train_single(plan)


def _check_inputs(args: TrainArguments) -> None:
    """Raise `RunError` if the training would replace or remove a file that it reads.

    The settings of a run that is resumed may be those of --config.
    """
    others = ["config"] if (args.run / CHECKPOINT).exists() else []
    members = [each.name for each in args.run.glob(f"{MEMBER_PREFIX}*")] if args.ensemble else []
    check_output_folder(args, "run", (*RUN_FOLDER_FILES, *members), others)


def _train_in_workers(args: TrainArguments, arguments: list[str]) -> int:
    """Train a single run in several processes, each of which gets the same command line."""
    from pellucid.training.local_workers import SIGNAL_CODE, train_in_workers

    code = train_in_workers(arguments, args.workers)
    if code - SIGNAL_CODE in termination_signals():  # worker 0 has reported Ctrl-C
        _report_stop(args.run, code - SIGNAL_CODE)
    return code


def _serve_updates() -> int:
    """Take part in the training of worker 0, which stops this one after Ctrl-C, too."""
    from pellucid.training.data_parallel import serve_updates
    from pellucid.training.worker_group import connected_workers

    signal.signal(signal.SIGINT, signal.SIG_DFL)  # worker 0 may end before it connects
    with connected_workers() as workers:
        assert workers is not None, "expected several workers"
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        serve_updates(workers)
    return 0


def _plan_within_time(plan: TrainingPlan, parser: TrainingFlagParser[TrainArguments]) -> TrainingPlan:
    """Return the plan with the size that suits the time limit of one with any size."""
    from pellucid.reporting.progress import training_progress
    from pellucid.training.ensemble_training import num_parallel_trainings
    from pellucid.training.size_measurement import choose_config_for_time_limit

    args, config = plan.args, plan.config
    if args.on is not None:
        require_package("ray", "ray", "--on ray")  # before the measurement
    has_one_process = args.on is None and args.workers == launched_workers() == 1
    if args.ensemble > 1:
        has_one_process = has_one_process and num_parallel_trainings(args.jobs, config) == 1
    with training_progress() as reporter:
        sized = choose_config_for_time_limit(
            args.run,
            args.training_files(),
            lambda size: config_from_flags(parser.parse(size)),
            reporter.report,
            args.ensemble,
            has_one_process,
        )
    return plan._replace(config=sized.config, size_origin=sized.origin)


def _train_single(plan: TrainingPlan) -> int:
    """Train a single run."""
    from pellucid.reporting.progress import training_progress
    from pellucid.training.session import train_run

    args, config = plan.args, plan.config
    with (
        connected_cluster(args.on, config.threads) as cluster,
        # The launcher of several workers ends them by SIGTERM when one has failed: no update is possible then.
        handle_stop_signals(includes_termination=launched_workers() == 1) as interrupt,
        training_progress(
            has_default_size=plan.size_origin.says_default(config),
            started_at=plan.started_at,
            size_chosen=plan.size_origin.measured,
        ) as reporter,
    ):
        events: Generator[RunEvent | None] = (
            train_run(args.training_files(), args.run, config, plan.started_at, plan.size_origin)
            if cluster is None
            else _train_on_cluster(plan, job_resources(cluster, config.threads, config.device))
        )
        try:
            with closing(events):  # while this process is connected to the cluster
                is_interrupted = _report_events(events, reporter, interrupt)
        except KeyboardInterrupt:  # the second Ctrl-C or SIGTERM
            if not interrupt.is_training:
                raise
            is_interrupted = True
    return _report_stop(args.run, interrupt.signal_number) if is_interrupted else 0


def _report_events(
    events: "Generator[RunEvent | None]", reporter: "ProgressReporter", interrupt: InterruptHandler
) -> bool:
    """Report the events of a training until its end or an interruption; return whether it was interrupted."""
    from pellucid.training.events import CallbackInterrupted, TrainingStarted, TrainingStopped

    for event in events:
        if event is not None:
            reporter.report(event)
        interrupt.is_training = interrupt.is_training or isinstance(event, TrainingStarted)
        is_stopping = interrupt.requested and not isinstance(event, TrainingStopped)
        if is_stopping or isinstance(event, CallbackInterrupted):
            return True
    return False


def _train_on_cluster(plan: TrainingPlan, resources: JobResources) -> "Generator[RunEvent | None]":
    """Return the events of a single run that workers of a Ray cluster train; None where none has arrived.

    The measurement of the size is a part of the time limit; the wait for free machines, which follows, is not.
    """
    from pellucid.cluster.ray_group import GroupTasks, run_in_group
    from pellucid.kernels.kernel_loader import compilation_seconds
    from pellucid.training.data_parallel import serve_connected
    from pellucid.training.ensemble_training import TrainingJob, run_job

    args, seconds_spent = plan.args, time.monotonic() - plan.started_at - compilation_seconds(plan.started_at)
    job = TrainingJob(args.training_files(), args.run, plan.config, seconds_spent, plan.size_origin)
    return run_in_group(GroupTasks(run_job, serve_connected), job, args.run, args.workers, resources)


def _train_ensemble(plan: TrainingPlan) -> int:
    """Train runs with different seeds in parallel."""
    from pellucid.reporting.progress import multi_progress
    from pellucid.run_folder.run_files import member_folders
    from pellucid.training.ensemble_training import num_parallel_trainings, plan_ensemble, train_ensemble
    from pellucid.training.events import CallbackInterrupted

    args, config = plan.args, plan.config
    training_jobs = plan_ensemble(args.training_files(), args.run, config, args.ensemble, plan.size_origin)
    folders = {args.run, *(job.folder for job in training_jobs)}
    removed_members = list[str]()
    with suppress(RunError):  # a damaged list is written anew, and one that cannot be read is reported below
        removed_members = [folder.name for folder in member_folders(args.run) if folder not in folders]
    num_parallel = args.jobs if args.on else min(args.ensemble, num_parallel_trainings(args.jobs, config))
    with (
        run_jobs_on(args.on, args.run, config.threads, config.device) as cluster,
        handle_stop_signals() as interrupt,
        multi_progress(has_default_size=plan.size_origin.says_default(config)) as progress,
    ):
        last_seed = training_jobs[-1].config.seed
        description = (
            f"{args.ensemble} runs, seeds {config.seed} to {last_seed}"
            if len(training_jobs) > 1
            else f"1 run, seed {last_seed}"
        )
        progress.print_line(f"{description}, {_describe_parallel(num_parallel, cluster)}")
        interrupt.is_training = True
        events = train_ensemble(training_jobs, args.run, num_parallel)
        try:
            for worker_event in events:
                if worker_event is not None:
                    progress.report(worker_event.folder.name, worker_event.event)
                is_stopped = worker_event is not None and isinstance(worker_event.event, CallbackInterrupted)
                if interrupt.requested or is_stopped:
                    events.close()
                    return _report_stop(args.run, interrupt.signal_number)
        except KeyboardInterrupt:  # the second Ctrl-C or SIGTERM
            return _report_stop(args.run, interrupt.signal_number)
        except WorkerDiedError:
            if not interrupt.requested:  # else the signal has reached the processes of the members, too
                raise
            return _report_stop(args.run, interrupt.signal_number)
        mean = (
            f"; pellucid evaluate {args.run}/seed-* FILE reports the mean over its seeds" if args.ensemble > 1 else ""
        )
        seconds = time.monotonic() - plan.started_at
        progress.print_line(f"{args.run}: an ensemble of {args.ensemble}, {seconds:,.0f} s for this command{mean}")
        if removed_members:
            progress.print_line(
                f"{', '.join(removed_members)}: no longer members of the ensemble; their folders are kept"
            )
    return 0


def _describe_parallel(num_parallel: int, cluster: str) -> str:
    """Return how many trainings run in parallel, and where, as text."""
    if cluster:
        return f"{f'at most {num_parallel} in parallel ' if num_parallel else ''}on {cluster}"
    return f"{num_parallel} in parallel{'; --jobs 1 trains one at a time' if num_parallel > 1 else ''}"


def _report_stop(folder: Path, signal_number: int) -> int:
    """Print a message on how to resume a run or an ensemble, or that it has no checkpoint; return the exit code."""
    has_checkpoint = False
    with suppress(RunError):  # a folder that cannot be entered
        has_checkpoint = any(file_exists(each / CHECKPOINT) for each in (folder, *folder.glob(f"{MEMBER_PREFIX}*")))
    if has_checkpoint:
        return report_interruption(folder, signal_number)
    print_message(
        f"{describe_stop(signal_number)} before the first update: {folder} has no checkpoint, and the same command "
        "trains from the start"
    )
    return 128 + signal_number


def report_interruption(folder: Path, signal_number: int = signal.SIGINT) -> int:
    """Print a message on how to resume, with the last checkpoint of a single run.

    Args:
        folder: Folder of the interrupted run, ensemble or search.
        signal_number: Number of the signal that has stopped it; SIGINT, the default, also if a callback has.

    Returns:
        Exit code 128 and the number of the signal: 130, 143 or 129.
    """
    checkpoint = ""
    with suppress(RunError):  # an ensemble or a search has none, and the next command reports a damaged one
        checkpoint = f" (checkpoint of update {read_progress(folder / CHECKPOINT).update:,})"
    print_message(f"{describe_stop(signal_number)}; the same command resumes from {folder}{checkpoint}")
    return 128 + signal_number
