"""run_folder/checksums.py and the subcommand check: changed, swapped, removed and added files of a run folder."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from command_line import run_pellucid, usage_error_message
from trained_runs import copy_run_folder, copy_task_run

from pellucid.errors import DataError, RunError
from pellucid.run_folder import checksums
from pellucid.run_folder.checksums import (
    check_checksums,
    checksum_of_folder,
    folder_checksums,
    format_checksums,
    read_checksums,
)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Return a copy of a finished run."""
    return copy_run_folder(copy_task_run().run, tmp_path / "run")


def test_the_list_is_that_of_sha256sum_and_is_read_again(run: Path, tmp_path: Path) -> None:
    found = folder_checksums(run)
    assert "config.toml" in found and any(name.startswith("snapshots/") for name in found) and ".lock" not in found
    (tmp_path / "list").write_text(format_checksums(found), "utf-8")
    assert read_checksums(tmp_path / "list") == found
    if shutil.which("sha256sum"):
        subprocess.run(["sha256sum", "--check", "--strict", "--quiet", tmp_path / "list"], cwd=run, check=True)


@pytest.mark.parametrize("name", ["config.toml", "confidence.json", "card.md", "log.jsonl", "vocabulary.json"])
def test_a_changed_file_is_named(run: Path, name: str) -> None:
    expected = folder_checksums(run)
    (run / name).write_bytes((run / name).read_bytes() + b" ")
    found = folder_checksums(run)
    with pytest.raises(RunError, match=rf"differs from the list in 1 of its files[^\n]*\n[^\n]*{name} was changed$"):
        check_checksums(run, found, expected)
    assert checksum_of_folder(found) != checksum_of_folder(expected)


def test_swapped_missing_and_added_files_are_named(run: Path) -> None:
    expected = folder_checksums(run)
    first, last = sorted((run / "snapshots").iterdir())[::5][:2]
    contents = first.read_bytes(), last.read_bytes()
    first.write_bytes(contents[1])
    last.write_bytes(contents[0])
    (run / "card.md").unlink()
    (run / "model.pkl").write_bytes(b"x")
    with pytest.raises(RunError) as caught:
        check_checksums(run, folder_checksums(run), expected)
    _, *lines = str(caught.value).split("\n")
    assert lines == [
        *(f"{path} was changed" for path in sorted((first, last))),
        f"{run / 'card.md'} is missing",
        f"{run / 'model.pkl'} is not in the list",
    ]


