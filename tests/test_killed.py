"""A training killed between any two changes of its folder: the same command resumes it bit for bit."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from command_line import command, environment, pellucid
from trained_runs import (
    RUN_FILES,
    assert_same_outcome,
    copies_run,
    copy_files,
    flags,
    own_files,
    records,
    small_config,
    train_to_end,
)

from pellucid.config.settings import Config
from pellucid.training import session as session_module
from pellucid.training import snapshots
from pellucid.training import training_data as reading
from pellucid.training.training_data import TrainingFiles

CHANGES = {"os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.truncate", "os.link", "os.symlink"}
"""Audit events of what changes a folder; opening a file to write is one as well."""
KILLER = """
import os, signal, sys
from pellucid.cli import main
def hear(event, arguments):
    if event == "os.rename" and os.path.basename(arguments[1]) == sys.argv[1]:
        os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(hear)
main(sys.argv[2:])
"""
"""A command that kills itself before a file of the given name is written."""


class FolderRecorder:
    """Copies a folder before each change of it: what a process killed there leaves behind."""

    def __init__(self, folder: Path, to: Path) -> None:
        self.folder = folder
        self.to = to
        self.copies: list[Path] = []
        self.working = False

    def take(self) -> None:
        """One copy, unless nothing has changed since the last one."""
        if not self.folder.exists():
            return
        if not self.copies or _files(self.copies[-1]) != _files(self.folder):
            self.copies.append(Path(shutil.copytree(self.folder, self.to / f"{len(self.copies):03}")))

    def hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        """An audit event, before it takes place."""
        opened = event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
        if self.working or not (opened or event in CHANGES) or not isinstance(arguments[0], str | os.PathLike):
            return
        if Path(os.path.abspath(arguments[0])).is_relative_to(self.folder):
            self.working = True
            try:
                self.take()
            finally:
                self.working = False


_cameras: list[FolderRecorder] = []


def _audit_hook(event: str, arguments: tuple[Any, ...]) -> None:
    for camera in _cameras:
        camera.hear(event, arguments)


@contextmanager
def record_states(folder: Path, to: Path) -> Iterator[list[Path]]:
    """The states that a folder passes through within the block; an audit hook cannot be removed, only silenced."""
    if not hasattr(record_states, "hooked"):
        sys.addaudithook(_audit_hook)
        record_states.hooked = True  # type: ignore[attr-defined]
    camera = FolderRecorder(folder, to)
    _cameras.append(camera)
    try:
        yield camera.copies
    finally:
        _cameras.remove(camera)
    camera.take()


def _files(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, hidden ones as well, and every folder."""
    return {str(p.relative_to(folder)): p.read_bytes() if p.is_file() else b"" for p in sorted(folder.rglob("*"))}


def partial_states(states: list[Path], to: Path) -> Iterator[Path]:
    """Copies of the states whose last change was a line of the log, which breaks off in the middle."""
    for before, after in pairwise(states):
        old, new = _files(before).get("log.jsonl", b""), _files(after).get("log.jsonl", b"")
        if len(new) > len(old):
            copy = Path(shutil.copytree(after, to / after.name))
            (copy / "log.jsonl").write_bytes(new[: (len(old) + len(new)) // 2])
            yield copy


def assert_complete(folder: Path, straight: Path) -> None:
    """A folder holds the outcome of the training that nobody disturbed, and no more."""
    assert_same_outcome(straight, folder)
    assert own_files(folder) == RUN_FILES
    assert {name for name in _files(folder) if Path(name).name.startswith(".")} == {".lock"}


SETTINGS: Mapping[str, tuple[float, Mapping[str, Any]]] = {
    "saved at validations, with a corpus": (1000.0, {"epochs": 3, "learning_rate": 0.3, "weight_averaging": "ema"}),
    "saved at every update": (
        -1.0,
        {"epochs": 1.5, "learning_rate": 0.2, "weight_averaging": "last", "eval_interval": 0.5},
    ),
}


@pytest.fixture(params=SETTINGS.values(), ids=list(SETTINGS))
def tiny_training(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[TrainingFiles, Config]:
    """Data and settings of a training that changes its folder in every way there is, in a few updates."""
    save_seconds, training = request.param
    monkeypatch.setattr(session_module, "SAVE_SECONDS", save_seconds)
    monkeypatch.setattr(session_module, "LOSS_WINDOW", 2)
    monkeypatch.setattr(snapshots, "MAX_SNAPSHOTS", 2)
    monkeypatch.setattr(reading, "MIN_CORPUS_SYMBOLS", 0 if save_seconds > 0 else 1 << 20)
    return copy_files(tmp_path / "data", 16, 6), small_config({"lr_schedule": "constant", **training}, dropout=0.2)


def test_killed_between_any_two_changes_of_the_folder(
    tmp_path: Path, tiny_training: tuple[TrainingFiles, Config]
) -> None:
    """From the very start to the end, and where the last line of the log was cut."""
    files, config = tiny_training
    straight = tmp_path / "runs" / "straight"
    with record_states(straight, tmp_path / "left") as states:
        train_to_end(files, straight, config)
    assert_complete(straight, straight)
    assert {".lock"} in [set(_files(state)) for state in states]
    best = [record["best"] for record in records(straight) if record["event"] == "validated"]
    assert len(best) > 2 and any(best[1:])
    for state in [*states, *partial_states(states, tmp_path / "torn")]:
        train_to_end(files, state, config)
        assert_complete(state, straight)


def test_killed_again_while_it_continues(tmp_path: Path, tiny_training: tuple[TrainingFiles, Config]) -> None:
    """From where the log and the snapshots are ahead of the checkpoint, and temporary files lie about."""
    files, config = tiny_training
    straight, again = tmp_path / "runs" / "straight", tmp_path / "runs" / "again"
    with record_states(straight, tmp_path / "left") as states:
        train_to_end(files, straight, config)
    begun = [state for state in states if any(name.startswith(".training.") for name in _files(state))]
    shutil.copytree(begun[-1], again)
    with record_states(again, tmp_path / "again") as states:
        train_to_end(files, again, config)
    for state in states:
        train_to_end(files, state, config)
        assert_complete(state, straight)


@pytest.mark.parametrize("name", ["training.safetensors", "model.safetensors"])
def test_a_killed_process_resumes(tmp_path: Path, name: str) -> None:
    files, straight, config = copies_run()
    given = ["train", files.train, "--valid", files.valid, "--run", tmp_path / "run", *flags(config)]
    program = [sys.executable, "-c", KILLER, name, *command(*given)[3:]]
    assert subprocess.run(program, env=environment(), capture_output=True, check=False).returncode == -9
    left = {path.name for path in (tmp_path / "run").iterdir()}
    assert ("training.safetensors" in left) == (name == "model.safetensors") and "model.safetensors" not in left
    assert any(each.startswith(f".{name}.") for each in left)
    assert pellucid(*given).code == 0
    assert_complete(tmp_path / "run", straight)
