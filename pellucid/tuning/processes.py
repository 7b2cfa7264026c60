"""Processes that work on one study in a folder that they share.

Each process locks a file of its own in the folder `.processes` for its life; the content of the file identifies the
machine.

The lock ends with its process, also with a killed one, and is that of the kernel or of the file server. So a process
whose file is unlocked or missing has ended. Some network file systems keep locks on each machine alone. Therefore each
process also touches its file, and the unlocked file of another machine counts only when it is not touched any more.
"""

import os
import platform
import re
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

from pellucid.errors import RunError
from pellucid.file_lock import try_lock, wait_for_lock
from pellucid.files import file_exists, make_folder, open_regular, open_regular_file, remove_file, wrap_os_errors

PROCESSES = ".processes"
"""Name of the folder of the files."""
IDENTIFIER = re.compile(r"[0-9a-f]{32}")
TOUCH_SECONDS = 5.0
"""Seconds between two touches of the file of a process."""
TOUCH_LIMIT = 30.0
"""Seconds without a touch after which a process of another machine has ended, if its file is not locked."""
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
MAX_MACHINE_SIZE = 1000
"""Maximum length of the identification of a machine, in bytes."""


def identify_machine() -> str:
    """Return a text that differs between machines, and is the same for all processes under one kernel."""
    with suppress(OSError):
        return BOOT_ID.read_text("ascii").strip()
    return platform.node()


class ProcessRegistry:
    """Processes that work on the study of a folder. All methods except `touch` are called under the study's lock."""

    def __init__(self, study: Path) -> None:
        """Initialize without a file.

        Args:
            study: Folder of the search.
        """
        self.folder = study / PROCESSES
        self._own = ExitStack()
        self._own_path: Path | None = None
        self._touched_at = 0.0
        self._unlocked: dict[str, tuple[int, float]] = {}
        """Time of the last touch of an unlocked file of another machine, and the time here when this was first seen."""

    def register(self) -> str:
        """Create and lock the file of this process; return its identifier.

        Raises:
            RunError: The file cannot be written or locked.
        """
        make_folder(self.folder)
        identifier = uuid.uuid4().hex
        path = self.folder / identifier
        file = self._own.enter_context(open_regular_file(path, mode="ab"))
        with wrap_os_errors("lock", path):
            wait_for_lock(file)
            file.write(identify_machine().encode())
            file.flush()
        self._own_path = path
        return identifier

    def touch(self) -> None:
        """Set the time of this process's file, at most every `TOUCH_SECONDS`."""
        if self._own_path is not None and time.monotonic() - self._touched_at > TOUCH_SECONDS:
            self._touched_at = time.monotonic()
            with suppress(OSError):
                os.utime(self._own_path)

    def has_ended(self, identifier: str) -> bool | None:
        """Return whether a process has ended; None while this is not known.

        Args:
            identifier: Identifier of the process.

        Raises:
            RunError: A process of another machine lives, but its lock is not seen here; or its file cannot be read.
        """
        path = self.folder / identifier
        if not IDENTIFIER.fullmatch(identifier) or not file_exists(path):
            return True
        with open_regular(path) as file:
            if not try_lock(file, shared=True):
                self._unlocked.pop(identifier, None)
                return False
            if file.read(MAX_MACHINE_SIZE) == identify_machine().encode():
                return True
            touched = os.fstat(file.fileno()).st_mtime_ns
        first_touched, seen_at = self._unlocked.setdefault(identifier, (touched, time.monotonic()))
        if touched != first_touched:
            raise RunError(
                f"the file system of {self.folder.parent} does not show the locks of other machines: mount it with "
                "locks (NFS without nolock and local_lock), or give --storage"
            )
        return True if time.monotonic() - seen_at > TOUCH_LIMIT else None

    def remove_ended(self) -> bool:
        """Remove the files of ended processes; return whether it is known of all others that they still run.

        Raises:
            RunError: As in `has_ended`, or a file cannot be removed.
        """
        undecided = False
        for identifier in self._others():
            ended = self.has_ended(identifier)
            undecided |= ended is None
            if ended:
                remove_file(self.folder / identifier)
        return not undecided

    def close(self) -> None:
        """Remove the file of this process, whose trials have ended or are released, and the folder of the last one."""
        with suppress(RunError):
            self.remove_ended()
        if self._own_path is not None:
            with suppress(OSError):
                self._own_path.unlink()
                self.folder.rmdir()
        self._own_path = None
        self._own.close()

    def _others(self) -> Iterator[str]:
        """Yield the identifiers of the other processes that have a file."""
        if not self.folder.is_dir():
            return
        with wrap_os_errors("read", self.folder):
            names = sorted(path.name for path in self.folder.iterdir())
        yield from (name for name in names if IDENTIFIER.fullmatch(name) and self.folder / name != self._own_path)
