"""The log of a run: each command parses it once, and a long log takes little memory."""

import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from trained_runs import TrainedRun, copy_run_folder, copy_task_run, make_small_config, train_to_end, write_copy_files

from pellucid.cli import main
from pellucid.run_folder import log as log_module
from pellucid.run_folder.log import RunLog, load_run_log, read_log
from pellucid.run_folder.log_records import parse_record
from pellucid.run_folder.predictor_loader import load
from pellucid.training.session import train_run


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Return a copy of a finished run."""
    return copy_run_folder(copy_task_run().run, tmp_path / "run")


@pytest.fixture
def parsed_lines(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list to which each parsed line of a log is appended."""
    lines = list[str]()

    def record_line(line: str) -> dict[str, Any] | None:
        lines.append(line)
        return parse_record(line)

    monkeypatch.setattr(log_module, "parse_record", record_line)
    return lines


def look(*flags: str) -> Callable[[Path], object]:
    """Return a function that looks at a run and writes a file beside it, or prints to the terminal."""
    return lambda run: main(["look", str(run), *(flag.replace("DIR", str(run.parent)) for flag in flags)])


COMMANDS: dict[str, Callable[[Path], object]] = {
    "page": look("--export", "DIR/page.html"),
    "trace": look("--export", "DIR/trace.json"),
    "terminal": look("--terminal"),
    "resume": lambda run: list(train_run(copy_task_run().files, run, copy_task_run().config)),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_parses_each_line_of_the_log_once(run: Path, command: str, parsed_lines: list[str]) -> None:
    lines = (run / "log.jsonl").read_text("utf-8").splitlines()
    COMMANDS[command](run)
    assert parsed_lines == lines


def test_a_prediction_parses_no_log(run: Path, parsed_lines: list[str]) -> None:
    load(run).predict(["ab"])
    assert parsed_lines == []


def test_a_resumed_training_parses_each_line_of_the_log_once(tmp_path: Path, parsed_lines: list[str]) -> None:
    files, config = write_copy_files(tmp_path), make_small_config({"epochs": 2, "pair_ngram": True})
    run = TrainedRun(files, tmp_path / "run", config)
    training = train_run(*run)
    while not (run.run / "training.safetensors").exists():
        next(training)
    training.close()
    assert parsed_lines == []
    lines = (run.run / "log.jsonl").read_text("utf-8").splitlines()
    train_to_end(*run)
    assert parsed_lines == lines


def make_windows(count: int) -> list[dict[str, Any]]:
    """Return records of training losses."""
    progress = {"samples": 1, "epoch": 0, "seconds": 0.5, "loss": 1.5}
    return [{"event": "stepped", "update": update, **progress} for update in range(count)]


def test_a_long_log_is_thinned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_module, "MAX_WINDOWS", 8)
    log, held = RunLog(Path("log.jsonl")), list[list[dict[str, Any]]]()
    for record in make_windows(100):
        log.add(record)
        held.append(list(log.records))
    later = [*range(8, 16, 2), *range(16, 32, 4), *range(32, 64, 8), *range(64, 100, 16)]
    assert [record["update"] for record in log.records] == [*range(8), *later]
    assert all(log.records[: len(records)] == records for records in held)
    assert log.last_progress is not None and log.last_progress["update"] == 99


def test_a_short_log_is_held_entirely(run: Path) -> None:
    log = load_run_log(run)
    assert log.records == read_log(run) and log.has_stopped and log.describe_damage() == []


def test_a_long_log_takes_little_memory(tmp_path: Path) -> None:
    lines = "".join(f"{json.dumps(record)}\n" for record in make_windows(60_000))
    (tmp_path / "log.jsonl").write_text(lines, "utf-8")
    tracemalloc.start()
    log = load_run_log(tmp_path)
    assert tracemalloc.get_traced_memory()[1] < 16_000_000
    tracemalloc.stop()
    assert log.num_windows == 60_000 and 8192 < len(log.records) < 25_000
