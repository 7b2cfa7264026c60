"""pellucid look: the page, files and the terminal view."""

import json
import os
import re
import signal
import socket
import subprocess
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import msgspec
import pytest
from command_line import CommandResult, build_command, build_environment, run_pellucid, usage_error_message
from page_data import make_interrupted_run, make_run_without_model
from trained_runs import copy_run_folder, digits_run, read_folder_state

from pellucid.cli.look import LookArguments, _assemble_page, _wrong_outputs_text
from pellucid.config.toml import load_config, to_toml
from pellucid.run_folder.predictor_loader import load
from pellucid.run_folder.run_files import CONFIG
from pellucid.tasks.task import ATTENTION_CAPTION

ADVICE = "; if it was interrupted, its training command resumes it"
"""Ending of the error before the first validation."""


def look(*arguments: object, stdin: bytes = b"") -> CommandResult:
    return run_pellucid("look", digits_run().run, *arguments, stdin=stdin)


def test_terminal_view_shows_sources_outputs_and_caption() -> None:
    result = look("-", stdin=b"one\nnine two\n")
    assert result.code == 0 and result.err == "" and "\x1b" not in result.out
    for trace in load(digits_run().run).predict(["one", "nine two"]):
        assert f"{trace.text} → {trace.output}" in result.out
    assert result.out.endswith(f"{ATTENTION_CAPTION}\n")


def test_terminal_view_respects_width_and_ascii() -> None:
    result = look("-", "--width", "50", "--ascii", stdin="nine nine nine nine é\n".encode())
    assert result.code == 0 and result.out.isascii()
    assert max(map(len, result.out.split(ATTENTION_CAPTION)[0].splitlines()[:-1])) <= 50


def test_limit_bounds_the_shown_examples() -> None:
    assert look("-", "--max-examples", "2", stdin=b"one\n" * 5).out.count("one →") == 2
    result = look(digits_run().files.valid, "--terminal")
    count = len(digits_run().files.valid.read_text("utf-8").splitlines())
    assert (
        result.out.count("→") >= 10
        and f"10 of {count:,} sources are shown; raise --max-examples to show more" in result.err
    )
    result = look("-", "--max-examples", 2, stdin=b"one\ntwo\nsix\n")
    assert "2 sources are shown, and no more are read" in result.err
    assert "shown" not in look("-", "--max-examples", 4, stdin=b"one\ntwo\nsix\n").err


def test_terminal_shows_wrong_outputs_first_with_the_expected_ones(tmp_path: Path) -> None:
    outputs = [trace.output for trace in load(digits_run().run).predict(["one", "two", "nine two"])]
    path, sources = tmp_path / "pairs.tsv", tmp_path / "sources.tsv"
    path.write_text(f"one\t{outputs[0]}\ntwo\t7x\nnine two\t{outputs[2]}\n", "utf-8")
    result = look(path, "--terminal", "--max-examples", 2)
    assert re.findall("^.* → ", result.out, re.MULTILINE) == ["two → ", "one → "]
    assert result.out.count("wrong, expected: ") == 1 and "\nwrong, expected: 7x\n" in result.out
    assert "pairs.tsv: 1 of 3 outputs is wrong; wrong outputs are shown first\n" in result.err
    assert "2 of 3 sources are shown" in result.err
    result = look(path, "--terminal", "--max-examples", 1)
    assert result.out.count(" → ") == 1 and "1 of the first 2 outputs is wrong" in result.err
    sources.write_text("one\ntwo\n", "utf-8")
    result = look(sources, "--terminal")
    assert "wrong" not in result.out + result.err and result.out.count(" → ") == 2


@pytest.mark.parametrize(
    ("counts", "text"),
    [
        ((1, 1, 9), "the first output is wrong"),  # regression test: "1 of the first 1 outputs are wrong"
        ((0, 1, 1), "the only output is correct"),
        ((0, 3, 3), "0 of 3 outputs are wrong"),
        ((1, 2, 3), "1 of the first 2 outputs is wrong; wrong outputs are shown first"),
        ((2, 2, 3), "2 of the first 2 outputs are wrong; wrong outputs are shown first"),
    ],
)
def test_the_number_of_wrong_outputs_is_a_sentence(counts: tuple[int, int, int], text: str) -> None:
    assert _wrong_outputs_text(*counts) == text


