"""Training killed between any two changes of its folder: the same command resumes it bit for bit."""

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
from command_line import build_command, build_environment, run_pellucid
from trained_runs import (
    RUN_FILES,
    assert_runs_identical,
    comparable_log_records,
    copy_task_run,
    list_run_files,
    make_small_config,
    train_to_end,
    training_flags,
    write_copy_files,
)

from pellucid.config.settings import Config
from pellucid.training import corpus_cache, run_folder_writer, snapshots, training_records
from pellucid.training.training_data import TrainingFiles

CHANGE_EVENTS = {"os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.truncate", "os.link", "os.symlink"}
"""Audit events that change a folder, besides opening a file for writing."""
KILL_PROGRAM = """
import os, signal, sys
from pellucid.cli import main
def kill_before_rename(event, arguments):
    if event == "os.rename" and os.path.basename(arguments[1]) == sys.argv[1]:
        os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(kill_before_rename)
main(sys.argv[2:])
"""
"""Program that runs a command and kills itself before a file of the given name is written."""


class FolderRecorder:
    """Copy a folder before each of its changes, as a process killed at that point leaves it behind."""

    def __init__(self, folder: Path, to: Path) -> None:
        self.folder = folder
        self.to = to
        self.copies: list[Path] = []
        self.working = False

    def copy_folder(self) -> None:
        """Copy the folder, unless it has not changed since the last copy."""
        if not self.folder.exists():
            return
        if not self.copies or _files(self.copies[-1]) != _files(self.folder):
            self.copies.append(Path(shutil.copytree(self.folder, self.to / f"{len(self.copies):03}")))

    def handle_event(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Copy the folder if an audit event, which is about to happen, changes it."""
        opened = event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
        if self.working or not (opened or event in CHANGE_EVENTS) or not isinstance(arguments[0], str | os.PathLike):
            return
        if Path(os.path.abspath(arguments[0])).is_relative_to(self.folder):
            self.working = True
            try:
                self.copy_folder()
            finally:
                self.working = False


_recorders: list[FolderRecorder] = []


def _audit_hook(event: str, arguments: tuple[Any, ...]) -> None:
    for recorder in _recorders:
        recorder.handle_event(event, arguments)


@contextmanager
def record_states(folder: Path, to: Path) -> Iterator[list[Path]]:
    """Record the states of a folder within the block. An audit hook cannot be removed, only disabled."""
    if not hasattr(record_states, "hooked"):
        sys.addaudithook(_audit_hook)
        record_states.hooked = True  # type: ignore[attr-defined]
    recorder = FolderRecorder(folder, to)
    _recorders.append(recorder)
    try:
        yield recorder.copies
    finally:
        _recorders.remove(recorder)
    recorder.copy_folder()


def _files(folder: Path) -> dict[str, bytes]:
    """Return the contents of all files and folders below a folder, hidden ones included."""
    return {str(p.relative_to(folder)): p.read_bytes() if p.is_file() else b"" for p in sorted(folder.rglob("*"))}


def copy_with_partial_logs(states: list[Path], to: Path) -> Iterator[Path]:
    """Yield a copy of each state whose last change is a line of the log, with this line truncated."""
    for before, after in pairwise(states):
        old, new = _files(before).get("log.jsonl", b""), _files(after).get("log.jsonl", b"")
        if len(new) > len(old):
            copy = Path(shutil.copytree(after, to / after.name))
            (copy / "log.jsonl").write_bytes(new[: (len(old) + len(new)) // 2])
            yield copy


def assert_complete(folder: Path, uninterrupted: Path) -> None:
    """Assert that a folder has the outcome of the uninterrupted training and no other files."""
    assert_runs_identical(uninterrupted, folder)
    pair_ngram = ["pair_ngram.safetensors"] if (uninterrupted / "pair_ngram.safetensors").exists() else []
    assert list_run_files(folder) == sorted([*RUN_FILES, *pair_ngram])
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
    """Return data and settings of a training of a few updates that changes its folder in all possible ways."""
    save_seconds, training = request.param
    monkeypatch.setattr(run_folder_writer, "SAVE_SECONDS", save_seconds)
    monkeypatch.setattr(training_records, "LOSS_WINDOW", 2)
    monkeypatch.setattr(snapshots, "MAX_SNAPSHOTS", 2)
    monkeypatch.setattr(corpus_cache, "MIN_CORPUS_SYMBOLS", 0 if save_seconds > 0 else 1 << 20)
    return write_copy_files(tmp_path / "data", 16, 6), make_small_config(
        {"lr_schedule": "constant", "pair_ngram": True, **training}, dropout=0.2
    )


@pytest.mark.slow
def test_training_resumes_after_a_kill_between_any_two_changes(
    tmp_path: Path, tiny_training: tuple[TrainingFiles, Config]
) -> None:
    """The states are all those from start to end, and those with a truncated last line of the log."""
    files, config = tiny_training
    uninterrupted = tmp_path / "runs" / "uninterrupted"
    with record_states(uninterrupted, tmp_path / "left") as states:
        train_to_end(files, uninterrupted, config)
    assert_complete(uninterrupted, uninterrupted)
    assert {".lock"} in [set(_files(state)) for state in states]
    assert (uninterrupted / "pair_ngram.safetensors").exists()
    best = [record["best"] for record in comparable_log_records(uninterrupted) if record["event"] == "validated"]
    assert len(best) > 2 and any(best[1:])
    for state in [*states, *copy_with_partial_logs(states, tmp_path / "torn")]:
        train_to_end(files, state, config)
        assert_complete(state, uninterrupted)


@pytest.mark.slow
def test_training_resumes_after_a_kill_of_a_resumed_training(
    tmp_path: Path, tiny_training: tuple[TrainingFiles, Config]
) -> None:
    """The first kill leaves temporary files, and a log and snapshots that are newer than the checkpoint."""
    files, config = tiny_training
    uninterrupted, resumed = tmp_path / "runs" / "uninterrupted", tmp_path / "runs" / "again"
    with record_states(uninterrupted, tmp_path / "left") as states:
        train_to_end(files, uninterrupted, config)
    with_temporaries = [state for state in states if any(name.startswith(".training.") for name in _files(state))]
    shutil.copytree(with_temporaries[-1], resumed)
    with record_states(resumed, tmp_path / "again") as states:
        train_to_end(files, resumed, config)
    for state in states:
        train_to_end(files, state, config)
        assert_complete(state, uninterrupted)


@pytest.mark.parametrize("name", ["training.safetensors", "model.safetensors"])
def test_training_resumes_after_a_killed_process(tmp_path: Path, name: str) -> None:
    files, uninterrupted, config = copy_task_run()
    arguments = ["train", files.train, "--valid", files.valid, "--run", tmp_path / "run", *training_flags(config)]
    program = [sys.executable, "-c", KILL_PROGRAM, name, *build_command(*arguments)[3:]]
    assert subprocess.run(program, env=build_environment(), capture_output=True, check=False).returncode == -9
    remaining = {path.name for path in (tmp_path / "run").iterdir()}
    assert ("training.safetensors" in remaining) == (
        name == "model.safetensors"
    ) and "model.safetensors" not in remaining
    assert any(each.startswith(f".{name}.") for each in remaining)
    assert run_pellucid(*arguments).code == 0
    assert_complete(tmp_path / "run", uninterrupted)
