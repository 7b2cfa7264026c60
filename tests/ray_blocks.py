"""Blocks that take a while or kill their process, and a file of pairs in small blocks, for tests of --on ray."""

import os
import signal
import time
from pathlib import Path

from pellucid.cli.line_blocks import LineBlockProcessor
from pellucid.errors import InputError

TESTS = Path(__file__).parent
KILLED, COMPUTED = "ON_RAY_KILLED", "ON_RAY_COMPUTED"
"""Environment variables of the workers: file that a killed process leaves, and file with a line per computed block."""
LINES_PER_BLOCK, NUM_BLOCKS = 4, 8
WORKER_PATH = os.pathsep.join([str(TESTS), str(TESTS.parent), os.environ.get("PYTHONPATH", "")])
"""PYTHONPATH with which workers find the modules of the tests."""
SLOW_COMMAND = """
import sys
import ray_blocks
from pellucid.cli import line_blocks, main
from pellucid.decoding import streaming

streaming.MAX_SOURCES = ray_blocks.LINES_PER_BLOCK
line_blocks.LineBlockProcessor = ray_blocks.SlowProcessor
sys.exit(main(sys.argv[1:]))
"""
"""Program that runs a command with small blocks, each of which takes a while."""


class DyingProcessor(LineBlockProcessor):
    """Kills its process within the third block, once."""

    def __call__(self, content: bytes) -> bytes:
        path, result = Path(os.environ[KILLED]), super().__call__(content)
        if b"six six" in content and not path.exists():
            path.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return result


class SlowProcessor(LineBlockProcessor):
    """Takes a while for a block, and counts it."""

    def __call__(self, content: bytes) -> bytes:
        time.sleep(0.5)
        with Path(os.environ[COMPUTED]).open("a") as file:
            file.write("block\n")
        return super().__call__(content)


class FailingProcessor(LineBlockProcessor):
    """Raises a user's error in the third block."""

    def __call__(self, content: bytes) -> bytes:
        if b"six six" in content:
            raise InputError(f"the run {self.command.runs[0].name} cannot decode six six")
        return super().__call__(content)


def write_block_pairs(path: Path) -> Path:
    """Write pairs for `NUM_BLOCKS` blocks, with "six six" in the third one; return the path."""
    words = ["one", "two", "nine", "three four", "eight zero"]
    lines = [f"{words[number % 5]}\t{number % 5}" for number in range(LINES_PER_BLOCK * NUM_BLOCKS - 2)]
    lines[2 * LINES_PER_BLOCK] = "six six\t66"
    path.write_text("".join(f"{line}\n" for line in lines))
    return path
