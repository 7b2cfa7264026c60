"""pellucid export --onnx: files, messages, the measurement, and the refusal of a lossy export."""

import os
from pathlib import Path

import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from command_line import CommandResult, run_pellucid, usage_error_message
from test_onnx_export import FILES
from trained_runs import copy_run_folder, copy_task_run

from pellucid.cli import export_onnx
from pellucid.data.examples import Example
from pellucid.errors import InputError
from pellucid.export.export_check import ExportScore
from pellucid.export.onnx_export import EXPORT_FILES, README


def export(*arguments: object, run: Path | None = None) -> CommandResult:
    return run_pellucid("export", run or copy_task_run().run, *arguments)


def test_the_graphs_are_written_and_measured_on_the_validation_file(tmp_path: Path) -> None:
    result = export("--onnx", tmp_path / "graphs")
    assert result.code == 0, result.err
    assert sorted(path.name for path in (tmp_path / "graphs").iterdir()) == sorted(FILES)
    assert f"wrote {tmp_path / 'graphs'}: encoder.onnx, decoder_step.onnx" in result.err
    lines = result.out.splitlines()
    assert lines[0].startswith("float32: ") and lines[0].endswith(" bytes in two graphs")
    assert lines[1] == f"exact match on {copy_task_run().files.valid}, 10 pairs:"
    assert lines[2].startswith("  float32: ") and len(lines) == 3


def test_8_bit_weights_are_compared_with_float32(tmp_path: Path) -> None:
    result = export("--onnx", tmp_path, "--int8", "--max-drop", "100", "--opset", "21")
    assert result.code == 0, result.err
    assert "int8: " in result.out and " points, " in result.out.splitlines()[-1]
    assert '"weights": "int8"' in (tmp_path / "pellucid.json").read_text("utf-8")


def test_a_file_of_pairs_takes_the_place_of_the_validation_file(tmp_path: Path) -> None:
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("ab\tab\nb\tb\n")
    result = export("--onnx", tmp_path / "graphs", "--check", pairs)
    assert result.code == 0 and f"exact match on {pairs}, 2 pairs:" in result.out


def test_without_a_file_of_pairs_only_float32_is_exported(tmp_path: Path) -> None:
    run = copy_run_folder(copy_task_run().run, tmp_path / "run")
    (run / "log.jsonl").unlink()
    result = export("--onnx", tmp_path / "graphs", run=run)
    assert result.code == 0 and "the graphs are not measured: " in result.err and result.out.count("\n") == 1
    message = usage_error_message(export("--onnx", tmp_path / "int8", "--int8", run=run))
    assert message.startswith("--int8 is measured on a file of pairs: give --check FILE")
    assert not (tmp_path / "int8").exists()


@pytest.mark.parametrize(("loss", "accepted"), [(0.1, True), (0.2, True), (0.3, False)])
def test_a_greater_loss_than_allowed_is_refused(loss: float, accepted: bool) -> None:
    scores = {"float32": ExportScore("exact_match", 80, ()), "int8": ExportScore("exact_match", 80 - loss, ())}
    pairs = export_onnx.MeasuredPairs("pairs.tsv", [])
    if accepted:
        export_onnx._check_drop(scores, pairs, 0.2)
    else:
        with pytest.raises(InputError, match=r"from 80.00 % to 79.70 %.*nothing is written.*--max-drop 0.30"):
            export_onnx._check_drop(scores, pairs, 0.2)


@pytest.mark.parametrize(("correct", "message"), [(1, True), (50, False)])
def test_few_correct_outputs_are_reported(correct: int, message: bool, capsys: pytest.CaptureFixture[str]) -> None:
    outputs = [(("a",),) * 80, (("b",),) * 3 + (("a",),) * 77]
    scores = [ExportScore("exact_match", 100 * correct / 80, each) for each in outputs]
    pairs = export_onnx.MeasuredPairs("pairs.tsv", [Example("a", "a")] * 80)
    export_onnx._report_few_correct(dict(zip(("float32", "int8"), scores, strict=True)), pairs)
    expected = (
        "pellucid: only 1 of 80 outputs correct with float32, so a drop of exact match can hardly show, and one pair "
        "is 1.2 points; 8-bit weights change 3 outputs: train longer, or give a file of more pairs by --check\n"
    )
    assert capsys.readouterr().err == (expected if message else "")


