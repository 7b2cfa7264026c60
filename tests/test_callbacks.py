"""Callbacks that the settings name: construction, calls, failures, interruption, in single trainings and ensembles."""

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, cast

import pytest
from trained_runs import (
    assert_runs_identical,
    make_small_config,
    train_to_end,
    write_copy_files,
)

import pellucid
from pellucid.config.settings import Config
from pellucid.config.toml import build_config, override_settings
from pellucid.config.training_types import CALLBACK_TYPES
from pellucid.errors import ArgumentError, ConfigError, RunError
from pellucid.reporting.progress import callback_line
from pellucid.run_folder.run_files import CONFIG
from pellucid.training.ensemble_training import TrainingJob, run_job
from pellucid.training.events import (
    CallbackFailed,
    CallbackInterrupted,
    RunEvent,
    TrainingStopped,
    UpdateCompleted,
    ValidationCompleted,
)
from pellucid.training.session import train_run
from pellucid.worker_pool import WorkerChannel


class Recorder:
    """A callback that records the names of the events."""

    names: ClassVar[list[str]] = []

    def on_event(self, folder: Path, event: RunEvent) -> bool | None:
        """Record the name."""
        self.names.append(type(event).__name__)
        return None

    def close(self) -> None:
        """Record the end."""
        self.names.append("close")


class FailsAtValidation(Recorder):
    """A callback that fails at the first validation."""

    def on_event(self, folder: Path, event: RunEvent) -> bool | None:
        """Raise an error at a validation."""
        if isinstance(event, ValidationCompleted):
            raise OSError("no space left on the device")
        return super().on_event(folder, event)


class StopsAtUpdate(Recorder):
    """A callback that ends the training at the fifth update."""

    def on_event(self, folder: Path, event: RunEvent) -> bool | None:
        """Return true at the fifth update."""
        super().on_event(folder, event)
        return isinstance(event, UpdateCompleted) and event.progress.update == 5


