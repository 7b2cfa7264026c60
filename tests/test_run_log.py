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
from pellucid.run_folder.progress import Progress
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
    monkeypatch.setitem(log_module.MAX_REPEATS, "stepped", 8)
    log, held = RunLog(Path("log.jsonl")), list[list[dict[str, Any]]]()
    for record in make_windows(100):
        log.add(record)
        held.append(list(log.records))
    later = [*range(8, 16, 2), *range(16, 32, 4), *range(32, 64, 8), *range(64, 100, 16)]
    assert [record["update"] for record in log.records] == [*range(8), *later]
    assert all(log.records[: len(records)] == records for records in held)
    assert log.describe_omissions() == []
    assert log.last_progress is not None and log.last_progress["update"] == 99


def test_repeated_records_are_thinned_and_counted(tmp_path: Path) -> None:
    validated = {"exact_match": 1.0, "symbol_error_rate": 1.0, "symbol_accuracy": 1.0, "validation": 1}
    progress = {"update": 1, "samples": 1, "epoch": 0, "seconds": 0.5, "loss": 1.5, **validated}
    read = {"event": "read", "path": "a", "examples": 1, "blank_lines": 0, "bad_lines": ["b"]}
    records: list[dict[str, Any]] = [
        *[{"event": "compiling", "other": ["c"] * 9}] * 50_000,
        *[read] * 1000,
        *[{"event": "validated", "best": False, **progress}] * 20_000,
        *[{"event": "validated", "best": True, **progress}, {"event": "stopped", **progress}],
    ]
    (tmp_path / "log.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in records), "utf-8")
    log = load_run_log(tmp_path)
    assert len(log.records) < 20_000 and len(log.all("read")) < 40 and len(log.all("compiling")) < 8000
    assert log.records[0] == {"event": "compiling"} and log.all("read")[0] == read and log.has_stopped
    assert [record["best"] for record in log.all("validated")[-1:]] == [True] and log.num_damaged == 0
    omitted = len(records) - len(log.records)
    assert log.describe_omissions() == [f"{tmp_path / 'log.jsonl'}: {omitted:,} repeated records left out"]


def test_the_last_best_validation_is_found_in_a_thinned_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(log_module.MAX_REPEATS, "validated", 2)
    log = RunLog(Path("log.jsonl"))
    for update in range(1, 41):
        log.add({"event": "validated", "update": update, "loss": 0.5, "best": True})
    assert len(log.records) < 10
    progress = Progress(update=40, best_validation_score=(1.0, 1.0, -0.5), best_update=40)
    best = log.best_validation(progress)
    assert best is not None and best["update"] == 40 and log.describe_missing_validation(progress) == []


def test_a_record_with_very_many_keys_is_damaged() -> None:
    keys = {f"key {number}": 1 for number in range(200)}
    assert parse_record(json.dumps({"event": "compiling", **keys})) is None
    assert parse_record(json.dumps({"event": "compiling", "other": 1})) == {"event": "compiling", "other": 1}


def test_a_short_log_is_held_entirely(run: Path) -> None:
    log = load_run_log(run)
    assert log.records == read_log(run) and log.has_stopped and log.describe_damage() == []


@pytest.mark.slow
def test_a_long_log_takes_little_memory(tmp_path: Path) -> None:
    lines = "".join(f"{json.dumps(record)}\n" for record in make_windows(60_000))
    (tmp_path / "log.jsonl").write_text(lines, "utf-8")
    tracemalloc.start()
    log = load_run_log(tmp_path)
    assert tracemalloc.get_traced_memory()[1] < 16_000_000
    tracemalloc.stop()
    assert log.counts["stepped", False] == 60_000 and 8192 < len(log.records) < 25_000
