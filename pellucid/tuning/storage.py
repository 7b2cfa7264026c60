"""Storages of a study: the storage of Optuna, the lock of all writers, and the processes that run.

One process alone, or several that share a folder, store a study in the journal of the folder (`FolderStorage`).
"""

import json
import os
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import optuna
from optuna.pruners import BasePruner
from optuna.storages.journal import BaseJournalBackend, JournalStorage
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial

from pellucid.errors import InputError, RunError, abbreviate_reason
from pellucid.file_lock import try_lock
from pellucid.files import open_regular, open_regular_file, os_error_text, wrap_os_errors
from pellucid.tuning.journal import (
    JOURNAL,
    STUDY_NAME,
    JournalEntry,
    cut_incomplete_line,
    journal_error,
    read_journal,
)
from pellucid.tuning.processes import ProcessRegistry

JOURNAL_LOCK = ".journal.lock"
"""Name of the lock of the journal."""
LOCK_SECONDS = 120.0
"""Seconds after which a process gives up that waits for the lock of the journal, which is held for a moment only."""
MAX_LOCK_PAUSE = 0.05
"""Maximum pause in seconds between two attempts to take the lock."""
PROCESS_KEY = "process"
"""Attribute of a trial: identifier of the process that runs it; empty or missing for none."""


class StudyUnreachableError(RunError):
    """The storage of a study does not answer now; the same call may succeed later."""


class StudyStorage(ABC):
    """Storage of one study. A process changes the study only within `transaction`."""

    title: str
    """Folder or database of the study, for messages."""
    place: str
    """File or database of the study, for messages."""
    description: str
    """The study and its place, for messages about a damaged one."""
    advice: str
    """Advice about a damaged study, for messages."""
    new_study: str
    """Advice on beginning another study, for messages."""
    process = ""
    """Identifier of this process; empty if no other process can work on the study."""
    study_id = ""
    """Identifier of a study that is not stored in the folder of the search; empty for one that is."""
    entries: Sequence[JournalEntry] = ()
    """Entries of the journal when it was opened."""

    @abstractmethod
    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock of the study in the block, in which blocks of both kinds may be nested.

        The lock ends with the process.

        Raises:
            RunError: The lock cannot be taken.
            StudyUnreachableError: The storage does not answer.
        """
        yield

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Hold the lock in a block of calls of Optuna. Warnings are dropped, and all errors become `InputError`.

        Raises:
            RunError: The study is damaged, or cannot be read or written.
            StudyUnreachableError: The storage does not answer.
        """
        with warnings.catch_warnings(), self.locked():
            warnings.simplefilter("ignore")
            try:
                yield
            except InputError:
                raise
            except Exception as error:  # Optuna checks little of what it reads
                raise self.convert_error(error) from error

    def convert_error(self, error: Exception) -> RunError:
        """Return the error for one of Optuna: a line or row of valid form may still contradict another in any way.

        Args:
            error: The error.
        """
        reason = f"{type(error).__name__}: {abbreviate_reason(error)}"
        return RunError(
            f"{self.description} is damaged, or is not of a study of Pellucid: Optuna reports {reason}; {self.advice}"
        )

    @abstractmethod
    def open_study(self, direction: StudyDirection, pruner: BasePruner) -> optuna.Study:
        """Open the study within a transaction; create it if it is missing.

        Args:
            direction: Direction of a new study.
            pruner: The pruner.

        Raises:
            RunError: The storage holds something else than a study of Pellucid; it is then unchanged.
        """

    @abstractmethod
    def find_abandoned(self, running: Sequence[FrozenTrial]) -> list[FrozenTrial]:
        """Return the trials whose process has ended or has released them, within a transaction.

        Args:
            running: Running trials that this process does not run.
        """

    @abstractmethod
    def start_heartbeat(self, trial_id: int) -> None:
        """Show from now on that this process runs a trial, within a transaction.

        Args:
            trial_id: Optuna's identifier of the trial.
        """

    @abstractmethod
    def stop_heartbeat(self, trial_id: int) -> None:
        """End `start_heartbeat`.

        Args:
            trial_id: Optuna's identifier of the trial.
        """

    @abstractmethod
    def touch(self) -> None:
        """Show that this process lives; called again and again."""

    @abstractmethod
    def close(self) -> None:
        """Release the locks, files and connections of this process."""


