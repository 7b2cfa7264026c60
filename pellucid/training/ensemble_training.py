"""Training of several runs in parallel processes, and of ensembles whose members differ only in the seed.

ensemble.json    names of the members' folders and, at the end, the weight of their pair n-gram model
confidence.json  confidence of the outputs of the ensemble, fitted at the end
seed-1 …         run folder of each member
"""

import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from pellucid.config.settings import Config
from pellucid.config.toml import named_extensions
from pellucid.errors import ConfigError, MissingExtensionError, RunError, count_noun, quote
from pellucid.files import file_exists, missing_folders, read_bytes, remove_empty_folders, unexpected_files, write_json
from pellucid.kernels.dispatch import will_compile
from pellucid.model.device import find_device
from pellucid.run_folder.initial_run import member_configs
from pellucid.run_folder.initialization import refuse_links
from pellucid.run_folder.lock import FolderLock, lock_run_folder
from pellucid.run_folder.run_files import (
    CHECKPOINT,
    CONFIDENCE,
    ENSEMBLE,
    LOCK,
    MAX_MEMBERS,
    MEMBER_PREFIX,
    EnsembleRecord,
    has_run,
    read_ensemble_record,
)
from pellucid.training.data_file_check import DataFileCheck, FileDigests, check_read_files
from pellucid.training.ensemble_fitting import fit_ensemble
from pellucid.training.events import (
    GIVEN_SIZE,
    CallbackInterrupted,
    ModelBuilt,
    RunEvent,
    SizeOrigin,
    TrainingStopped,
    UpdateCompleted,
    ValidationCompleted,
)
from pellucid.training.session import train_run
from pellucid.training.training_data import TrainingInputs
from pellucid.worker_pool import (
    JobEvent,
    JobFailure,
    JobPool,
    ProgressMessage,
    WorkerChannel,
    available_cores,
    open_pool,
    uses_local_pool,
)

UPDATE_INTERVAL = 0.25
"""Minimum seconds between two updates reported by a worker process."""


class TrainingJob(NamedTuple):
    """Arguments of `train_run` for one training, which a worker process runs."""

    files: TrainingInputs
    folder: Path
    """Run folder."""
    config: Config
    seconds_spent: float = 0.0
    """Seconds of its time limit that passed before the worker began; clocks of two machines cannot be compared. A
    checkpoint has counted them, so that workers that start again do not."""
    size_origin: SizeOrigin = GIVEN_SIZE
    """How the size was chosen."""
    digests: FileDigests = ()
    """Contents of the data files at the start of a command of several trainings, which must all read the same."""


class WorkerEvent(NamedTuple):
    """Event of a training in a worker process."""

    folder: Path
    """Run folder of the training."""
    event: RunEvent


def run_job(job: TrainingJob, channel: WorkerChannel) -> bool:
    """Run a training in a worker process and send its events, reduced by `throttle`, to the parent process.

    Args:
        job: The training.
        channel: Channel to the parent process. After a stop request the training saves its state and ends.

    Returns:
        True if the training finished, False if it ended at a stop request or by a callback.

    Raises:
        InputError: As in `train_run`, or a data file was changed before the training has read it; the worker pool
            passes the error on to the parent.
    """
    seconds_spent = 0.0 if file_exists(job.folder / CHECKPOINT) else job.seconds_spent
    events = train_run(job.files, job.folder, job.config, time.monotonic() - seconds_spent, job.size_origin)
    for event, reported_event in throttle(events):
        try:
            check_read_files(event, job.digests)  # a new training has not written anything yet
        except RunError:
            events.close()
            raise
        if reported_event is not None:
            channel.send_progress(reported_event)
        is_stopped = channel.stop_requested and not isinstance(event, TrainingStopped)
        if is_stopped or isinstance(event, CallbackInterrupted):
            events.close()
            return False
    return True


def throttle(events: Iterable[RunEvent]) -> Iterator[tuple[RunEvent, RunEvent | None]]:
    """Reduce the events that a worker sends: at most one update per `UPDATE_INTERVAL`, and validations without traces.

    Args:
        events: Events of a training.

    Yields:
        Each event, and the event to report in its place; None for an update less than `UPDATE_INTERVAL` seconds after
        the last reported event.
    """
    last_time = 0.0
    for event in events:
        now = time.monotonic()
        if isinstance(event, UpdateCompleted) and now - last_time <= UPDATE_INTERVAL:
            yield event, None
            continue
        last_time = now
        yield event, event._replace(traces=[]) if isinstance(event, ValidationCompleted) else event


