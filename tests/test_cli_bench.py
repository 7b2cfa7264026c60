"""pellucid bench: JSON, table, figure and errors."""

import json
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from bench_cases import make_fake_result
from command_line import run_pellucid, send_interrupt, start_command, usage_error_message, wait_for_exit

from pellucid.bench import scaling
from pellucid.bench.cases import BenchRequest
from pellucid.bench.results import BenchResult, StageTime
from pellucid.cli import bench

NUMBER_FIELDS = (
    *("samples_per_cpu_second", "samples_per_second", "tokens_per_second", "peak_mib", "floor_ratio", "floor_ms"),
    *("step_ms", "step_cpu_ms", "operations"),
)
SHORT_MEASUREMENT = ("--seconds", "0.1", "--repeats", "2")


def assert_record(record: dict[str, Any]) -> None:
    """Assert that a record has every documented field."""
    assert (record["case"], record["cell"], record["threads"]) == ("tiny", "gru", 1)
    assert all(isinstance(record[name], float) and record[name] > 0 for name in NUMBER_FIELDS)
    assert isinstance(record["first_call_seconds"], float) and record["first_call"] in ("loaded", "compiled", "plain")
    assert record["machine"]["cores"] > 0 and record["machine"]["versions"]["torch"]


@pytest.mark.slow
def test_json_of_one_case_is_one_object() -> None:
    result = run_pellucid("bench", "train", "--case", "tiny", "--cell", "gru", "--json", *SHORT_MEASUREMENT)
    assert (result.code, result.err) == (0, "")
    record = json.loads(result.out)
    assert_record(record)
    assert record["task"] == "train" and record["start_seconds"] > 0 and "profile" not in record
    assert (record["shape"]["hidden"], record["shape"]["rows"], record["shape"]["steps"]) == (10, 100, 21)


def test_table_has_a_row_per_case_a_legend_the_machine_and_the_profile(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench, "run_measurement", lambda request: make_fake_result(1e9, 5.0, 100.0))
    monkeypatch.setattr(bench, "run_profile", lambda request: [StageTime("reading", 1.0, 1.0, 0.25, 0.5)])
    assert bench.main(["train", "--case", "tiny", "--cell", "gru", "--profile"]) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out and max(map(len, out.splitlines())) <= bench.MIN_TABLE_WIDTH
    lines = out.splitlines()
    (row,) = [line.split() for line in lines if line.split()[:3] == ["train", "tiny", "gru"]]
    assert row[3:] == ["1", "1", "1", "5.0", "2.5", "2.00", "100", "1.0", "l", "2.0"]
    assert all(any(line.startswith(name) for line in lines) for name in ("machine", "versions", "threads", "date"))
    assert any(line.startswith("floor ") for line in lines)
    (stage,) = [line.split() for line in lines if line.startswith(" reading")]
    assert stage == ["reading", "1.00", "25.0%", "1.00", "50.0%"]


def test_json_of_several_cases_is_a_list(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(bench, "run_measurement", lambda request: make_fake_result(1e9, 5.0, 100.0))
    assert bench.main(["all", "--case", "tiny", "small", "--json", "--plain"]) == 0
    records = json.loads(capsys.readouterr().out)
    assert len(records) == 3 * 2 * 2 * 2
    for record in records:
        assert_record(record)


def test_each_precision_of_training_has_a_row(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Searches are in float32, and so are updates in plain PyTorch."""

    def fake_result(request: BenchRequest) -> BenchResult:
        result = make_fake_result(1e9, 5.0, 100.0)
        return msgspec.structs.replace(result, task=request.task, plain=request.plain, precision=request.precision)

    monkeypatch.setattr(bench, "run_measurement", fake_result)
    monkeypatch.setattr("pellucid.model.device.check_precision", lambda device, precision: None)
    arguments = ["all", "--case", "tiny", "--cell", "gru", "--precision", "float32", "bf16", "--plain"]
    assert bench.main(arguments) == 0
    names = [line.strip().split(" tiny")[0].split() for line in capsys.readouterr().out.splitlines() if " gru " in line]
    assert names == [
        *(["train"], ["train", "bf16"], ["train", "plain"]),
        *(["greedy"], ["greedy", "plain"], ["beam"], ["beam", "plain"]),
    ]


@pytest.mark.slow
def test_scaling_curves_are_plotted_and_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(
        scaling, "run_step_measurement", lambda request: make_fake_result(1e9 * request.digits, 5.0, 100.0)
    )
    assert bench.main(["greedy", "--scaling", str(tmp_path / "a.png")]) == 0
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert capsys.readouterr().out.count("hidden") == 5
    assert bench.main(["greedy", "--scaling", str(tmp_path / "a.svg"), "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == 15 and (tmp_path / "a.svg").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("walk",), "there is no task 'walk'"),
        (("train", "--case", "huge"), "there is no case 'huge'"),
        (("train", "--cell", "rnn"), "there is no cell 'rnn'"),
        (("train", "--threads", "-1"), "--threads: expected 0 or more, got -1"),
        (("train", "--repeats", "0"), "--repeats: expected 1 or more, got 0"),
        (("train", "--seconds", "0"), "--seconds: expected a number above 0, got 0"),
        (("train", "--precision", "half"), "there is no precision 'half' (float32, bf16)"),
        (("train", "--seconds", "nan"), "--seconds: expected a number above 0, got nan"),
        (("greedy", "--profile"), "--profile requires training"),
        (("all", "--scaling", "a.png"), "--scaling requires one task"),
        (("train", "--scaling", "a.pdf"), "--scaling takes a file that ends with .png or .svg, got '.pdf'"),
        (
            ("train", "--scaling", "a"),
            "--scaling takes a file that ends with .png or .svg, got a name without ",
        ),
        (("train", "--scaling", "none/a.png"), "cannot write none/a.png: no such file or directory"),
    ],
)
def test_invalid_combinations_are_refused_in_one_line(arguments: tuple[str, ...], message: str) -> None:
    assert usage_error_message(run_pellucid("bench", *arguments)).startswith(message)


@pytest.mark.slow
def test_interruption_ends_the_measurement_at_once() -> None:
    with start_command("bench", "train", "--case", "tiny", "--cell", "gru", "--seconds", "60") as process:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        deadline = time.monotonic() + 60
        while not children.read_text() and time.monotonic() < deadline:
            time.sleep(0.1)  # the worker process may not exist yet
        time.sleep(1)
        send_interrupt(process)
        result = wait_for_exit(process)
    assert (result.code, result.out) == (130, "")
    assert result.err.strip() == "pellucid: interrupted"
