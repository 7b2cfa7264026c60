"""The lock of a run folder during a training."""

from collections.abc import Container, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NamedTuple

from pellucid.argument_checks import check_arguments
from pellucid.errors import RunError
from pellucid.file_lock import try_lock
from pellucid.files import (
    guard_folder,
    make_folder,
    open_regular,
    open_regular_file,
    remove_empty_folders,
    remove_temporaries,
)
from pellucid.folder_lock import hold_lock, is_at, share_lock
from pellucid.run_folder.advice import REMOVE_LOCK, add_advice
from pellucid.run_folder.run_files import FILES, LOCK


class FolderLock(NamedTuple):
    """Lock of a run folder during a training; released when its file is closed."""

    folder: Path
    file: IO[bytes]
    """The open lock file."""
    activity: str = "training"
    """What the lock is held for, in messages."""

    def check(self) -> None:
        """Check that the path still leads to the locked folder, before something is computed for it.

        While the lock is held, each change of a file in the folder runs this check directly before it (`guard_folder`).

        Raises:
            RunError: The folder or a parent was removed, moved or replaced, or cannot be read.
        """
        if not is_at(self.file, self.folder / LOCK):
            raise RunError(
                f"{self.folder} was removed, moved or replaced during {self.activity}; nothing more is written to it"
            )

    @contextmanager
    def replacement_reported(self) -> Iterator[None]:
        """Report the error of `check` in place of a `RunError` in the block, if there is one: it is its cause.

        Raises:
            RunError: As in the block, or as in `check`.
        """
        try:
            yield
        except RunError:
            self.check()
            raise


@contextmanager
def lock_run_folder(
    folder: Path, file_names: Container[str] = FILES, activity: str = "training"
) -> Iterator[FolderLock]:
    """Lock a folder for one training within the block. The lock ends with the process, also with a killed one.

    The folder is created if it is missing, and temporary files of a killed process are removed. If the folder holds no
    other file at the end of the block, the lock file and the folders created for it are removed.

    Args:
        folder: Run folder, or folder of an ensemble.
        file_names: Names of the files that the training writes, whose temporary files are removed.
        activity: What the lock is held for, in messages.

    Yields:
        The lock.

    Raises:
        FolderInUseError: Another training holds the lock.
        RunError: The folder cannot be created or written to.
    """
    new_folders = make_folder(folder)
    # An earlier lock of this process on a folder that was moved since does not hold for the new folder.
    with add_advice(REMOVE_LOCK), guard_folder(folder, lambda: None):
        opened = open_regular_file(folder / LOCK, mode="ab")
    try:
        with opened as file, hold_lock(file, folder / LOCK, "another process"):
            lock = FolderLock(folder, file, activity)
            with guard_folder(folder, lock.check):
                remove_temporaries(folder, file_names.__contains__)
                yield lock
    finally:
        remove_empty_folders(new_folders)


@contextmanager
def share_run_folder(folder: Path, activity: str = "training") -> Iterator[FolderLock]:
    """Hold the lock of a folder together with other processes within the block; none can hold it alone meanwhile.

    The folder is created if it is missing. Nothing is removed from it, because others may be writing to it.

    Args:
        folder: Folder that several processes write to.
        activity: What the lock is held for, in messages.

    Yields:
        The lock.

    Raises:
        FolderInUseError: A process holds the lock alone. On Windows, which has no shared locks: any process holds it.
        RunError: The folder cannot be created or written to.
    """
    make_folder(folder)
    with add_advice(REMOVE_LOCK), guard_folder(folder, lambda: None):
        open_regular_file(folder / LOCK, mode="ab").close()
        opened = open_regular_file(folder / LOCK)  # NFS grants a shared lock only to readers
    with opened as file:
        share_lock(file, folder / LOCK, "another process")
        lock = FolderLock(folder, file, activity)
        with guard_folder(folder, lock.check):
            yield lock


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
