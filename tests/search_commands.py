"""Searches in forked processes, as several commands run them; their trainings pause, so that they can be killed."""

import json
import os
import time
from collections.abc import Callable, Iterator
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from trained_runs import make_small_config, write_copy_files

from pellucid import worker_pool
from pellucid.training.ensemble_training import TrainingJob, run_job
from pellucid.training.training_data import TrainingFiles
from pellucid.worker_pool import MessageSender, WorkerChannel

pytest.importorskip("optuna")

from pellucid.tuning import search
from pellucid.tuning.search import StudyRequest, TrialProgress, resolve_config, tune
from pellucid.tuning.space import RangeDimension, SearchSpace

SPACE = SearchSpace((RangeDimension("training.learning_rate", 0.001, 0.05, None, True),), ())


class SearchCommand(NamedTuple):
    """A search in a process of its own."""

    process: BaseProcess
    events: Path
    """File with an event per line, as JSON objects."""


class SlowConnection(NamedTuple):
    """Connection that pauses before each message."""

    connection: MessageSender

    def send(self, message: Any, /) -> None:  # noqa: ANN401 (as in the protocol)
        time.sleep(0.1)
        self.connection.send(message)


def run_slowly(job: TrainingJob, channel: WorkerChannel) -> bool:
    """Train with a pause at each reported event."""
    return run_job(job, channel._replace(connection=SlowConnection(channel.connection)))


def tiny_request(folder: Path, trials: int, out: Path | None = None, shared: bool = False) -> StudyRequest:
    """Return a search of tiny trainings, which validate six times each."""
    data = folder / "data"
    files = TrainingFiles(data / "train.tsv", data / "dev.tsv") if data.exists() else write_copy_files(data)
    config, _ = resolve_config(make_small_config({"epochs": 3, "eval_interval": 0.5, "metric": "loss"}), files)
    return StudyRequest(files, out or folder / "out", config, SPACE, trials, 0.0, 1, "none", shared)


def list_events(request: StudyRequest) -> Iterator[dict[str, Any]]:
    """Run a search; yield its events, except the progress of trials, with the names of their classes."""
    for event in tune(request):
        if event is not None and not isinstance(event, TrialProgress):
            fields = {name: value for name, value in event._asdict().items() if isinstance(value, int | str)}
            yield {"event": type(event).__name__, **fields}


def run_search(make_request: Callable[[], StudyRequest], events: Path) -> None:
    """Run a search in this process, and write its events to a file as they come."""
    patch = pytest.MonkeyPatch()  # never undone: the process is a fork
    patch.setattr(worker_pool, "START_METHOD", "fork")
    patch.setattr(search, "run_job", run_slowly)
    patch.setattr(search, "SYNC_SECONDS", 0.2)
    with events.open("w", encoding="utf-8") as file:
        for event in list_events(make_request()):
            file.write(json.dumps(event) + "\n")
            file.flush()


def start_search(request: StudyRequest | Callable[[], StudyRequest], events: Path) -> SearchCommand:
    """Start a search in a fork of this process; a function makes a request whose storage cannot be forked."""
    make_request = request if callable(request) else lambda: request
    process = get_context("fork").Process(target=run_search, args=(make_request, events))
    process.start()
    return SearchCommand(process, events)


def read_events(path: Path) -> list[dict[str, Any]]:
    """Return the events of a search so far."""
    text = path.read_text("utf-8") if path.exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def wait_for(condition: Callable[[], bool], process: BaseProcess) -> None:
    """Wait until a condition holds, and fail if the process ends before, or after some minutes."""
    for _ in range(20000):
        if condition():
            return
        assert process.is_alive(), process.exitcode
        time.sleep(0.01)
    os.kill(process.pid or 0, 9)
    raise AssertionError("the condition does not hold after some minutes")
