"""A system with less than POSIX has, for `test_platforms.py`: imported first in every process, as `sitecustomize`.

What Windows lacks is removed: modules for all, functions and constants for the package alone, since NumPy and PyTorch
go by the name of the system. An open file cannot be replaced or removed, and any file is busy for the first moments, as
while a virus scanner reads it. Locks are those of msvcrt, which stand here on those of the real system.
"""

import errno
import fcntl
import multiprocessing
import os
import signal
import subprocess  # noqa: F401 (asks for msvcrt to see whether this is Windows)
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

MISSING_MODULES = ("fcntl", "resource", "pwd", "grp", "termios", "readline", "tty", "pty")
MISSING_OS_NAMES = (
    *("fork", "forkpty", "register_at_fork", "O_NOFOLLOW", "O_NONBLOCK", "O_NOCTTY", "O_CLOEXEC", "O_DIRECTORY"),
    *("sched_getaffinity", "getuid", "geteuid", "getgid", "getloadavg", "sysconf", "mkfifo", "killpg", "uname"),
)
MISSING_SIGNAL_NAMES = (
    "pthread_sigmask",
    "pthread_kill",
    "sigwait",
    "setitimer",
    "SIGHUP",
    "SIGKILL",
    "SIGPIPE",
    "SIGUSR1",
)
NUM_FAILURES = 2
"""Attempts to replace a file that fail before one succeeds."""

real_lock = fcntl.flock
failures: dict[str, int] = {}


class SharingViolationError(PermissionError):
    """The error of Windows for a file that is open elsewhere."""

    winerror = 32


def lock_byte(descriptor: int, mode: int, size: int) -> None:
    """As `msvcrt.locking`: it fails at once, and the type of the error is another one than that of flock."""
    assert (mode, size) == (msvcrt.LK_NBLCK, 1)
    try:
        real_lock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise PermissionError(errno.EACCES, "permission denied") from error


msvcrt = SimpleNamespace(locking=lock_byte, LK_NBLCK=2)


def refuse_open_file(path: str | Path) -> None:
    """Fail if this process has the file open, or has it mapped into memory; files of the real system are let be."""
    real_path = os.path.realpath(path)
    descriptors = Path("/proc/self/fd")
    opened = {os.readlink(link) for link in descriptors.iterdir() if link.is_symlink()}
    mapped = {line.split(maxsplit=5)[-1] for line in Path("/proc/self/maps").read_text("utf-8").splitlines()}
    if real_path in opened | mapped and real_path.startswith(os.getcwd()):
        raise SharingViolationError(errno.EACCES, "the file is open", str(path))


def refuse_open_files(action: Callable[..., None], busy: bool) -> Callable[..., None]:
    """The same for files that are not open; if `busy`, the first attempts on each path fail."""

    def guard(*paths: Any, **options: Any) -> None:  # noqa: ANN401
        for path in paths:
            refuse_open_file(path)
        target = str(paths[-1])
        if busy and failures.setdefault(target, 0) < NUM_FAILURES:
            failures[target] += 1
            raise SharingViolationError(errno.EACCES, "the file is busy", target)
        failures.pop(target, None)
        action(*paths, **options)

    return guard


class ReducedModule(ModuleType):
    """A module some of whose names are there for everyone but the package."""

    hidden: Mapping[str, object]

    def __getattr__(self, name: str) -> object:
        if name not in self.hidden or sys._getframe(1).f_globals["__name__"].startswith("pellucid"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r} on this system")
        return self.hidden[name]


def hide_names(module: ModuleType, names: Sequence[str]) -> None:
    """Take the names from the package."""
    hidden = {name: getattr(module, name) for name in names}
    for name in names:
        delattr(module, name)
    module.__class__ = ReducedModule
    module.hidden = hidden  # type: ignore[attr-defined]


sys.modules.update(dict.fromkeys(MISSING_MODULES))  # type: ignore[arg-type]
sys.modules["msvcrt"] = msvcrt  # type: ignore[assignment]
hide_names(os, MISSING_OS_NAMES)
hide_names(signal, MISSING_SIGNAL_NAMES)
os.replace, os.rename = refuse_open_files(os.replace, busy=True), refuse_open_files(os.rename, busy=False)
os.unlink = os.remove = refuse_open_files(os.unlink, busy=False)
multiprocessing.set_start_method("spawn")
