"""cli/output_files.py: outputs of evaluate, audit and look destroy no file that is read, no run and no device."""

import os
from pathlib import Path

import pytest
from command_line import run_pellucid, usage_error_message
from trained_runs import copy_run_folder, digits_run

from pellucid.cli.output_files import check_output_file
from pellucid.errors import InputError

TABLE = "words,digits\none,1\ntwo,2\n"


def test_a_new_file_and_an_old_result_are_accepted(tmp_path: Path) -> None:
    check_output_file("--output", tmp_path / "new.csv")
    (tmp_path / "old.csv").write_text("x")
    check_output_file("--output", tmp_path / "old.csv", [tmp_path / "other.csv", None, Path("-")])
    assert (tmp_path / "old.csv").read_text() == "x"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.html")
    with pytest.raises(InputError, match=r"--html .*pipe.html is a device or a pipe: name a file"):
        check_output_file("--html", tmp_path / "pipe.html")


@pytest.mark.parametrize(("name", "message"), [("-", "name one"), ("words.tsv.gz", "leave .gz out")])
def test_standard_output_and_compressed_files_are_refused(name: str, message: str) -> None:
    """Regression test: audit wrote a file named "-", and plain text to a file named .gz, which no reader accepts."""
    with pytest.raises(InputError, match=message):
        check_output_file("--output", Path(name))


def test_another_name_of_an_input_is_recognized(tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text(TABLE)
    os.link(tmp_path / "data.csv", tmp_path / "link.csv")
    with pytest.raises(InputError, match="is a file that this command reads: name another file"):
        check_output_file("--output", tmp_path / "link.csv", [tmp_path / "data.csv"])


@pytest.mark.parametrize(
    "arguments",
    [
        ("evaluate", "{run}", "data.csv", "--errors", "data.csv"),
        ("audit", "data.csv", "--header", "--output", "data.csv"),
        ("audit", "data.csv", "--header", "--apply", "other.csv", "--output", "other.csv"),
        ("audit", "data.csv", "--header", "--compare", "other.csv", "--output", "other.csv"),
        ("look", "{run}", "page.html", "--export", "page.html"),
    ],
)
def test_the_files_of_the_user_are_unchanged(arguments: tuple[str, ...], tmp_path: Path) -> None:
    for name in ("data.csv", "other.csv", "page.html"):
        (tmp_path / name).write_text(TABLE)
    filled = [text.format(run=digits_run().run) for text in arguments]
    message = usage_error_message(run_pellucid(*filled, folder=tmp_path))
    assert "is a file that this command reads: name another file" in message
    assert all((tmp_path / name).read_text() == TABLE for name in ("data.csv", "other.csv", "page.html"))


def test_the_files_of_a_run_are_unchanged(tmp_path: Path) -> None:
    run = copy_run_folder(digits_run().run, tmp_path / "run")
    before = (run / "vocabulary.json").read_bytes()
    (tmp_path / "data.tsv").write_text("one\t1\n")
    result = run_pellucid("look", run, tmp_path / "data.tsv", "--export", run / "vocabulary.json")
    assert "is a file of a run folder: name another file" in usage_error_message(result)
    assert (run / "vocabulary.json").read_bytes() == before


def test_a_worklist_with_decisions_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text(TABLE)
    header = "line,source,target,decision,new_target\n"
    decided = f"{header}2,one,1,replace,11\n3,two,2,,\n"
    (tmp_path / "worklist.csv").write_text(decided)
    audit = ("audit", tmp_path / "data.csv", "--header", "--output", tmp_path / "worklist.csv")
    message = usage_error_message(run_pellucid(*audit))
    assert message.endswith(
        "has 1 decision, which a new worklist would replace: apply them by --apply, or name another file"
    )
    assert (tmp_path / "worklist.csv").read_text() == decided
    (tmp_path / "worklist.csv").write_text(f"{header}2,one,1,,11\n")
    assert "exists and is no worklist without decisions" in usage_error_message(run_pellucid(*audit))
    (tmp_path / "worklist.csv").write_bytes(decided.encode("utf-16"))
    assert "exists and is no worklist without decisions" in usage_error_message(run_pellucid(*audit))
    (tmp_path / "worklist.csv").write_text(f"{header}2,one,1,,\n")
    result = run_pellucid(*audit)
    assert result.code == 0 and (tmp_path / "worklist.csv").read_text().startswith("rank,")
    assert "Next: write replace, keep or remove into the column decision, and apply the file with --apply" in result.err


def test_the_page_of_an_audit_ends_with_html(tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text(TABLE)
    result = run_pellucid("audit", tmp_path / "data.csv", "--header", "--html", tmp_path / "page.csv")
    assert "--html takes a file that ends with .html" in usage_error_message(result)
