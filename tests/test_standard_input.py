"""Standard input of subcommands: every line is read, however the shell has set the pipe."""

import errno
import io
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from command_line import build_environment, run_pellucid

from pellucid.cli.assessment import _stored_input
from pellucid.cli.cluster_flags import output_to_file
from pellucid.cli.sources import standard_input
from pellucid.errors import DataError

PAUSE = 0.05
"""Seconds between two lines."""


@pytest.fixture
def pausing_writer(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let standard input be a pipe that does not block, whose writer pauses."""
    reader, writer = os.pipe()
    os.set_blocking(reader, False)

    def write_lines() -> None:
        with open(writer, "wb", buffering=0) as pipe:
            for line in (b"a\tb\n", b"c\td\n", b"e\tf\n"):
                time.sleep(PAUSE)
                pipe.write(line)

    with open(reader, encoding="utf-8") as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        thread = threading.Thread(target=write_lines)
        thread.start()
        yield
        thread.join()


@pytest.mark.usefixtures("pausing_writer")
def test_a_pause_of_a_pipe_that_does_not_block_is_not_the_end_of_the_lines() -> None:
    assert [*standard_input()] == [b"a\tb\n", b"c\td\n", b"e\tf\n"]


@pytest.mark.usefixtures("pausing_writer")
def test_a_pause_of_a_pipe_that_does_not_block_is_not_the_end_of_the_stored_pairs() -> None:
    with _stored_input(Path("-")) as path:
        assert path.read_bytes() == b"a\tb\nc\td\ne\tf\n"


@pytest.mark.skipif(not Path("/dev/stdin").exists(), reason="a system without /dev/stdin")
@pytest.mark.parametrize("subcommand", ["split", "audit"])
def test_a_subcommand_that_reads_no_dash_names_dev_stdin(subcommand: str, tmp_path: Path) -> None:
    output = "--out" if subcommand == "split" else "--output"
    result = run_pellucid(subcommand, "-", output, tmp_path / "out", stdin=b"a\tb\n")
    assert result.code == 2
    assert result.err == "pellucid: cannot read -: no such file or directory; give /dev/stdin for the standard input\n"


@pytest.mark.parametrize("subcommand", ["split", "audit"])
def test_a_folder_that_is_named_as_a_dash_is_named_as_a_folder(subcommand: str, tmp_path: Path) -> None:
    (tmp_path / "-").mkdir()
    output = "--out" if subcommand == "split" else "--output"
    result = run_pellucid(subcommand, "-", output, tmp_path / "out", folder=tmp_path)
    assert (result.code, result.err) == (2, "pellucid: cannot read -: is a directory\n")


@pytest.mark.skipif(not Path("/dev/stdin").exists(), reason="a system without /dev/stdin")
def test_split_reads_a_pipe_as_dev_stdin(tmp_path: Path) -> None:
    table = "id,word,sound\n" + "".join(f"{number},w{number},s{number}\n" for number in range(20))
    columns = ("--source-column", "word", "--target-column", "sound", "--input-format", "csv")
    command = [sys.executable, "-m", "pellucid", "split", "/dev/stdin", "--out", str(tmp_path / "out"), *columns]
    environment = build_environment()
    result = subprocess.run(command, input=table, capture_output=True, text=True, env=environment, check=False)
    assert result.returncode == 0, result.stderr
    rows = [
        line for name in ("train", "test") for line in (tmp_path / "out" / name).read_text("utf-8").splitlines()[1:]
    ]
    assert sorted(rows) == sorted(table.splitlines()[1:])


def test_an_error_of_reading_is_not_one_of_the_output_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class BrokenPipe(io.RawIOBase):
        """Stream that cannot be read."""

        def readable(self) -> bool:
            return True

        def readinto(self, buffer: object) -> int:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BufferedReader(BrokenPipe())))
    with (
        pytest.raises(DataError, match=r"^cannot read standard input: input/output error$"),
        output_to_file(tmp_path / "out.txt"),
    ):
        next(iter(standard_input()))
    assert not [*tmp_path.iterdir()]
