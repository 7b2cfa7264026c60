"""The lock of a run folder during a training."""

import os
import time
from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager, suppress
from errno import EACCES, ELOOP, ENOENT, ENOTDIR, EPERM, ESTALE
from pathlib import Path
from typing import IO, NamedTuple

from pellucid.argument_checks import check_arguments
from pellucid.errors import RunError
from pellucid.file_lock import try_lock
from pellucid.files import (
    make_folder,
    open_regular,
    open_regular_file,
    remove_empty_folders,
    remove_temporaries,
    wrap_os_errors,
)
from pellucid.run_folder.advice import REMOVE_LOCK, add_advice
from pellucid.run_folder.run_files import FILES, LOCK

MOVED_ERRORS = (ENOENT, ENOTDIR, EACCES, EPERM, ELOOP, ESTALE)
"""Error codes of a path that no longer leads to the locked folder: a parent was removed, or replaced by a file, by a
folder of another user or by a link to itself, or is on a network drive that was unmounted."""


class FolderLock(NamedTuple):
    """Lock of a run folder during a training; released when its file is closed."""

    folder: Path
    file: IO[bytes]
    """The open lock file."""

    def check(self) -> None:
        """Check that the path still leads to the locked folder; to be called before each write.

        Raises:
            RunError: The folder or a parent was removed, moved or replaced, or cannot be read.
        """
        if not _is_at(self.file, self.folder / LOCK):
            raise RunError(
                f"{self.folder} was removed, moved or replaced during training; nothing more is written to it"
            )


@contextmanager
def lock_run_folder(folder: Path, file_names: Container[str] = FILES) -> Iterator[FolderLock]:
    """Lock a folder for one training within the block. The lock ends with the process, also with a killed one.

    The folder is created if it is missing, and temporary files of a killed process are removed. If the folder holds no
    other file at the end of the block, the lock file and the folders created for it are removed.

    Args:
        folder: Run folder, or folder of an ensemble.
        file_names: Names of the files that the training writes, whose temporary files are removed.

    Yields:
        The lock.

    Raises:
        RunError: Another training holds the lock, or the folder cannot be created or written to.
    """
    new_folders = make_folder(folder)
    with add_advice(REMOVE_LOCK):
        opened = open_regular_file(folder / LOCK, mode="ab")
    with opened as file:
        # `in_use` holds the lock for a moment, so the lock is tried three times.
        if not any(_try_lock_after(pause, file) for pause in (0.0, 0.05, 0.2)):
            raise RunError(f"{folder} is in use: another training is writing to it")
        if not _is_at(file, folder / LOCK):
            raise RunError(f"{folder} was in use: another training has just ended there without a file; try again")
        try:
            remove_temporaries(folder, file_names.__contains__)
            yield FolderLock(folder, file)
        finally:
            _remove_lock(file, folder, new_folders)


def _is_at(file: IO[bytes], path: Path) -> bool:
    """Return whether an open file is still at this path; False also if a parent of the path is no accessible folder.

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


def _remove_lock(file: IO[bytes], folder: Path, new_folders: Sequence[Path]) -> None:
    """Remove the lock from an otherwise empty folder, and then the empty folders among `new_folders`."""
    with suppress(OSError):
        if [path.name for path in folder.iterdir()] == [LOCK] and not (folder / LOCK).stat().st_size:
            try:
                (folder / LOCK).unlink()
            except PermissionError:  # Windows removes no open file
                file.close()
                (folder / LOCK).unlink()
            remove_empty_folders(new_folders)


@check_arguments
def in_use(folder: str | Path) -> bool:
    """Return whether a training on this machine holds the lock of a folder.

    Args:
        folder: Run folder. False if it has no lock file, or one that cannot be opened.
    """
    folder = Path(folder)
    try:
        with open_regular(folder / LOCK) as file:
            return not try_lock(file, shared=True)
    except RunError:
        return False


def _try_lock_after(pause: float, file: IO[bytes]) -> bool:
    """Return whether the lock can be taken after a pause in seconds."""
    time.sleep(pause)
    return try_lock(file)