def plan_ensemble(
    files: TrainingInputs,
    folder: Path,
    config: Config,
    size: int,
    size_origin: SizeOrigin = GIVEN_SIZE,
) -> list[TrainingJob]:
    """Return the trainings of an ensemble, one for each of the seeds `seed` to `seed + size - 1`; nothing is started.

    Args:
        files: Training and validation data.
        folder: Folder of the ensemble; the run folder of a member is its subfolder `seed-<seed>`.
        config: Configuration of the first member; the others differ in the seed, and begin from the members of an
            initial ensemble in their order.
        size: Number of members, 1 to `MAX_MEMBERS`.
        size_origin: How the size of the networks was chosen; by default, the user gives it.

    Raises:
        ConfigError: The size is out of range, a seed would be 2³² or more, or the initial ensemble of a fine-tuning has
            fewer members.
        RunError: The list of members of the initial ensemble cannot be read.
    """
    if not 1 <= size <= MAX_MEMBERS:
        raise ConfigError(f"ensemble: expected 1 to {MAX_MEMBERS:,} runs, got {quote(size)}")
    if config.seed + size > 2**32:
        raise ConfigError(
            f"seed = {config.seed} leaves no room for the seeds of {count_noun(size, 'run')}: "
            f"give at most {2**32 - size}"
        )
    seeds = range(config.seed, config.seed + size)
    folders = [folder / f"{MEMBER_PREFIX}{seed}" for seed in seeds]
    members = zip(seeds, folders, member_configs(config, folders), strict=True)
    return [
        TrainingJob(files, path, msgspec.structs.replace(member, seed=seed), size_origin=size_origin)
        for seed, path, member in members
    ]


def train_ensemble(
    training_jobs: Sequence[TrainingJob], folder: Path, max_parallel: int
) -> Generator[WorkerEvent | None]:
    """Train every member in its own process, or resume it, and yield their events as they arrive.

    The names of the members are written to `ensemble.json` as soon as the first network is built. Closing the generator
    stops all trainings after they have saved their states, and so does a callback of a member. The first error of a
    training is raised after the others have stopped in the same way. When all have ended, `fit_ensemble` fits the
    ensemble.

    Args:
        training_jobs: Members of the ensemble.
        folder: Folder of the ensemble.
        max_parallel: Maximum number of parallel trainings; 0 for as many as there are cores, here or in a cluster. If
            kernels must be compiled first on this machine, one training runs alone until its first update.

    Yields:
        Events of the members; None after each poll of the workers, so that the caller can act at least every 0.2
        seconds; and with the folder of the ensemble, the events of `fit_ensemble`.

    Raises:
        RunError: The folder holds a single run or other files, another training holds its lock, a data file was changed
            meanwhile, or a file cannot be written.
        InputError: As in `train_run`; or a worker process was killed (`WorkerDiedError`).
        WorkerError: A worker process met a bug.
    """
    names = [job.folder.name for job in training_jobs]
    check_ensemble_folder(folder, names)
    new_folders = missing_folders(folder)
    data_check = DataFileCheck(training_jobs[0].files, training_jobs[0].config)
    waiting = list(enumerate(training_jobs))[::-1]
    with ExitStack() as stack, open_pool(run_job, num_first_trainings(max_parallel)) as pool:
        lock: FolderLock | None = None
        try:
            while waiting or pool.busy:
                while waiting and pool.free_workers:
                    data_check.check()
                    number, job = waiting.pop()
                    pool.submit(number, job._replace(digests=data_check.digests))
                for event in pool.events():
                    content = _training_event(event, training_jobs[0].config)
                    if isinstance(content, ModelBuilt) and lock is None:
                        # The data files are read, and the folder is new or belongs to this ensemble.
                        lock = stack.enter_context(lock_run_folder(folder, (ENSEMBLE, CONFIDENCE)))
                        _write_members(folder / ENSEMBLE, names)
                    if isinstance(content, UpdateCompleted):
                        pool.max_workers = max_parallel  # the first training has compiled the kernels for the others
                    if content is not None:
                        yield WorkerEvent(training_jobs[event.job].folder, content)
                    if isinstance(content, CallbackInterrupted):
                        shutdown(pool)
                        return
                yield None
            data_check.check()
            yield from _fit_locked(lock, training_jobs[0])
        except BaseException:
            shutdown(pool)
            remove_empty_folders(new_folders)
            raise