def test_terminal_shows_the_validation_file_by_default(tmp_path: Path) -> None:
    by_default, with_file = look("--terminal"), look(digits_run().files.valid, "--terminal")
    assert by_default == with_file and by_default.code == 0 and by_default.out.count(" → ") == 10
    result = look("--export", tmp_path / "a.json")
    assert result.code == 0 and json.loads((tmp_path / "a.json").read_text())["text"] in by_default.out
    run = copy_run_folder(digits_run().run, tmp_path / "run")
    (run / "log.jsonl").unlink()
    assert usage_error_message(run_pellucid("look", run, "--terminal")) == (
        f"{run}: its log names no validation file; give a FILE"
    )


def test_file_that_the_log_of_another_person_names_is_not_shown(tmp_path: Path) -> None:
    run, private = copy_run_folder(digits_run().run, tmp_path / "run"), tmp_path / "private.txt"
    private.write_text("my secret\nnine\n")
    log = (run / "log.jsonl").read_text("utf-8")
    (run / "log.jsonl").write_text(log.replace(str(digits_run().files.valid), str(private)), "utf-8")
    for flags in (("--terminal",), ("--export", tmp_path / "a.html"), ("--export", tmp_path / "a.json")):
        result = run_pellucid("look", run, *flags)
        assert usage_error_message(result) == (
            f"{run}: {str(private)!r} is not, or no longer, the validation file of this run: it is missing, or its "
            "SHA-256 is not the one in the log; give a FILE"
        )
        assert result.out == ""
    assert not [path for path in tmp_path.iterdir() if path.suffix in (".html", ".json")]
    assert "nine →" in run_pellucid("look", run, "--terminal", private).out


def test_page_is_served_without_a_validation_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = copy_run_folder(digits_run().run, tmp_path / "run")
    (run / "log.jsonl").unlink()
    page = _assemble_page(LookArguments((run,)), served=True)
    assert page.contents.examples == []
    expected = f"pellucid: the page has no examples: {run}: its log names no validation file; give a FILE\n"
    assert capsys.readouterr().err == expected


@pytest.mark.parametrize(("flag", "name"), [("--max-examples", "--max-examples"), ("--beam-size", "beam_size")])
@pytest.mark.parametrize("number", [0, -1])
def test_number_below_one_is_refused(flag: str, name: str, number: int) -> None:
    message = usage_error_message(look("-", flag, number, stdin=b"one\n"))
    assert message.startswith(f"{name}: expected ") and f"got {number}" in message


def test_first_example_is_exported_as_a_picture(tmp_path: Path) -> None:
    for name in ("a.png", "a.svg", "a.json", "a.tex"):
        result = look("-", "--export", tmp_path / name, stdin=b"nine two\n\xff\n")
        assert (result.code, result.out, result.err) == (0, f"{tmp_path / name}\n", "")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert ElementTree.fromstring((tmp_path / "a.svg").read_text("utf-8")).tag.endswith("svg")
    (trace,) = load(digits_run().run).predict(["nine two"])
    assert json.loads((tmp_path / "a.json").read_text("utf-8")) == json.loads(trace.to_json())
    assert "tikzpicture" in (tmp_path / "a.tex").read_text("utf-8")
    assert sorted(read_folder_state(tmp_path)) == ["a.json", "a.png", "a.svg", "a.tex"]


def read_page_contents(path: Path) -> Any:  # noqa: ANN401 (JSON of any shape)
    """Read the contents of an exported page."""
    (data,) = re.findall(r'id="contents">(.*?)</script>', path.read_text("utf-8"), re.DOTALL)
    return json.loads(data)


def test_page_of_a_file_is_exported(tmp_path: Path) -> None:
    result = look(digits_run().files.valid, "--export", tmp_path / "page.html", "--max-examples", 12)
    assert (result.code, result.out) == (0, f"{tmp_path / 'page.html'}\n")
    assert result.err == "pellucid: decoding 40 examples of dev.tsv\n"
    page = read_page_contents(tmp_path / "page.html")
    assert page["num_examples"] == 40 and len(page["examples"]) == 12 and not page["served"]
    card = (digits_run().run / "card.md").read_text("utf-8")
    match = re.search(r"exact match (\d+\.\d\d) %", card)
    assert match is not None and f"{page['corpus']['scores'][0]['value']:.2f}" == match[1]


