"""Standard input of subcommands: every line is read, however the shell has set the pipe."""

import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pellucid.cli.assessment import _stored_input
from pellucid.cli.sources import standard_input

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
