"""Folder of the blocks of a command that runs on several machines: blocks of its input, and the finished ones.

All machines share the folder. Every finished block is a file that is written atomically, so a command that was killed
continues where it was: the same command uses the finished blocks. The folder states for which command, model and input
they are (its fingerprint), and refuses every other one.
"""

import os
import re
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from pellucid.errors import DataError, RunError
from pellucid.files import (
    MAX_SETTINGS_SIZE,
    decode_json,
    file_exists,
    make_folder,
    open_regular_file,
    read_bytes,
    remove_file,
    remove_files,
    unexpected_files,
    wrap_os_errors,
    write_atomic,
    write_json,
)
from pellucid.folder_lock import hold_lock

FINGERPRINT = "fingerprint.json"
"""File with the fingerprint of the command."""
LOCK = "lock"
"""File that a running command locks."""
OWN_NAME = re.compile(r"fingerprint\.json|(input|output|attempts)-\d{8}")
"""Pattern of the names of the files that a command writes to its folder, besides the lock."""
MAX_VISIBLE_SECONDS = 90.0
"""Seconds for which a finished block may be missing. Linux remembers for up to 60 seconds that a file of a network file
system (NFS) did not exist."""
VISIBLE_PAUSE = 1.0
"""Seconds between two attempts to find it."""
START_AGAIN = "remove the folder, and give the command again"
"""Advice for a folder with damaged blocks."""


