"""cli/prepare.py: the subcommand prepare, and trainings on its folder."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import CommandResult, build_environment, run_pellucid, usage_error_message

from pellucid.cli.prepare import _next_command


def write_table(path: Path) -> None:
    """Write a table with three columns, of which some rows have no target."""
    rows = [f"{n},word {n % 40},{'' if n % 25 == 3 else f'w o r d {n % 40}'}" for n in range(120)]
    path.write_text("\n".join(["id,word,phones", *rows, ""]))


COLUMNS = ("--source-column", "word", "--target-column", "phones", "--target-symbols", "words")


def run(folder: Path, *arguments: object) -> CommandResult:
    return run_pellucid(*arguments, folder=folder)


@pytest.mark.slow
def test_a_table_is_prepared_trained_on_and_evaluated(tmp_path: Path) -> None:
    write_table(tmp_path / "words.csv")
    stopped = run(tmp_path, "prepare", "words.csv", "--out", "prepared", *COLUMNS)
    assert "words.csv:5: the target is empty; --on-bad-line skip" in usage_error_message(stopped)
    result = run(tmp_path, "prepare", "words.csv", "--out", "prepared", *COLUMNS, "--on-bad-line", "skip")
    assert result.code == 0, result.err
    assert "prepared: 103 training pairs, 12 validation pairs (held out)" in result.out
    assert "pellucid train prepared --run runs/prepared" in result.out
    assert "prepared/bad-lines.txt: all 5 bad lines" in result.err
    assert "the file has 3 columns; used are 'word' as source, 'phones' as target" in result.err
    train = ("train", "prepared", "--run", "run", "--epochs", "1")
    trained = run(tmp_path, *train, "--size", "tiny")
    assert trained.code == 0, trained.err
    assert "prepared: 103 examples" in trained.err and "prepared from words.csv, without 5 bad lines" in trained.err
    assert run(tmp_path, "evaluate", "run", "words.csv", "--on-bad-line", "skip").code == 0
    assert "exact match" in run(tmp_path, "evaluate", "run", "prepared/validation.jsonl").out
    assert run(tmp_path, *train, "--size", "tiny").code == 0  # finished: it stays as it is
    again = run(tmp_path, "prepare", "words.csv", "--out", "prepared", *COLUMNS, "--on-bad-line", "skip")
    assert "prepared is already complete: it was prepared from the same files and settings" in again.err


def test_settings_of_a_file_and_of_the_task(tmp_path: Path) -> None:
    (tmp_path / "tags.tsv").write_text("".join(f"ab{n % 30}\t{'+' * len(f'ab{n % 30}')}\n" for n in range(60)))
    (tmp_path / "settings.toml").write_text('task = "tag"\n[data]\nmin_count = 2\n')
    result = run(tmp_path, "prepare", "tags.tsv", "--out", "prepared", "--config", "settings.toml")
    assert result.code == 0, result.err
    trained = run(tmp_path, "train", "prepared", "--run", "run", "--size", "tiny", "--epochs", "1")
    assert trained.code == 0 and "tag accuracy" in trained.err, trained.err


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--valid", "words.csv"), "prepared is prepared data, which has a validation set: give no valid"),
        (("--min-count", "2"), "prepared was prepared with data.min_count = 1, got 2"),
        (("--source-column", "id"), "prepared was prepared with data.source_column = 'word', got 'id'"),
        (("--pointer-generator",), "decoder.pointer_generator needs the texts of the pairs"),
    ],
)
def test_flags_that_contradict_prepared_data(flags: tuple[str, ...], message: str, tmp_path: Path) -> None:
    write_table(tmp_path / "words.csv")
    assert run(tmp_path, "prepare", "words.csv", "--out", "prepared", *COLUMNS, "--on-bad-line", "skip").code == 0
    result = run(tmp_path, "train", "prepared", "--run", "run", "--size", "tiny", *flags)
    assert message in usage_error_message(result)


def test_arguments_of_prepare(tmp_path: Path) -> None:
    write_table(tmp_path / "words.csv")
    assert "--dropout" in usage_error_message(run(tmp_path, "prepare", "words.csv", "--out", "x", "--dropout", "0.1"))
    assert "--out is required" in usage_error_message(run(tmp_path, "prepare", "words.csv"))
    assert "cannot read" in usage_error_message(run(tmp_path, "prepare", "none.csv", "--out", "x"))
    os.mkfifo(tmp_path / "pipe")
    result = run(tmp_path, "prepare", "pipe", "--out", "x")
    assert "is no regular file: it is read twice" in usage_error_message(result)


@pytest.mark.slow
@pytest.mark.parametrize("has_folder", [False, True])
def test_ctrl_c_says_how_to_continue(has_folder: bool, tmp_path: Path) -> None:
    """Before the first block is counted, there is no folder, and nothing to continue."""
    program = """
from pellucid.cli import prepare
from pellucid.training import preparation

def interrupted(*_):
    yield preparation.PreparationProgress("counted", 7)
    raise KeyboardInterrupt

preparation.prepare_data = interrupted
raise SystemExit(prepare.main(["words.csv", "--out", "prepared"]))
"""
    if has_folder:
        (tmp_path / "prepared").mkdir()
    command, environment = [sys.executable, "-c", program], build_environment()
    result = subprocess.run(command, stderr=subprocess.PIPE, text=True, cwd=tmp_path, env=environment, check=False)
    end = "; the same command continues in prepared" if has_folder else ""
    assert (result.returncode, result.stderr) == (130, f"pellucid: interrupted{end}\n")


def test_the_next_command_names_the_folder_whatever_its_name_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my data").mkdir()
    monkeypatch.chdir(tmp_path / "my data")
    assert _next_command(Path("my data")) == "pellucid train 'my data' --run 'runs/my data'"
    assert _next_command(Path()) == "pellucid train . --run 'runs/my data'"