def test_a_format_is_required() -> None:
    assert usage_error_message(export()) == "export needs one format: --onnx DIR or --html FILE"


@pytest.mark.parametrize("points", ["5", "0.2"])
def test_a_largest_drop_without_8_bit_weights_is_refused(tmp_path: Path, points: str) -> None:
    message = usage_error_message(export("--onnx", tmp_path / "graphs", "--max-drop", points))
    assert message == "--max-drop limits the drop of the metric by 8-bit weights, and needs --int8"
    assert not (tmp_path / "graphs").exists()


def test_a_largest_drop_is_a_number_from_0() -> None:
    message = usage_error_message(export("--onnx", "graphs", "--int8", "--max-drop", "-1"))
    assert "--max-drop" in message and "-1" in message


def test_an_opset_out_of_range_is_refused_before_the_run_is_read(tmp_path: Path) -> None:
    message = usage_error_message(export("--onnx", tmp_path, "--opset", "9", run=tmp_path / "missing"))
    assert message.startswith("--opset: expected 17 to ")


def test_graphs_are_not_written_into_a_run_folder_or_over_a_file(tmp_path: Path) -> None:
    message = usage_error_message(export("--onnx", copy_task_run().run))
    assert message.endswith("is a run folder: name another folder for the graphs")
    (tmp_path / "file").write_text("", "utf-8")
    assert usage_error_message(export("--onnx", tmp_path / "file")).endswith("is a file: name a folder for the graphs")


@pytest.mark.parametrize("name", EXPORT_FILES)
def test_files_that_are_of_no_export_are_not_replaced(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("mine\n")
    (tmp_path / "notes.txt").touch()
    message = usage_error_message(export("--onnx", tmp_path))
    assert message.endswith(f"has a file {name}, which no export has written: name another folder for the graphs")
    assert (tmp_path / name).read_text() == "mine\n" and sorted(os.listdir(tmp_path)) == sorted([name, "notes.txt"])


def test_an_export_is_replaced_by_another(tmp_path: Path) -> None:
    for _ in range(2):
        result = export("--onnx", tmp_path)
        assert result.code == 0, result.err
        (tmp_path / README).write_text("old")
    assert export("--onnx", tmp_path).code == 0 and (tmp_path / README).read_text() != "old"


def test_a_page_replaces_pages_only(tmp_path: Path) -> None:
    run = copy_run_folder(copy_task_run().run, tmp_path / "run")
    content = (run / "model.safetensors").read_bytes()
    message = usage_error_message(export("--html", run / "model.safetensors", "--source", "ab", run=run))
    assert message == f"--html {run / 'model.safetensors'} is a file of a run folder: name another file"
    assert (run / "model.safetensors").read_bytes() == content
    (tmp_path / "notes.txt").write_text("mine\n")
    message = usage_error_message(export("--html", tmp_path / "notes.txt", "--source", "ab", run=run))
    assert message == f"--html {tmp_path / 'notes.txt'} exists and is not a web page: name another file"
    assert (tmp_path / "notes.txt").read_text() == "mine\n"
    if os.name != "nt":
        os.mkfifo(tmp_path / "pipe")
        message = usage_error_message(export("--html", tmp_path / "pipe", "--source", "ab", run=run))
        assert message.endswith("is a device or a pipe: name a file")
        assert (tmp_path / "pipe").is_fifo()
    (tmp_path / "page.html").touch()
    for _ in range(2):
        assert export("--html", tmp_path / "page.html", "--source", "ab", run=run).code == 0