def _fit_locked(lock: FolderLock | None, job: TrainingJob) -> Iterator[WorkerEvent]:
    """Fit a finished ensemble, and yield the events; its folder is locked since the first of its networks was built."""
    if lock is not None:
        for fitted in fit_ensemble(job.files, lock, job.config):
            yield WorkerEvent(lock.folder, fitted)


def _training_event(event: JobEvent, config: Config) -> RunEvent | None:
    """Return the event of a training that a worker sent; None for the end of a job; raise the error of a failed one."""
    if isinstance(event, JobFailure):
        error = event.error
        extensions = named_extensions(msgspec.to_builtins(config))
        is_local = any(registry.is_local(name) for _, registry, name in extensions)
        if isinstance(error, MissingExtensionError) and is_local:
            raise ConfigError(
                f"{error}; it is registered in this process only: each training of an ensemble has a process of its "
                "own, which finds what an installed package declares as an entry point"
            ) from error
        raise error
    content: RunEvent | None = event.content if isinstance(event, ProgressMessage) else None
    return content


def _write_members(path: Path, names: Sequence[str]) -> None:
    """Write the list of members, unless the file holds it, with the weight of their pair n-gram model."""
    with suppress(RunError):  # a damaged list is written anew
        if file_exists(path) and list(read_ensemble_record(path).members) == list(names):
            return
    write_json(path, EnsembleRecord(tuple(names)))


def num_first_trainings(max_parallel: int) -> int:
    """Return how many trainings of several start at once: only one, if it compiles the kernels for the others.

    On a cluster, each machine compiles its own kernels.

    Args:
        max_parallel: Maximum number of parallel trainings.
    """
    return 1 if uses_local_pool() and will_compile() else max_parallel


def num_parallel_trainings(max_parallel: int, config: Config) -> int:
    """Return how many trainings run in parallel.

    Args:
        max_parallel: Requested number, returned unchanged; 0 chooses the number of available CPU cores divided by the
            threads of a training, at least 1; and 1 on a GPU, or if a training uses all cores (`threads` = 0).
        config: Configuration of the trainings, for its device and number of threads.

    Raises:
        ConfigError: The number is chosen, and the configured GPU is not available.
    """
    if max_parallel:
        return max_parallel
    if find_device(config.device).type != "cpu":
        return 1
    return max(1, available_cores() // config.threads) if config.threads else 1


def shutdown(pool: JobPool) -> None:
    """Ask all trainings of a pool to stop, and wait until each has saved its state. Their last events are dropped.

    Args:
        pool: Pool of the trainings.
    """
    pool.request_stop()
    while pool.busy:
        for _ in pool.events():
            pass


def check_ensemble_folder(folder: Path, members: Sequence[str]) -> None:
    """Check that the trainings of an ensemble may write their files to a folder; nothing is changed.

    Args:
        folder: Folder of the ensemble, which need not exist.
        members: Names of the run folders of its members.

    Raises:
        RunError: The folder holds a single run or other files, its list of members cannot be read, or a folder that is
            written is a symbolic link.
    """
    refuse_links(folder / name for name in (*members, LOCK))
    if not folder.is_dir():
        return
    if file_exists(folder / ENSEMBLE):
        read_bytes(folder / ENSEMBLE)  # a file that cannot be read is reported before the training, not after it
        return
    if has_run(folder):
        raise RunError(f"{folder} holds a single run; name a new folder for the ensemble")
    is_begun = any((folder / member).is_dir() for member in members)
    foreign = unexpected_files(folder, (*members, CONFIDENCE) if is_begun else members)
    if foreign:
        raise RunError(f"{folder} is not empty and holds no ensemble ({', '.join(foreign[:3])}); name a new folder")
