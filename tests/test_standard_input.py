"""Standard input of subcommands: every line is read, however the shell has set the pipe."""

import errno
import io
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

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
