"""Training of several runs in parallel processes, and of ensembles whose members differ only in the seed.

ensemble.json   names of the members' folders
seed-1 …        run folder of each member
"""

import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import msgspec

from pellucid.config.settings import Config
from pellucid.errors import ConfigError, RunError, quote
from pellucid.files import missing_folders, remove_empty_folders, unexpected_files, write_json
from pellucid.kernels.dispatch import will_compile
from pellucid.model.device import find_device
from pellucid.training import run_folder as run
from pellucid.training.loop import TrainingStopped, UpdateCompleted, ValidationCompleted
from pellucid.training.session import ModelBuilt, RunEvent, TrainingFiles, train_run
from pellucid.worker_pool import JobFailure, ProgressMessage, WorkerChannel, WorkerPool, available_cores

UPDATE_INTERVAL = 0.25
"""Minimum seconds between two updates reported by a worker process."""


class TrainingJob(NamedTuple):
    """One training, run in its own process."""

    files: TrainingFiles
    folder: Path
    config: Config


class WorkerEvent(NamedTuple):
    """Event of one of several trainings."""

    folder: Path
    event: RunEvent


def run_job(training: TrainingJob, channel: WorkerChannel) -> bool:
    """Run a training in a worker process and send its events.

    Args:
        training: The training.
        channel: Channel to the parent process. After a stop request the training saves its state and ends.

    Returns:
        True if the training finished.
    """
    events = train_run(training.files, training.folder, training.config)
    for event, reported in throttle(events):
        if reported is not None:
            channel.send_progress(reported)
        if channel.stop_requested and not isinstance(event, TrainingStopped):
            events.close()
            return False
    return True


def throttle(events: Iterable[RunEvent]) -> Iterator[tuple[RunEvent, RunEvent | None]]:
    """Reduce events for the parent process: few updates, and no traces.

    Args:
        events: Events of a training.

    Yields:
        Each event, and the event to report in its place; None for an update that is not reported.
    """
    last_time = 0.0
    for event in events:
        now = time.monotonic()
        if isinstance(event, UpdateCompleted) and now - last_time <= UPDATE_INTERVAL:
            yield event, None
            continue
        last_time = now
        yield event, event._replace(traces=[]) if isinstance(event, ValidationCompleted) else event


def plan_ensemble(files: TrainingFiles, folder: Path, config: Config, size: int) -> list[TrainingJob]:
    """Return the trainings of an ensemble: one folder for each of the seeds `seed` to `seed + size - 1`.

    Args:
        files: Training and validation data.
        folder: Folder of the ensemble.
        config: Configuration of the first member.
        size: Number of members.

    Raises:
        ConfigError: The size is 0 or too large, or the seeds exceed their range.
    """
    if not 1 <= size <= run.MAX_MEMBERS:
        raise ConfigError(f"ensemble: expected 1 to {run.MAX_MEMBERS:,} runs, got {quote(size)}")
    if config.seed + size > 2**32:
        raise ConfigError(f"seed = {config.seed} leaves no room for the seeds of {size} runs")
    seeds = range(config.seed, config.seed + size)
    return [TrainingJob(files, folder / f"seed-{seed}", msgspec.structs.replace(config, seed=seed)) for seed in seeds]


def train_ensemble(trainings: Sequence[TrainingJob], folder: Path, at_once: int) -> Generator[WorkerEvent | None]:
    """Train every member, or resume it, and yield their events.

    Closing the generator stops all trainings after they have saved their states. The first error of a training is
    raised after the others have stopped in the same way.

    Args:
        trainings: Members of the ensemble.
        folder: Folder of the ensemble.
        at_once: Maximum number of parallel trainings; one until kernels are compiled.

    Yields:
        Events, and None after each poll of the workers.

    Raises:
        RunError: The folder holds a single run or other files.
    """
    names = [training.folder.name for training in trainings]
    _check_ensemble_folder(folder, names)
    new_folders = missing_folders(folder)
    waiting = list(enumerate(trainings))[::-1]
    with ExitStack() as stack, WorkerPool[TrainingJob](run_job, 1 if will_compile() else at_once) as pool:
        folder_locked = False
        try:
            while waiting or pool.busy:
                while waiting and pool.free_workers:
                    pool.submit(*waiting.pop())
                for event in pool.events():
                    if isinstance(event, JobFailure):
                        raise event.error
                    if isinstance(event, ProgressMessage):
                        if isinstance(event.content, ModelBuilt) and not folder_locked:
                            # The data files are read, and the folder is new or belongs to this ensemble.
                            stack.enter_context(run.lock_run_folder(folder, (run.ENSEMBLE,)))
                            write_json(folder / run.ENSEMBLE, {"members": names})
                            folder_locked = True
                        if isinstance(event.content, UpdateCompleted):
                            pool.max_workers = at_once  # the first training has compiled the kernels for the others
                        yield WorkerEvent(trainings[event.job].folder, event.content)
                yield None
        except BaseException:
            shutdown(pool)
            remove_empty_folders(new_folders)
            raise


def num_parallel_trainings(requested: int, config: Config) -> int:
    """Return the number of parallel trainings.

    Args:
        requested: Requested number; 0 for as many as the CPU cores allow, and one on a GPU.
        config: Configuration, with the number of threads of each training.
    """
    if requested:
        return requested
    if find_device(config.device).type != "cpu":
        return 1
    return max(1, available_cores() // config.threads) if config.threads else 1


def shutdown(pool: WorkerPool[TrainingJob]) -> None:
    """Stop all trainings and wait until each has saved its state.

    Args:
        pool: Worker processes.
    """
    pool.request_stop()
    while pool.busy:
        for _ in pool.events():
            pass


def _check_ensemble_folder(folder: Path, members: Sequence[str]) -> None:
    """Raise `RunError` for a folder with a single run or with foreign files."""
    if not folder.is_dir() or (folder / run.ENSEMBLE).exists():
        return
    if run.has_run(folder):
        raise RunError(f"{folder} holds a single run; name a new folder for the ensemble")
    foreign = unexpected_files(folder, members)
    if foreign:
        raise RunError(f"{folder} is not empty and holds no ensemble ({', '.join(foreign[:3])}); name a new folder")