class Fingerprint(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Values on which the finished blocks of a folder depend, by the names that messages show."""

    parts: dict[str, str]


class BlockFolder:
    """Blocks of the input of a command, by their numbers from 0, and the finished ones.

    Machines that process blocks make their own object with the same path. Nothing is held in memory.
    """

    def __init__(self, path: Path) -> None:
        """Set the folder, which `locked_block_folder` creates.

        Args:
            path: The folder, as an absolute path.
        """
        self.path = path

    def write_input(self, number: int, content: bytes) -> None:
        """Write a block of the input atomically, and reset the count of its starts.

        It is not flushed to disk: a command that was killed writes it again.

        Args:
            number: Number of the block, from 0.
            content: The block.

        Raises:
            RunError: A file cannot be written or removed.
        """
        self.reset_attempts(number)
        write_atomic(self._file("input", number), content, durable=False)

    def read_input(self, number: int) -> bytes:
        """Return a block of the input.

        Args:
            number: Number of the block, from 0.

        Raises:
            DataError: The block cannot be read, such as on a machine that does not share the folder.
        """
        return read_bytes(self._file("input", number), DataError, sys.maxsize)

    def write_output(self, number: int, content: bytes) -> None:
        """Write a finished block, atomically.

        Args:
            number: Number of the block, from 0.
            content: The finished block.

        Raises:
            RunError: The file cannot be written.
        """
        write_atomic(self._file("output", number), content)

    def read_output(self, number: int) -> bytes:
        """Return a finished block. Wait for one that another machine has finished and this one does not see yet.

        Args:
            number: Number of the block, from 0.

        Raises:
            DataError: The block cannot be read, or is missing after `MAX_VISIBLE_SECONDS`.
        """
        path, deadline = self._file("output", number), time.monotonic() + MAX_VISIBLE_SECONDS
        while not file_exists(path) and time.monotonic() < deadline:
            time.sleep(VISIBLE_PAUSE)
        return read_bytes(path, DataError, sys.maxsize)

    def damage_error(self, number: int) -> RunError:
        """Return the error about a block that cannot be decoded.

        Args:
            number: Number of the block, from 0.
        """
        return RunError(f"block {number + 1} of {self.path} is damaged: {START_AGAIN}")

    def finished_numbers(self) -> set[int]:
        """Return the numbers of the finished blocks.

        The folder is listed. To look for each file would make a network file system remember those that are missing.

        Raises:
            RunError: The folder cannot be read.
        """
        return self._list_numbers("output")

    def started_numbers(self) -> set[int]:
        """Return the numbers of the blocks that are being processed, or whose process died.

        Raises:
            RunError: The folder cannot be read.
        """
        return self._list_numbers("attempts")

    def is_in_use(self) -> bool:
        """Return whether the command to which the folder belongs has not ended, or can be continued."""
        return file_exists(self.path / FINGERPRINT)

    def is_finished(self, number: int) -> bool:
        """Return whether a block is finished, for a machine that processes it and does not read it.

        Args:
            number: Number of the block, from 0.
        """
        return file_exists(self._file("output", number))

    def count_attempt(self, number: int) -> int:
        """Count a start of the processing of a block, and return the number of starts since `reset_attempts`.

        A process that dies during a block leaves its count behind.

        Args:
            number: Number of the block, from 0.

        Raises:
            RunError: The file of the count cannot be written.
        """
        path = self._file("attempts", number)
        with wrap_os_errors("write", path), path.open("ab") as file:
            file.write(b".")
            return file.tell()

    def reset_attempts(self, number: int) -> None:
        """Remove the count of the starts of a block.

        Args:
            number: Number of the block, from 0.

        Raises:
            RunError: The file of the count cannot be removed.
        """
        path = self._file("attempts", number)
        with wrap_os_errors("remove", path):
            path.unlink(missing_ok=True)

    def remove(self) -> None:
        """Remove all files of the folder but the lock; the folder itself is removed when the lock is released.

        Files that no command writes there stay, and with them the folder.

        Raises:
            RunError: A file cannot be removed.
        """
        with wrap_os_errors("remove", self.path):
            names = [name for name in os.listdir(self.path) if OWN_NAME.fullmatch(name) and name != FINGERPRINT]
        remove_files(self.path, names)
        remove_file(self.path / FINGERPRINT)  # the last: without it, finished blocks would be of an unknown command

    def _file(self, kind: str, number: int) -> Path:
        """Return the path of a file of a block: its "input", its "output", or its "attempts"."""
        return self.path / f"{kind}-{number:08}"

    def _list_numbers(self, kind: str) -> set[int]:
        """Return the numbers of the blocks that have a file of a kind."""
        with wrap_os_errors("read", self.path):
            names = [name.rpartition("-") for name in os.listdir(self.path) if OWN_NAME.fullmatch(name)]
        return {int(digits) for start, _, digits in names if start == kind}


@contextmanager
def locked_block_folder(path: Path, fingerprint: Mapping[str, str]) -> Iterator[BlockFolder]:
    """Create the folder of a command, or open the one that the same command has left, within the block.

    Args:
        path: The folder.
        fingerprint: What the finished blocks depend on, by a name that messages show: such as the version of Pellucid,
            and checksums of the model, the input and the settings.

    Yields:
        The folder, which no other command uses meanwhile.

    Raises:
        FolderInUseError: Another command uses the folder.
        RunError: The folder belongs to a command with another fingerprint, holds other files, is in a file system
            without locks, or cannot be written.
    """
    path = path.absolute()
    if path.exists() and not path.is_dir():
        raise RunError(f"{path} is no folder, but finished blocks are kept there: rename or remove it")
    make_folder(path)
    _check_content(path)  # before a file is created there
    with open_regular_file(path / LOCK, mode="ab") as file, hold_lock(file, path / LOCK, "another command"):
        _check_content(path)
        _check_fingerprint(path, fingerprint)
        yield BlockFolder(path)
    with suppress(OSError):  # unfinished blocks and files of others stay
        path.rmdir()


def _check_content(path: Path) -> None:
    """Raise `RunError` if a folder holds files and no fingerprint."""
    if file_exists(path / FINGERPRINT):
        return
    if others := unexpected_files(path, (LOCK,)):
        raise RunError(f"{path} holds {others[0]} and no {FINGERPRINT}: expected a new or an empty folder")


def _check_fingerprint(path: Path, fingerprint: Mapping[str, str]) -> None:
    """Write the fingerprint of a new folder, and compare that of another one; `RunError` names what differs."""
    file = path / FINGERPRINT
    if not file_exists(file):
        write_json(file, Fingerprint(parts=dict(fingerprint)))
        return
    try:
        found = decode_json(read_bytes(file, RunError, MAX_SETTINGS_SIZE), Fingerprint).parts
    except ValueError:
        raise RunError(f"{file} is damaged: remove {path} to start again") from None
    different = [name for name in {**fingerprint, **found} if found.get(name) != fingerprint.get(name)]
    if different:
        raise RunError(
            f"{path} has the finished blocks of another command (different: {', '.join(different)}): repeat that "
            "command to finish it, or remove the folder to start again"
        )
