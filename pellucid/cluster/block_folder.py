"""Folder of the blocks of a command that runs on several machines: blocks of its input, and the finished ones.

All machines share the folder. Every finished block is a file that is written atomically, so a command that was killed
continues where it was: the same command uses the finished blocks. The folder states for which command, model and input
they are (its fingerprint), and refuses every other one.
"""

import os
import re
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
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
    remove_temporaries,
    unexpected_files,
    unlink_file,
    wrap_os_errors,
    write_atomic,
    write_json,
)
from pellucid.folder_lock import hold_lock

FINGERPRINT = "fingerprint.json"
"""File with the fingerprint of the command."""
LOCK = "lock"
"""File that a running command locks."""
BLOCK_NAME = re.compile(r"(?P<kind>input|output|attempts)-(?P<number>\d{8}|[1-9]\d{8})")
"""Pattern of the names of the files of a block."""
MAX_VISIBLE_SECONDS = 90.0
"""Seconds for which a finished block may be missing. Linux remembers for up to 60 seconds that a file of a network file
system (NFS) did not exist."""
VISIBLE_PAUSE = 1.0
"""Seconds between two attempts to find it."""
START_AGAIN = "remove the folder, and run the command again"
"""Advice for a folder with damaged blocks."""


class BlockNumbers:
    """Set of numbers of blocks in ascending order. It takes one byte for each number up to the largest one.

    A set of Python takes some 80 bytes for each of its numbers, and an input may have millions of blocks.
    """

    def __init__(self, numbers: Iterable[int] = ()) -> None:
        """Set the numbers.

        Args:
            numbers: Numbers of blocks, from 0; none by default.
        """
        self._is_member = bytearray()
        self._count = 0
        for number in numbers:
            self.add(number)

    def __len__(self) -> int:
        """Return how many numbers there are."""
        return self._count

    def __iter__(self) -> Iterator[int]:
        """Yield the numbers in ascending order."""
        number = self._is_member.find(1)
        while number >= 0:
            yield number
            number = self._is_member.find(1, number + 1)

    def __contains__(self, number: object) -> bool:
        """Return whether a number is in the set."""
        return isinstance(number, int) and number < len(self._is_member) and self._is_member[number] == 1

    def add(self, number: int) -> None:
        """Add a number, unless it is in the set.

        Args:
            number: Number of a block, from 0.
        """
        if number not in self:
            self._is_member.extend(bytes(max(0, number + 1 - len(self._is_member))))
            self._is_member[number] = 1
            self._count += 1

    def discard(self, number: int) -> None:
        """Remove a number, if it is in the set.

        Args:
            number: Number of a block, from 0.
        """
        if number in self:
            self._is_member[number] = 0
            self._count -= 1