def test_page_shows_the_validation_file_by_default(tmp_path: Path) -> None:
    assert look("--export", tmp_path / "page.html").code == 0
    assert read_page_contents(tmp_path / "page.html")["num_examples"] == 40


def test_page_of_sources_and_of_several_runs_is_exported(tmp_path: Path) -> None:
    (tmp_path / "sources.txt").write_text("one\ntwo\n")
    result = run_pellucid(
        *("look", digits_run().run, digits_run().run, tmp_path / "sources.txt"),
        *("--export", tmp_path / "page.html", "--beam-size", 2),
    )
    assert result.code == 0
    page = read_page_contents(tmp_path / "page.html")
    assert [item["text"] for item in page["examples"]] == ["one", "two"] and page["corpus"] is None
    assert len(page["compared_runs"]) == 1 and len(page["examples"][0]["traces"]) == 2


def test_page_of_standard_input_is_exported(tmp_path: Path) -> None:
    assert look("-", "--export", tmp_path / "page.html", stdin=b"one\n").code == 0
    assert [item["text"] for item in read_page_contents(tmp_path / "page.html")["examples"]] == ["one"]


@pytest.mark.slow
def test_page_is_served_until_ctrl_c() -> None:
    process = subprocess.Popen(
        build_command("look", digits_run().run, digits_run().files.valid, "--no-open"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=build_environment(),
    )
    assert process.stdout is not None
    address = process.stdout.readline().strip()
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/", address)
    with urlopen(f"{address}api/contents", timeout=60) as response:
        assert json.load(response)["num_examples"] == 40
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0 and errors.endswith("pellucid: server stopped\n") and "Traceback" not in errors


def test_port_in_use_is_an_error() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        message = usage_error_message(look(digits_run().files.valid, "--port", listener.getsockname()[1]))
    assert message.startswith("--port ") and message.endswith("address already in use")


@pytest.mark.parametrize(
    ("name", "ending"), [("a.pdf", "'.pdf'"), ("a", "a name without an ending"), ("a.html.txt", "'.txt'")]
)
def test_unknown_suffix_is_refused(tmp_path: Path, name: str, ending: str) -> None:
    message = usage_error_message(look("-", "--export", tmp_path / name, stdin=b"one\n"))
    assert message == f"--export takes a file that ends with .html, .png, .svg, .json or .tex, got {ending}"
    assert list(tmp_path.iterdir()) == []


def test_export_and_terminal_exclude_each_other(tmp_path: Path) -> None:
    message = usage_error_message(look(digits_run().files.valid, "--terminal", "--export", tmp_path / "a.html"))
    assert message == "--terminal and --export exclude each other"
    assert list(tmp_path.iterdir()) == []


def test_pipe_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    message = usage_error_message(look(tmp_path / "pipe", "--export", tmp_path / "a.html"))
    assert message == f"{tmp_path / 'pipe'} is a pipe, but look reads its input several times: write it to a file first"


@pytest.mark.parametrize("name", ["a.png", "a.svg", "a.html", "a.json", "a.tex"])
def test_missing_folder_is_an_error(tmp_path: Path, name: str) -> None:
    result = look(digits_run().files.valid, "--export", tmp_path / "none" / name)
    assert result.code == 2 and result.out == ""
    assert result.err.endswith(f"cannot write {tmp_path / 'none' / name}: no such file or directory\n")


def test_file_of_neither_pairs_nor_sources_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "mixed.tsv").write_text("one\t1\ntwo\n")
    message = usage_error_message(look(tmp_path / "mixed.tsv", "--export", tmp_path / "a.html"))
    assert "mixed.tsv:2: expected 2 columns, got 1" in message and not (tmp_path / "a.html").exists()
    assert message.endswith('; --on-bad-line skip (data.on_bad_line = "skip") skips and counts such lines')
    result = look(tmp_path / "mixed.tsv", "--export", tmp_path / "a.html", "--on-bad-line", "skip")
    assert result.code == 0 and "1 bad line skipped, the first: line 2" in result.err


