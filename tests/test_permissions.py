"""Messages about files and folders that may not be read or written, and a working folder that is gone."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from command_line import build_environment, run_pellucid, run_shell, usage_error_message
from trained_runs import make_small_config, write_pairs
from unprivileged import ordinary_permissions

from pellucid.data.synthetic import spelled_digits
from pellucid.errors import DataError, RunError
from pellucid.files import check_folder_writable, file_exists, read_bytes, write_atomic
from pellucid.sharing.new_folder import new_folder
from pellucid.training.preparation import prepare_data
from pellucid.training.training_data import TrainingFiles

pytestmark = pytest.mark.skipif(os.name == "nt", reason="file permissions of POSIX")
PAIRS = spelled_digits(20, 1, 3, seed=1)
PROGRAM = """
import json, sys
from unprivileged import ordinary_permissions
from pellucid.cli import main
for command in json.loads(sys.argv[1]):
    with ordinary_permissions():
        code = main(command)
    print(code, file=sys.stderr)
"""


def run_unprivileged(commands: Sequence[Sequence[object]]) -> list[str]:
    """Run commands in one process for which file permissions hold; return the lines of their messages and codes."""
    process = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps([[str(each) for each in command] for command in commands])],
        capture_output=True,
        text=True,
        env=build_environment({"PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}),
        check=False,
    )
    return process.stderr.splitlines()


def test_a_closed_folder_is_named_in_place_of_its_files(tmp_path: Path) -> None:
    """Regression test: messages named files that do not exist in a run folder that could not be entered."""
    folder = tmp_path / "run"
    (folder / "snapshots").mkdir(parents=True)
    folder.chmod(0)
    with ordinary_permissions():
        expected = rf"^cannot enter the folder {folder}: permission denied$"
        with pytest.raises(RunError, match=expected):
            file_exists(folder / "prepared.json")
        with pytest.raises(RunError, match=expected):
            read_bytes(folder / "snapshots" / "1.json")
        folder.chmod(0o500)
        with pytest.raises(RunError, match=r"^cannot write .*/run/log.jsonl: permission denied$"):
            write_atomic(folder / "log.jsonl", b"")
    folder.chmod(0o700)


def test_commands_name_a_closed_folder(tmp_path: Path) -> None:
    run, file = tmp_path / "run", write_pairs(tmp_path / "train.tsv", PAIRS)
    run.mkdir(mode=0)
    flags = file, "--valid", file, "--size", "tiny", "--run", run
    commands = ["predict", run, file], ["train", *flags], ["tune", *flags], ["prepare", file, "--out", run]
    lines = run_unprivileged(commands)
    assert lines[1::2] == ["2"] * len(commands), lines
    assert all(f"{run}: " in line and f"{run}/" not in line and "permission denied" in line for line in lines[::2]), (
        lines
    )


def test_an_unreadable_file_is_not_prepared(tmp_path: Path) -> None:
    """Regression test: the message said that it is not a regular file."""
    path = write_pairs(tmp_path / "train.tsv", PAIRS)
    path.chmod(0)
    with ordinary_permissions(), pytest.raises(DataError, match=rf"^cannot read {path}: permission denied$"):
        list(prepare_data(TrainingFiles(path, None), tmp_path / "out", make_small_config()))


def test_a_folder_that_cannot_be_written_is_reported_before_the_data_is_read(tmp_path: Path) -> None:
    """Regression test: train, tune and prepare read all data first. Here it is empty, which would be an error."""
    (tmp_path / "closed").mkdir(mode=0o500)
    (tmp_path / "empty.tsv").write_text("")
    file, out = tmp_path / "empty.tsv", tmp_path / "closed" / "runs" / "a"
    with ordinary_permissions():
        with pytest.raises(RunError, match=rf"^cannot write {out}: no file can be created in {tmp_path}/closed: "):
            check_folder_writable(out)
        check_folder_writable(tmp_path / "open" / "runs" / "a")
    assert not (tmp_path / "open").exists()
    flags = file, "--valid", file, "--size", "tiny", "--run", out
    lines = run_unprivileged([["train", *flags], ["tune", *flags], ["prepare", file, "--out", out]])
    assert lines[1::2] == ["2"] * 3, lines
    assert all(line.startswith(f"pellucid: cannot write {out}: no file can be created in ") for line in lines[::2])


def test_a_file_in_place_of_a_folder_is_refused_before_the_data_is_read(tmp_path: Path) -> None:
    """Regression test: train and tune read all data first. Here it is empty, which would be an error."""
    (tmp_path / "empty.tsv").write_text("")
    file, run = tmp_path / "empty.tsv", tmp_path / "empty.tsv"
    for folder in (run, run / "runs" / "a"):
        flags = file, "--valid", file, "--size", "tiny", "--run", folder
        for command in (["train", *flags], ["tune", *flags], ["prepare", file, "--out", folder]):
            message = usage_error_message(run_pellucid(*command))
            assert message == f"cannot write {folder}: {run} is a file, not a folder; name another folder", command


def test_an_empty_folder_that_cannot_be_written_is_not_replaced(tmp_path: Path) -> None:
    """Regression test: share replaced an empty folder of mode 555 by its own one."""
    folder = tmp_path / "shared"
    folder.mkdir(mode=0o555)
    with ordinary_permissions():
        expected = rf"^{folder} is an empty folder, but it is not writable; name another one, or allow to write there$"
        with pytest.raises(RunError, match=expected), new_folder(folder):
            pytest.fail("the folder is replaced")
    assert folder.stat().st_mode & 0o777 == 0o555 and [*tmp_path.iterdir()] == [folder]


def test_a_removed_working_folder_is_named(tmp_path: Path) -> None:
    """Regression test: the message was "no such file or directory" alone."""
    script = f'mkdir {tmp_path}/gone && cd {tmp_path}/gone && rmdir {tmp_path}/gone && exec "$@"'
    for command in (("split", "a.tsv", "--out", "b"), ("train", "a.tsv", "--run", "b", "--size", "tiny")):
        assert "the current folder was removed" in usage_error_message(run_shell(script, *command))
