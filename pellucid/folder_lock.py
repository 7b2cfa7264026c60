"""Lock of a folder for one process, or for several that share it: a locked file in the folder."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from errno import EACCES, ELOOP, ENOENT, ENOTDIR, EPERM, ESTALE
from pathlib import Path
from typing import IO

from pellucid.errors import FolderInUseError, RunError
from pellucid.file_lock import try_lock
from pellucid.files import open_regular_file, wrap_os_errors

MOVED_ERRORS = (ENOENT, ENOTDIR, EACCES, EPERM, ELOOP, ESTALE)
"""Error codes of a path that no longer leads to the locked folder: a parent was removed, or replaced by a file, by a
folder of another user or by a link to itself, or is on a network drive that was unmounted."""
PAUSES = (0.0, 0.05, 0.2)
"""Seconds before each attempt to take the lock: other processes hold it for a moment to see whether it is free."""


@contextmanager
def hold_lock(file: IO[bytes], path: Path, user: str) -> Iterator[None]:
    """Lock a folder within the block. The lock ends with the process, also with a killed one.

    If the folder holds no other file at the end of the block, the empty lock file is removed.

    Args:
        file: The open lock file, which the caller closes.
        path: Its path, in the folder.
        user: The other user, for messages: "another process".

    Raises:
        FolderInUseError: Another process holds the lock, or has just removed it.
        RunError: The file system has no locks, or the file cannot be read.
    """
    _take_lock(file, path, user, shared=False)
    try:
        yield
    finally:
        _remove_lock(file, path)


@contextmanager
def lock_during(folder: Path, name: str, user: str) -> Iterator[None]:
    """Lock a folder, which exists, within the block, with a lock file that is removed at its end.

    Args:
        folder: The folder.
        name: Name of the lock file. That of a killed process is used again.
        user: The other user, for messages: "another process".

    Raises:
        FolderInUseError: Another process holds the lock, or has just removed it.
        RunError: The file system has no locks, or the folder cannot be written.
    """
    path = folder / name
    with open_regular_file(path, mode="ab") as file, hold_lock(file, path, user):
        try:
            yield
        finally:
            with suppress(OSError):  # Windows removes no open file: an empty one stays
                path.unlink()


def share_lock(file: IO[bytes], path: Path, user: str) -> None:
    """Lock a folder together with other processes, until the file is closed; none can hold the lock alone meanwhile.

    Args:
        file: The lock file, open for reading.
        path: Its path, in the folder.
        user: The other user, for messages: "another process".

    Raises:
        FolderInUseError: Another process holds the lock alone, or has just removed it.
        RunError: The file system has no locks, or the file cannot be read.
    """
    _take_lock(file, path, user, shared=True)


def _take_lock(file: IO[bytes], path: Path, user: str, shared: bool) -> None:
    """Lock a folder alone or together with others; raise `FolderInUseError` if it is in use."""
    if not any(_try_lock_after(pause, file, path, shared) for pause in PAUSES):
        raise FolderInUseError(f"{path.parent} is in use: {user} is writing to it{' alone' if shared else ''}")
    if not is_at(file, path):
        raise FolderInUseError(f"{path.parent} was in use: {user} has just ended there without a file; try again")


def is_at(file: IO[bytes], path: Path) -> bool:
    """Return whether an open file is still at a path; False also if a parent of the path is not an accessible folder.

    Args:
        file: The open file.
        path: The path.

    Raises:
        RunError: This cannot be determined because of another system error.
    """
    try:
        with wrap_os_errors("read", path):
            return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except RunError as error:
        if isinstance(error.__cause__, OSError) and error.__cause__.errno in MOVED_ERRORS:
            return False
        raise


def _remove_lock(file: IO[bytes], path: Path) -> None:
    """Remove the lock file from an otherwise empty folder, unless it has content of another program."""
    with suppress(OSError):
        if [each.name for each in path.parent.iterdir()] == [path.name] and not path.stat().st_size:
            try:
                path.unlink()
            except PermissionError:  # Windows removes no open file
                file.close()
                path.unlink()


def _try_lock_after(pause: float, file: IO[bytes], path: Path, shared: bool) -> bool:
    """Return whether the lock can be taken after a pause in seconds."""
    time.sleep(pause)
    with wrap_os_errors("lock", path.parent):
        return try_lock(file, shared)