def test_invalid_file_is_an_error_before_the_first_checkpoint(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / CONFIG).write_bytes((digits_run().run / CONFIG).read_bytes())
    (tmp_path / "mixed.tsv").write_text("one\t1\ntwo\n")
    assert "mixed.tsv:2: expected 2 columns, got 1" in usage_error_message(
        run_pellucid("look", run, tmp_path / "mixed.tsv")
    )


def test_skipped_bad_lines_are_counted(tmp_path: Path) -> None:
    run, path = copy_run_folder(digits_run().run, tmp_path / "run"), tmp_path / "mixed.txt"
    config = load_config(run / CONFIG)
    data = msgspec.structs.replace(config.data, on_bad_line="skip")
    (run / CONFIG).write_text(to_toml(msgspec.structs.replace(config, data=data)), encoding="utf-8")
    path.write_bytes(b"one\n\xff\nnine\n")
    result = run_pellucid("look", run, path, "--terminal")
    assert result.code == 0 and "nine →" in result.out
    assert result.err.startswith("pellucid: 1 bad line skipped, the first: line 2: invalid UTF-8")
    exported = run_pellucid("look", run, path, "--export", tmp_path / "a.html")
    assert "mixed.txt: 1 bad line skipped" in exported.err
    assert "1 bad line skipped" in (tmp_path / "a.html").read_text("utf-8")


def test_runs_of_different_tasks_are_refused(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    config = load_config(digits_run().run / CONFIG)
    data = msgspec.structs.replace(config.data, target_symbols="position")
    (other / CONFIG).write_text(to_toml(msgspec.structs.replace(config, task="point", data=data)))
    message = usage_error_message(run_pellucid("look", digits_run().run, other, "--no-open"))
    assert "runs of different tasks cannot be compared" in message and "other is 'point'" in message


def test_folder_without_a_run_is_an_error(tmp_path: Path) -> None:
    assert "the folder of a run is required" in usage_error_message(run_pellucid("look"))
    assert "is not a run folder" in usage_error_message(run_pellucid("look", tmp_path))
    assert "show one run: give one RUN" in usage_error_message(look(digits_run().run, "--terminal"))
    run = copy_run_folder(digits_run().run, tmp_path / "run")
    (run / "log.jsonl").unlink()
    assert usage_error_message(run_pellucid("look", run, "--export", tmp_path / "a.html")) == (
        f"{run}: its log names no validation file; give a FILE"
    )


def test_compared_run_without_a_model_is_reported_before_decoding(tmp_path: Path) -> None:
    unfinished, page = make_interrupted_run(tmp_path / "whole"), tmp_path / "a.html"
    without_model, without_checkpoint = (
        copy_run_folder(unfinished, tmp_path / "killed"),
        make_run_without_model(tmp_path / "bare", unfinished),
    )
    (without_model / "model.safetensors").unlink()
    advice = "run the training command again; it writes the model from the checkpoint"
    for run, expected in (
        (without_model, f"{without_model / 'model.safetensors'} is missing: {advice}"),
        (
            without_checkpoint,
            f"{without_checkpoint} holds no model yet: its training has not reached a first validation{ADVICE}",
        ),
    ):
        assert (
            usage_error_message(run_pellucid("look", unfinished, run, digits_run().files.valid, "--export", page))
            == expected
        )
    assert not page.exists()


@pytest.mark.parametrize("with_file", [True, False])
def test_page_of_a_run_without_a_model_is_refused(tmp_path: Path, with_file: bool) -> None:
    without_checkpoint = make_run_without_model(tmp_path / "bare", digits_run().run)
    file = [digits_run().files.valid] if with_file else []
    for name in ("a.html", "a.png"):
        assert usage_error_message(run_pellucid("look", without_checkpoint, *file, "--export", tmp_path / name)) == (
            f"{without_checkpoint} holds no model yet: its training has not reached a first validation{ADVICE}"
        )


def test_missing_file_is_an_error() -> None:
    assert "no source" in usage_error_message(look("-", stdin=b""))
    assert "standard input:1: invalid UTF-8" in usage_error_message(look("-", stdin=b"\xff\n"))