class Fingerprint(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Values on which the finished blocks of a folder depend, by the names that messages show."""

    parts: dict[str, str]


class BlockFolder:
    """Blocks of the input of a command, by their numbers from 0, and the finished ones.

    Machines that process blocks make their own object with the same path. Nothing is held in memory.
    """

    def __init__(self, path: Path, fingerprint: Mapping[str, str] | None = None) -> None:
        """Set the folder, which `locked_block_folder` creates.

        Args:
            path: The folder, as an absolute path.
            fingerprint: Fingerprint of the command; None, the default, for one that processes no blocks.
        """
        self.path = path
        self.fingerprint = dict(fingerprint or {})

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

    def finished_numbers(self) -> BlockNumbers:
        """Return the numbers of the finished blocks.

        The folder is listed. To look for each file would make a network file system remember those that are missing.

        Raises:
            RunError: The folder cannot be read.
        """
        return BlockNumbers(self._numbers("output"))

    def has_started_blocks(self) -> bool:
        """Return whether a block is being processed, or its process died.

        Raises:
            RunError: The folder cannot be read.
        """
        return self._has_files("attempts")

    def has_finished_blocks(self) -> bool:
        """Return whether a block is finished.

        Raises:
            RunError: The folder cannot be read.
        """
        return self._has_files("output")

    def is_in_use(self) -> bool:
        """Return whether the folder belongs to this command still, which has not ended or can be continued.

        The folder may have been removed, and created again for another command.

        Raises:
            RunError: The fingerprint in the folder cannot be read.
        """
        return self.read_fingerprint() == self.fingerprint

    def read_fingerprint(self) -> dict[str, str] | None:
        """Return the fingerprint in the folder; None if there is none.

        Raises:
            RunError: It cannot be read, or is damaged.
        """
        file = self.path / FINGERPRINT
        if not file_exists(file):
            return None
        try:
            return decode_json(read_bytes(file, RunError, MAX_SETTINGS_SIZE), Fingerprint).parts
        except ValueError:
            raise RunError(f"{file} is damaged: remove {self.path} to start again") from None

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
        self.remove_blocks()
        remove_file(self.path / FINGERPRINT)  # the last: without it, finished blocks would be of an unknown command

    def remove_blocks(self) -> None:
        """Remove all files of blocks.

        Raises:
            RunError: A file cannot be removed.
        """
        is_left = True
        while is_left:  # a file system may leave out names while files are removed
            is_left = False
            for match in self._block_names():
                unlink_file(self.path / match[0])
                is_left = True
        remove_temporaries(self.path, BLOCK_NAME.fullmatch)

    def _file(self, kind: str, number: int) -> Path:
        """Return the path of a file of a block: its "input", its "output", or its "attempts"."""
        return self.path / f"{kind}-{number:08}"

    def _block_names(self) -> Iterator[re.Match[str]]:
        """Yield the names of the files of blocks as matches of `BLOCK_NAME`; they are never in memory together."""
        with wrap_os_errors("read", self.path), os.scandir(self.path) as entries:
            yield from filter(None, (BLOCK_NAME.fullmatch(entry.name) for entry in entries))

    def _has_files(self, kind: str) -> bool:
        """Return whether a block has a file of a kind."""
        return any(match["kind"] == kind for match in self._block_names())

    def _numbers(self, kind: str) -> Iterator[int]:
        """Yield the numbers of the blocks that have a file of a kind, in any order."""
        return (int(match["number"]) for match in self._block_names() if match["kind"] == kind)


@contextmanager
def locked_block_folder(path: Path, fingerprint: Mapping[str, str]) -> Iterator[BlockFolder]:
    """Create the folder of a command, or open the one that the same command has left, within the block.

    A folder that another command has left is emptied, if no block is finished: the command could not read its input, or
    its model has changed.

    Args:
        path: The folder.
        fingerprint: Values on which the finished blocks depend, by the names that messages show: such as the version of
            Pellucid, and checksums of the model, the input and the settings.

    Yields:
        The folder, which no other command uses meanwhile.

    Raises:
        FolderInUseError: Another command uses the folder.
        RunError: The folder belongs to a command with another fingerprint, holds other files, is in a file system
            without locks, or cannot be written.
    """
    path = path.absolute()
    if path.exists() and not path.is_dir():
        raise RunError(f"{path} is not a folder, but finished blocks are kept there: rename or remove it")
    make_folder(path)
    _check_content(path)  # before a file is created there
    with open_regular_file(path / LOCK, mode="ab") as file, hold_lock(file, path / LOCK, "another command"):
        _check_content(path)
        folder = BlockFolder(path, fingerprint)
        _check_fingerprint(folder)
        yield folder
    with suppress(OSError):  # unfinished blocks and files of others stay
        path.rmdir()


def _check_content(path: Path) -> None:
    """Raise `RunError` if a folder holds files and no fingerprint."""
    if file_exists(path / FINGERPRINT):
        return
    if others := unexpected_files(path, (LOCK,)):
        raise RunError(f"{path} holds {others[0]} and no {FINGERPRINT}: expected a new or an empty folder")


def _check_fingerprint(folder: BlockFolder) -> None:
    """Write the fingerprint of a new folder, and compare that of another one; `RunError` names what differs."""
    path, file, fingerprint = folder.path, folder.path / FINGERPRINT, folder.fingerprint
    found = folder.read_fingerprint()
    if found is None:
        write_json(file, Fingerprint(parts=fingerprint))
        return
    different = [name for name in {**fingerprint, **found} if found.get(name) != fingerprint.get(name)]
    if different and not folder.has_finished_blocks():
        write_json(file, Fingerprint(parts=fingerprint))  # first: processes of the other command now write no block
        folder.remove_blocks()
    elif different:
        raise RunError(
            f"{path} has the blocks of another command (different: {', '.join(different)}): repeat that "
            "command to finish it, or remove the folder to start again"
        )
