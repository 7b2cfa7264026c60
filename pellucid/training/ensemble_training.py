"""Trainings side by side, each in a process of its own; and the ensemble of runs that differ in their seed alone.

ensemble.json   the names of the members' folders
seed-1 …        the run folder of each member
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
from pellucid.training.loop import Stepped, Stopped, Validated
from pellucid.training.session import Built, Files, RunEvent, train_run
from pellucid.worker_pool import JobFailure, ProgressMessage, WorkerChannel, WorkerPool, available_cores

INTERVAL = 0.25
"""Seconds between two updates that a training in a process of its own tells of."""


class Training(NamedTuple):
    """A training for a process of its own."""

    files: Files
    folder: Path
    config: Config


class WorkerEvent(NamedTuple):
    """An event of one of several trainings."""

    folder: Path
    event: RunEvent


def run_job(training: Training, channel: WorkerChannel) -> bool:
    """Train, and tell the events, some updates only and no traces; whether it came to its end.

    A training that is to end early ends after the update in hand, and has saved what it had reached.
    """
    events = train_run(training.files, training.folder, training.config)
    for event, told in throttle(events):
        if told is not None:
            channel.send_progress(told)
        if channel.stop_requested and not isinstance(event, Stopped):
            events.close()
            return False
    return True


def throttle(events: Iterable[RunEvent]) -> Iterator[tuple[RunEvent, RunEvent | None]]:
    """Each event with what of it goes to another process: nothing of most updates, no traces."""
    last = 0.0
    for event in events:
        now = time.monotonic()
        if isinstance(event, Stepped) and now - last <= INTERVAL:
            yield event, None
            continue
        last = now
        yield event, event._replace(traces=[]) if isinstance(event, Validated) else event


def plan_ensemble(files: Files, folder: Path, config: Config, size: int) -> list[Training]:
    """The trainings of an ensemble: seeds `seed` to `seed + size - 1`, each in a folder of its own, named after it.

    `ConfigError` for no run, and for more than an ensemble has or there are seeds.
    """
    if not 1 <= size <= run.MAX_MEMBERS:
        raise ConfigError(f"ensemble: expected 1 to {run.MAX_MEMBERS:,} runs, got {quote(size)}")
    if config.seed + size > 2**32:
        raise ConfigError(f"seed = {config.seed} leaves no room for the seeds of {size} runs")
    seeds = range(config.seed, config.seed + size)
    return [Training(files, folder / f"seed-{seed}", msgspec.structs.replace(config, seed=seed)) for seed in seeds]


def train_ensemble(trainings: Sequence[Training], folder: Path, at_once: int) -> Generator[WorkerEvent | None]:
    """Train every member, or go on where its training stopped, `at_once` side by side; events as they are heard.

    Now and then nothing is yielded (`None`). Whoever closes the generator stops all trainings: what they have reached
    is saved first. The first error of a training is raised, after the others have been stopped in the same way.
    """
    names = [training.folder.name for training in trainings]
    _check_own(folder, names)
    absent = missing_folders(folder)
    waiting = list(enumerate(trainings))[::-1]
    with ExitStack() as held, WorkerPool[Training](run_job, 1 if will_compile() else at_once) as pool:
        begun = False
        try:
            while waiting or pool.busy:
                while waiting and pool.free_workers:
                    pool.submit(*waiting.pop())
                for event in pool.events():
                    if isinstance(event, JobFailure):
                        raise event.error
                    if isinstance(event, ProgressMessage):
                        if isinstance(event.content, Built) and not begun:
                            # The files are read, and the folder is no stranger's.
                            held.enter_context(run.locked(folder, (run.ENSEMBLE,)))
                            write_json(folder / run.ENSEMBLE, {"members": names})
                            begun = True
                        if isinstance(event.content, Stepped):  # kernels are there, compiled by one and not by each
                            pool.max_workers = at_once
                        yield WorkerEvent(trainings[event.job].folder, event.content)
                yield None
        except BaseException:
            shutdown(pool)
            remove_empty_folders(absent)
            raise


def jobs_at_once(asked: int, config: Config) -> int:
    """How many trainings run side by side: as asked, or (0) as the cores allow; a GPU is not shared unasked."""
    if asked:
        return asked
    if find_device(config.device).type != "cpu":
        return 1
    return max(1, available_cores() // config.threads) if config.threads else 1


def shutdown(pool: WorkerPool[Training]) -> None:
    """Stop all trainings and wait until each has saved what it had reached."""
    pool.request_stop()
    while pool.busy:
        for _ in pool.events():
            pass


def _check_own(folder: Path, members: Sequence[str]) -> None:
    """Refuse a folder that holds a single run, or other things than an ensemble."""
    if not folder.is_dir() or (folder / run.ENSEMBLE).exists():
        return
    if run.has_run(folder):
        raise RunError(f"{folder} holds a single run; name a new folder for the ensemble")
    foreign = unexpected_files(folder, members)
    if foreign:
        raise RunError(f"{folder} is not empty and holds no ensemble ({', '.join(foreign[:3])}); name a new folder")