class JournalLock:
    """Lock of a journal against other writers: the kernel's, of a file of its own. It ends with its process.

    Optuna's own lock is a file that a killed process leaves. Others remove it after 30 seconds without a change. They
    then also remove that of a process that is only suspended or waits for its disk, and two processes write at once.
    """

    def __init__(self, path: Path) -> None:
        """Initialize without a file.

        Args:
            path: File of the lock, which is created.
        """
        self.path = path
        self._depth = 0

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Hold the lock in the block; blocks may be nested.

        Raises:
            RunError: The file cannot be opened or locked, or another process holds the lock for `LOCK_SECONDS`.
        """
        if self._depth:
            yield
            return
        with open_regular_file(self.path, mode="ab") as file:
            self._wait(file)
            self._depth += 1
            try:
                yield
            finally:
                self._depth -= 1

    def _wait(self, file: IO[bytes]) -> None:
        """Take the lock of the open file, in repeated attempts: a waiting system call would have no time limit."""
        pause, started_at = 0.001, time.monotonic()
        while not self._try(file):
            if time.monotonic() - started_at > LOCK_SECONDS:
                raise RunError(
                    f"another process has held the lock {self.path} for {LOCK_SECONDS:.0f} seconds and may be "
                    "suspended: continue or end that process, and run the same command again"
                )
            time.sleep(pause)
            pause = min(2 * pause, MAX_LOCK_PAUSE)

    def _try(self, file: IO[bytes]) -> bool:
        """Return whether the lock can be taken now."""
        with wrap_os_errors("lock", self.path):
            return try_lock(file)


class LockedJournal(BaseJournalBackend):
    """Journal for Optuna that several processes write."""

    def __init__(self, path: Path, lock: JournalLock) -> None:
        """Initialize without reading.

        Args:
            path: The journal, which exists.
            lock: Lock of the journal.
        """
        self.path = path
        self.lock = lock
        self.line = 0
        """Number of the last line that was read, from 1, for error messages."""
        self._starts = [0]
        """Position of each line that was read, and of the next one, in bytes."""

    def read_logs(self, log_number_from: int) -> Generator[dict[str, Any], None, None]:
        """Yield the entries from a line on, without an incomplete last line, which another process is writing.

        Args:
            log_number_from: Index of the line, from 0.
        """
        with open_regular_file(self.path) as file:
            file.seek(self._starts[log_number_from])
            lines = file.read().split(b"\n")[:-1]
        del self._starts[log_number_from + 1 :]
        for self.line, line in enumerate(lines, log_number_from + 1):
            self._starts.append(self._starts[-1] + len(line) + 1)
            yield json.loads(line)

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Append entries, and flush them to disk.

        Args:
            logs: The entries, which JSON can encode.

        Raises:
            RunError: The journal cannot be written.
        """
        content = "".join(json.dumps(entry, separators=(",", ":")) + "\n" for entry in logs)
        with self.lock.hold():
            cut_incomplete_line(self.path)
            with open_regular(self.path, mode="ab") as file:
                file.write(content.encode())
                file.flush()
                os.fsync(file.fileno())


class FolderStorage(StudyStorage):
    """Study in the journal of a folder, for one process alone or for several that share the folder."""

    advice = "restore the file, or name a new folder"
    new_study = "name a new folder"

    def __init__(self, folder: Path, shared: bool = False) -> None:
        """Initialize without reading the journal. A shared folder waits until it is known which processes live.

        Args:
            folder: Folder of the search, whose lock the process holds (`lock_run_folder` or `share_run_folder`).
            shared: Whether other processes work on the study, too.

        Raises:
            RunError: The locks of other machines are not seen here, or the folder cannot be written to.
        """
        self.title = str(folder)
        self.journal = folder / JOURNAL
        self.place = self.description = str(self.journal)
        self.lock = JournalLock(folder / JOURNAL_LOCK)
        self.processes = ProcessRegistry(folder) if shared else None
        while self.processes is not None and not self.process:
            with self.transaction():
                if self.processes.remove_ended():
                    self.process = self.processes.register()
                    return
            time.sleep(1.0)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock of the journal in the block."""
        with self.lock.hold():
            yield

    def convert_error(self, error: Exception) -> RunError:
        """Return the error for one of Optuna or of the file system.

        Args:
            error: The error.
        """
        if isinstance(error, OSError):
            return RunError(f"cannot read or write {self.journal}: {os_error_text(error)}")
        return super().convert_error(error)

    def open_study(self, direction: StudyDirection, pruner: BasePruner) -> optuna.Study:
        """Check the journal, whose incomplete last line is removed, and open the study; or create both.

        Args:
            direction: Direction of a new study.
            pruner: The pruner.
        """
        self.entries = read_journal(self.journal)
        open_regular_file(self.journal, mode="ab").close()
        backend = LockedJournal(self.journal, self.lock)
        try:
            storage = JournalStorage(backend)
        except OSError:
            raise
        except Exception as error:  # Optuna checks no type and no range
            reason = f"{type(error).__name__}: {abbreviate_reason(error)}"
            raise journal_error(self.journal, backend.line, reason) from error
        if self.entries:
            return optuna.load_study(study_name=STUDY_NAME, storage=storage, pruner=pruner)
        return optuna.create_study(study_name=STUDY_NAME, storage=storage, pruner=pruner, direction=direction)

    def find_abandoned(self, running: Sequence[FrozenTrial]) -> list[FrozenTrial]:
        """Return the trials whose process has ended or has released them; all, if no other process can run them.

        Args:
            running: Running trials that this process does not run.
        """
        if self.processes is None:
            return list(running)
        owners = {trial.user_attrs.get(PROCESS_KEY, "") for trial in running}
        ended = {owner for owner in owners if self.processes.has_ended(owner)}
        return [trial for trial in running if trial.user_attrs.get(PROCESS_KEY, "") in ended]

    def start_heartbeat(self, trial_id: int) -> None:
        """Do nothing: the lock of this process covers all its trials.

        Args:
            trial_id: Optuna's identifier of the trial.
        """

    def stop_heartbeat(self, trial_id: int) -> None:
        """Do nothing.

        Args:
            trial_id: Optuna's identifier of the trial.
        """

    def touch(self) -> None:
        """Touch the file of this process, which others read."""
        if self.processes is not None:
            self.processes.touch()

    def close(self) -> None:
        """Remove the file of this process."""
        if self.processes is not None:
            with self.transaction():
                self.processes.close()