def test_links_pipes_and_foreign_folders_are_refused(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(RunError, match="is not a run folder"):
        folder_checksums(tmp_path)
    (run / "link").symlink_to("/dev/zero")
    with pytest.raises(RunError, match="expected a regular file"):
        folder_checksums(run)
    (run / "link").unlink()
    os.mkfifo(run / "pipe")
    with pytest.raises(RunError, match="expected a regular file"):
        folder_checksums(run)
    (run / "pipe").unlink()
    (run / "a\nb").write_bytes(b"")
    with pytest.raises(RunError, match="without control characters"):
        folder_checksums(run)
    (run / "a\nb").unlink()
    (run / "a" / "b" / "c").mkdir(parents=True)
    with pytest.raises(RunError, match="at most 3 folders within each other"):
        folder_checksums(run)
    shutil.rmtree(run / "a")
    monkeypatch.setattr(checksums, "MAX_FILES", 3)
    with pytest.raises(RunError, match="more than 3 files"):
        folder_checksums(run)


@pytest.mark.parametrize(
    "content", ["", "abc\n", "0" * 64 + "\n", "0" * 63 + "  a\n", "0" * 64 + "  a\r\r\n", "0" * 64 + "  a\rb\n"]
)
def test_other_files_are_no_list(tmp_path: Path, content: str) -> None:
    (tmp_path / "list").write_text(content, newline="")
    with pytest.raises(DataError, match="expected a"):
        read_checksums(tmp_path / "list")


@pytest.mark.parametrize(
    "content",
    [
        f"\ufeff{'ab' * 32}  config.toml\n",
        f"\n# made by hand\n   \n{'ab' * 32}  config.toml\n\n",
        f"# made on Windows\r\n\r\n{'AB' * 32} *config.toml\r\n",
        f" \t{'Ab' * 32}  ./config.toml\n",
        f"{'ab' * 32}  config.toml\n{'AB' * 32}  .//config.toml",
    ],
)
def test_a_list_is_read_as_sha256sum_reads_it(tmp_path: Path, content: str) -> None:
    """Regression test: byte order marks, blank lines, comments and upper-case digits were refused."""
    (tmp_path / "list").write_text(content, "utf-8", newline="")
    assert read_checksums(tmp_path / "list") == {"config.toml": "ab" * 32}


def test_a_contradiction_is_refused_with_its_line(tmp_path: Path) -> None:
    """Regression test: the last of two checksums of a file counted."""
    lines = [f"{'ab' * 32}  config.toml", "# comment", f"{'ab' * 32}  card.md", f"{'cd' * 32}  ./config.toml"]
    (tmp_path / "list").write_text("\n".join(lines), "utf-8")
    with pytest.raises(DataError, match=r"list:4: the checksum of 'config\.toml' differs from that in line 1$"):
        read_checksums(tmp_path / "list")


@pytest.mark.parametrize("name", ["../config.toml", "snapshots/../config.toml", "/etc/passwd", "./", ".", "-"])
def test_a_path_outside_of_the_folder_is_refused(tmp_path: Path, name: str) -> None:
    """Regression test: such a file was reported as missing in the folder."""
    (tmp_path / "list").write_text(f"{'ab' * 32}  {name}\n", "utf-8")
    with pytest.raises(DataError, match="list:1: expected the path of a file in the run folder, got") as caught:
        read_checksums(tmp_path / "list")
    assert repr(name) in str(caught.value) and ("standard input" in str(caught.value)) == (name == "-")


def test_a_file_named_as_standard_input_is_listed_by_its_path(run: Path, tmp_path: Path) -> None:
    (run / "-").write_bytes(b"x")
    found = folder_checksums(run)
    (tmp_path / "list").write_text(format_checksums(found), "utf-8")
    assert "  ./-\n" in (tmp_path / "list").read_text("utf-8") and read_checksums(tmp_path / "list") == found


@pytest.mark.parametrize(("content", "state"), [("", "is empty"), ("# none\n\n", "has no line with a checksum")])
def test_a_list_without_checksums_is_refused(tmp_path: Path, content: str, state: str) -> None:
    (tmp_path / "list").write_text(content, "utf-8")
    with pytest.raises(DataError, match=f"list {state}: expected a list of checksums$"):
        read_checksums(tmp_path / "list")


def test_the_subcommand_prints_and_compares(run: Path, tmp_path: Path) -> None:
    printed = run_pellucid("check", run)
    assert printed.code == 0 and printed.out == format_checksums(folder_checksums(run))
    total = printed.err.split()[-1]
    (tmp_path / "list").write_text(printed.out)
    agreed = run_pellucid("check", run, "--list", tmp_path / "list", "--expect", total)
    assert agreed.code == 0 and "files agree" in agreed.out
    (run / "confidence.json").write_bytes(b"{}")
    assert "confidence.json was changed" in run_pellucid("check", run, "--list", tmp_path / "list").err
    assert f"expected {total}" in usage_error_message(run_pellucid("check", run, "--expect", total))
    assert "64 hexadecimal digits" in usage_error_message(run_pellucid("check", run, "--expect", "abc"))


@pytest.mark.skipif(os.name == "nt", reason="sparse files of this size need a file system of POSIX")
def test_a_sparse_file_is_refused_before_it_is_hashed(run: Path) -> None:
    os.truncate(run / "card.md", 2**43)
    with pytest.raises(RunError, match=r"card\.md: the files of .* have more than 4,398,046,511,104 bytes"):
        folder_checksums(run)


def test_the_list_of_a_folder_with_as_many_files_as_possible_is_read(tmp_path: Path) -> None:
    found = {f"seed-10/snapshots/{number:06}-\u2028{'x' * 40}.safetensors": "0" * 64 for number in range(10_000)}
    (tmp_path / "list").write_text(format_checksums(found), "utf-8", newline="\n")
    assert read_checksums(tmp_path / "list") == found
    (tmp_path / "list").write_text(format_checksums(found).replace("\n", "\r\n"), "utf-8", newline="\n")
    assert read_checksums(tmp_path / "list") == found
