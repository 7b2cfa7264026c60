"""training/local_workers.py: pellucid train --workers, its exit code after a mistake, a signal and a success."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from command_line import build_environment
from torch.distributed.elastic.multiprocessing.api import SignalException
from trained_runs import write_copy_files

from pellucid.training import local_workers
from pellucid.training.local_workers import STOP_VARIABLE, killing_signal, train_in_workers

SECONDS = 240.0
"""Time limit of a training in processes of its own."""
FLAGS = ["--valid", "dev.tsv", "--run", "run", "--workers", "2", "--no-pair-ngram"]


def start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """Start `pellucid train --workers 2` in a new process."""
    command = [sys.executable, "-m", "pellucid", "train", *arguments, *FLAGS]
    return subprocess.Popen(
        command, cwd=folder, env=build_environment(), stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True
    )


@pytest.mark.parametrize(
    ("codes", "expected"),
    [
        ([2], 0),
        ([2, -signal.SIGTERM], 0),
        ([-signal.SIGTERM, 1], 0),
        ([-signal.SIGKILL, 2], signal.SIGKILL),
        ([-signal.SIGTERM, -signal.SIGSEGV], signal.SIGSEGV),
        ([-signal.SIGTERM], signal.SIGTERM),
        ([-signal.SIGTERM, -signal.SIGTERM], signal.SIGTERM),
    ],
)
def test_the_launcher_ends_the_others_by_a_signal_that_is_not_the_cause(codes: Sequence[int], expected: int) -> None:
    assert killing_signal(codes) == expected


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_to_the_launcher_is_its_exit_code(number: int, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    stop_times = list[str]()

    def _launch(_: object, __: object) -> Callable[..., None]:
        """Return a launch that a signal ends."""

        def _run(*_: str) -> None:
            """Record the time for an orderly end, and end as by a signal."""
            stop_times.append(os.environ[STOP_VARIABLE])
            raise SignalException("", signal.Signals(number))

        return _run

    monkeypatch.setenv(STOP_VARIABLE, "")
    monkeypatch.delenv(STOP_VARIABLE)  # afterwards, it is as before the test
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr(local_workers, "elastic_launch", _launch)
    assert train_in_workers(["train.tsv"], 2) == code
    assert int(stop_times[0]) >= 600, "worker 0 may end a long validation and write a checkpoint"


@pytest.mark.slow
def test_a_bad_line_is_the_only_message(tmp_path: Path) -> None:
    """Worker 0 reads the file before it connects: the launcher ends worker 1, which waits for it."""
    write_copy_files(tmp_path)
    (tmp_path / "bad.tsv").write_text("a\ta\nno target\nb\tb\n")
    training = start(tmp_path, "bad.tsv", "--time", "1h")
    _, errors = training.communicate(timeout=SECONDS)
    assert training.returncode == 2, errors
    assert "bad.tsv:2: " in errors and "killed by signal" not in errors and "Traceback" not in errors


@pytest.mark.slow
def test_a_training_ends_with_success(tmp_path: Path) -> None:
    write_copy_files(tmp_path)
    training = start(tmp_path, "train.tsv", "--size", "tiny", "--epochs", "2")
    _, errors = training.communicate(timeout=SECONDS)
    assert training.returncode == 0, errors
    assert (tmp_path / "run" / "model.safetensors").exists()


def test_ctrl_c_writes_a_checkpoint_and_ends_all(tmp_path: Path) -> None:
    write_copy_files(tmp_path)
    endless = ["--epochs", "100000", "--patience", "0", "--training.perfect-patience", "0"]
    training = start(tmp_path, "train.tsv", "--size", "tiny", *endless)
    deadline = time.monotonic() + SECONDS
    while not (tmp_path / "run" / "training.safetensors").exists() and time.monotonic() < deadline:
        assert training.poll() is None
        time.sleep(0.05)
    training.send_signal(signal.SIGINT)
    _, errors = training.communicate(timeout=SECONDS)
    assert training.returncode == 130, errors
    assert "the same command resumes from run" in errors and "Traceback" not in errors