@pytest.fixture(autouse=True)
def registered_callbacks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Register callbacks for each test."""
    monkeypatch.setattr(CALLBACK_TYPES, "registered", {})
    monkeypatch.setattr(Recorder, "names", [])
    for name, callback in (("recorder", Recorder), ("fails", FailsAtValidation), ("stops", StopsAtUpdate)):
        pellucid.register_callback(name, callback)
    yield


def make_callback_config(*names: str) -> Config:
    """Return a small configuration with callbacks."""
    return override_settings(make_small_config({"epochs": 2}), {"training": {"callbacks": list(names)}})


def test_a_callback_receives_all_events_and_is_closed(tmp_path: Path) -> None:
    files = write_copy_files(tmp_path)
    events = train_to_end(files, tmp_path / "run", make_callback_config("recorder"))
    assert Recorder.names == [*(type(event).__name__ for event in events), "close"]
    Recorder.names.clear()
    finished = train_to_end(files, tmp_path / "run", make_callback_config("recorder"))
    assert Recorder.names == [*(type(event).__name__ for event in finished), "close"]
    assert "callbacks = ['recorder']" in (tmp_path / "run" / CONFIG).read_text("utf-8")


def test_a_failure_is_reported_and_the_training_goes_on(tmp_path: Path) -> None:
    files = write_copy_files(tmp_path)
    events = train_to_end(files, tmp_path / "run", make_callback_config("fails", "recorder"))
    failures = [event for event in events if isinstance(event, CallbackFailed)]
    assert failures == [CallbackFailed("fails", "ValidationCompleted", "OSError: no space left on the device")]
    assert isinstance(events[-1], TrainingStopped) and Recorder.names.count("ValidationCompleted") == 2
    assert callback_line(failures[0]) == (
        "note: the callback 'fails' failed at ValidationCompleted, and receives no further events; the training "
        "continues: OSError: no space left on the device"
    )


def test_a_callback_interrupts_and_a_run_resumes_with_other_callbacks(tmp_path: Path) -> None:
    files = write_copy_files(tmp_path)
    events = train_to_end(files, tmp_path / "run", make_callback_config("stops"))
    assert events[-1] == CallbackInterrupted("stops") and Recorder.names[-2:] == ["UpdateCompleted", "close"]
    resumed = train_to_end(files, tmp_path / "run", make_callback_config("recorder"))
    assert isinstance(resumed[-1], TrainingStopped)
    updates = [event.progress.update for event in resumed if isinstance(event, UpdateCompleted)]
    assert updates[0] == 6
    expected = train_to_end(files, tmp_path / "plain", make_callback_config("recorder"))
    assert isinstance(expected[-1], TrainingStopped)
    (tmp_path / "plain" / CONFIG).write_bytes((tmp_path / "run" / CONFIG).read_bytes())
    assert_runs_identical(tmp_path / "run", tmp_path / "plain")


class StopsAtValidation(Recorder):
    """A callback that ends the training at the first validation."""

    def on_event(self, folder: Path, event: RunEvent) -> bool | None:
        """Return true at a validation."""
        return isinstance(event, ValidationCompleted)


class RaisesInterrupt(Recorder):
    """A callback that raises the exception of Ctrl-C from the fifth update on."""

    def on_event(self, folder: Path, event: RunEvent) -> bool | None:
        """Raise from the fifth update on."""
        if isinstance(event, UpdateCompleted) and event.progress.update >= 5:
            raise KeyboardInterrupt
        return super().on_event(folder, event)


class SentMessages:
    """A connection of a worker that keeps its messages."""

    def __init__(self) -> None:
        self.messages = list[Any]()

    def send(self, message: object) -> None:
        """Keep a message."""
        self.messages.append(message)


def test_an_interrupt_in_a_callback_is_named_and_the_state_is_saved(tmp_path: Path) -> None:
    """Regression test: a worker of an ensemble died, and the command did not say how to continue."""
    pellucid.register_callback("ctrl-c", RaisesInterrupt)
    files, run, config = write_copy_files(tmp_path), tmp_path / "run", make_callback_config("ctrl-c")
    events = list[RunEvent]()
    with pytest.raises(KeyboardInterrupt):
        for event in train_run(files, run, config):
            events.append(event)
    assert events[-1] == CallbackInterrupted("ctrl-c")
    assert Recorder.names[-1] == "close" and (run / "training.safetensors").exists()
    connection = SentMessages()
    assert not run_job(TrainingJob(files, run, config), WorkerChannel(connection, 0, None))
    assert connection.messages[-1].content == CallbackInterrupted("ctrl-c")
    with pytest.raises(KeyboardInterrupt) as caught:
        pellucid.train(files.train, files.valid, run, config, progress=False)
    assert caught.value.__notes__ == [f"the same call continues the training in {run}"]


def test_an_interrupted_training_without_progress_is_told(tmp_path: Path) -> None:
    """Regression test: nothing said that the model is not that of a finished training."""
    files, run, config = write_copy_files(tmp_path), tmp_path / "run", make_callback_config()
    with pytest.warns(UserWarning, match="a callback interrupted the training of .*: this is its best model so far"):
        pellucid.train(files.train, files.valid, run, config, progress=False, callbacks=[StopsAtValidation()])


def test_an_object_of_the_caller_that_fails_ends_the_training_whose_state_is_saved(tmp_path: Path) -> None:
    files, settings = write_copy_files(tmp_path), {"size": "tiny", "training": {"epochs": 2.0, "pair_ngram": False}}
    with pytest.raises(OSError, match="no space left"):
        pellucid.train(
            files.train, files.valid, tmp_path / "run", settings, progress=False, callbacks=[FailsAtValidation()]
        )
    assert (tmp_path / "run" / "training.safetensors").exists() and (tmp_path / "run" / "model.safetensors").exists()
    assert pellucid.train(files.train, files.valid, tmp_path / "run", settings, progress=False)


def test_closing_the_events_saves_the_state_and_closes_the_callbacks(tmp_path: Path) -> None:
    events = train_run(write_copy_files(tmp_path), tmp_path / "run", make_callback_config("recorder"))
    for event in events:
        if isinstance(event, UpdateCompleted):
            break
    events.close()
    assert Recorder.names[-1] == "close" and (tmp_path / "run" / "training.safetensors").exists()


class CannotStart(Recorder):
    """A callback that cannot be built."""

    def __init__(self) -> None:
        raise ConnectionError("no server")


def test_unknown_names_and_callbacks_that_cannot_be_built_are_refused(tmp_path: Path) -> None:
    known = "training.callbacks: expected tensorboard, mlflow, recorder, fails or stops, or one that is installed"
    with pytest.raises(ConfigError, match=re.escape(known) + ".*got 'recorde'; did you mean 'recorder'"):
        build_config({"training": {"callbacks": ["recorde"]}}, "a test")
    for wrong in ("recorder", [1], ["a/b"]):
        with pytest.raises(ConfigError, match=r"training\.callbacks"):
            build_config({"training": {"callbacks": wrong}}, "a test")
    with pytest.raises(ConfigError, match="'recorder' is listed twice"):
        build_config({"training": {"callbacks": ["recorder", "recorder"]}}, "a test")
    pellucid.register_callback("cannot", CannotStart)
    with pytest.raises(ConfigError, match="the callback 'cannot' cannot be built: no server"):
        train_to_end(write_copy_files(tmp_path), tmp_path / "run", make_callback_config("cannot"))
    assert not (tmp_path / "run").exists()


def test_objects_of_the_caller_are_closed_in_whatever_way_the_training_ends(tmp_path: Path) -> None:
    """Regression test: only callbacks with a name were closed."""
    files, config = write_copy_files(tmp_path), make_callback_config()

    def train(name: str, *callbacks: Recorder) -> None:
        Recorder.names.clear()
        pellucid.train(files.train, files.valid, tmp_path / name, config, progress=False, callbacks=callbacks)

    train("finished", Recorder(), Recorder())
    assert Recorder.names[-3:] == ["TrainingStopped", "close", "close"]
    with pytest.raises(RunError, match="a callback interrupted the training"):
        train("interrupted", StopsAtUpdate())
    assert Recorder.names[-2:] == ["UpdateCompleted", "close"]
    with pytest.raises(OSError, match="no space left"):
        train("failed", Recorder(), FailsAtValidation())
    assert Recorder.names[-2:] == ["close", "close"]
    with pytest.raises(KeyboardInterrupt):
        train("ctrl-c", RaisesInterrupt())
    assert Recorder.names[-1] == "close"


class CannotClose(Recorder):
    """A callback whose end fails."""

    def close(self) -> None:
        """Raise an error."""
        raise ConnectionError("no server")


def test_an_object_of_the_caller_that_cannot_be_closed_is_reported(tmp_path: Path) -> None:
    files, config = write_copy_files(tmp_path), make_callback_config()
    with pytest.warns(UserWarning, match="a callback, CannotClose, failed at its end: ConnectionError: no server"):
        pellucid.train(
            files.train, files.valid, tmp_path / "run", config, progress=False, callbacks=[Recorder(), CannotClose()]
        )
    assert Recorder.names[-1] == "close"


def test_the_message_names_the_wrong_method() -> None:
    class OnlyEvent:
        """A callback whose method takes only the event."""

        def on_event(self, event: object) -> None:
            """Do nothing."""

    for callback_class, text in (
        (type("Nothing", (), {}), r"it lacks on_event\(self, folder, event\)"),
        (OnlyEvent, "its on_event takes self, event"),
    ):
        with pytest.raises(ArgumentError, match=f"; {text}$"):
            inspect.unwrap(pellucid.register_callback)("mine", cast(Any, callback_class))
