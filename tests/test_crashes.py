"""A sample of the crash trials (benchmarks/crashes.py) and of the states after a loss of power."""

import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.crashes import draw_kinds
from benchmarks.power_loss import Call, Disk, check_order

ROOT = Path(__file__).parents[1]
NEEDS_SHIM = pytest.mark.skipif(
    not sys.platform.startswith("linux") or not (shutil.which("cc") or shutil.which("gcc")),
    reason="faults at system calls need Linux and a C compiler",
)
KINDS = ("kill", "error", "second", "rename", "remove", "clock", "nan", "memory")


def run_benchmark(name: str, *arguments: object) -> str:
    """Run a program of the folder benchmarks; return its output after checking its exit code."""
    environment = {key: value for key, value in os.environ.items() if key not in ("LD_PRELOAD", "CRASHES_FOLDER")}
    command = [sys.executable, str(ROOT / "benchmarks" / name), *map(str, arguments)]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.mark.slow
@NEEDS_SHIM
def test_trainings_with_faults_end_as_an_undisturbed_one(tmp_path: Path) -> None:
    records = tmp_path / "trials.jsonl"
    runs = ("train", "every update", "held out", "fine-tuning")
    arguments = ("--trials", 14, "--folder", tmp_path / "trials", "--json", records)
    output = run_benchmark("crashes.py", *arguments, "--kinds", *KINDS, "--runs", *runs)
    trials = [json.loads(line) for line in records.read_text("utf-8").splitlines()]
    assert len(trials) == 14 and not any(trial["problems"] or trial["bytes_lost"] for trial in trials)
    assert sum(bool(trial["faults"]) for trial in trials) >= 12, trials
    assert "| all | 14 |" in output


@NEEDS_SHIM
def test_states_after_a_loss_of_power_are_resumed(tmp_path: Path) -> None:
    output = run_benchmark("power_loss.py", "--states", 8, "--runs", "train", "--folder", tmp_path / "states")
    assert "8 resumed, 0 failed" in output and "training.safetensors 4" in output


def test_kinds_are_drawn_by_their_weights() -> None:
    drawn = draw_kinds(20, {"kill": 3, "error": 1})
    assert drawn.count("kill") == 15 and drawn[:4].count("error") == 1


WRITTEN = [
    Call("open", 5, 0, b"", 0, "/d/.a.00000000.tmp", ""),
    Call("write", 5, 0, b"content", 7, "/d/.a.00000000.tmp", ""),
    Call("fsync", 5, 0, b"", 0, "/d/.a.00000000.tmp", ""),
    Call("rename", 5, 0, b"", 0, "/d/.a.00000000.tmp", "/d/a"),
    Call("fsync", 1, 0, b"", 0, "/d", ""),
]
"""Calls of an atomic write."""


@pytest.mark.parametrize(
    ("left_out", "problem"),
    [
        (2, "write of /d/.a.00000000.tmp is not flushed before the renaming to a"),
        (4, "the folder of a is never flushed"),
    ],
)
def test_a_missing_flush_is_found(left_out: int, problem: str) -> None:
    assert check_order(WRITTEN) == ({"a": 1}, [])
    assert check_order([*WRITTEN[:left_out], *WRITTEN[left_out + 1 :]])[1] == [problem]


def test_the_model_of_the_disk_loses_what_was_not_flushed() -> None:
    disk, generator = Disk(Path("/d")), random.Random(1)
    for call in WRITTEN[:2]:
        disk.apply(call)
    assert disk.state("all", generator) == {".a.00000000.tmp": b"content"} and disk.state("flushed", generator) == {}
    assert disk.state("names", generator) == {".a.00000000.tmp": b""}
    for call in WRITTEN[2:4]:
        disk.apply(call)
    assert disk.state("names", generator) == {"a": b"content"} and disk.state("data", generator) == {}
    disk.apply(WRITTEN[4])
    assert disk.state("flushed", generator) == {"a": b"content"}
