"""Emulation of the limits of Windows for `test_platforms.py`. Every process imports it first, as `sitecustomize`.

This module removes what Windows lacks: modules for all importers, functions and constants only for the package, because
NumPy and PyTorch choose by the name of the system. An open file cannot be replaced or removed. The first attempts to
replace any file fail, as if a virus scanner were reading it. Locks are those of msvcrt, implemented with fcntl.
"""

import errno
import fcntl
import multiprocessing
import os
import signal
import subprocess  # noqa: F401 (it tries to import msvcrt to detect Windows, so its import comes first)
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
"""Number of failed attempts to replace a file before one succeeds."""

posix_lock = fcntl.flock
num_failures: dict[str, int] = {}
"""Failed attempts so far, by path."""


class EmulatedSharingViolationError(PermissionError):
    """The error of Windows for a file that another process has opened."""

    winerror = 32


def lock_byte(descriptor: int, mode: int, size: int) -> None:
    """Lock a file as `msvcrt.locking` does: fail at once, with another type of error than flock."""
    assert (mode, size) == (msvcrt.LK_NBLCK, 1)
    try:
        posix_lock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise PermissionError(errno.EACCES, "permission denied") from error


msvcrt = SimpleNamespace(locking=lock_byte, LK_NBLCK=2)


def refuse_open_file(path: str | Path) -> None:
    """Raise an error if this process has opened the file or mapped it into memory.

    Only files below the working folder are checked.
    """
    real_path = os.path.realpath(path)
    descriptors = Path("/proc/self/fd")
    open_files = {os.readlink(link) for link in descriptors.iterdir() if link.is_symlink()}
    mapped_files = {line.split(maxsplit=5)[-1] for line in Path("/proc/self/maps").read_text("utf-8").splitlines()}
    if real_path in open_files | mapped_files and real_path.startswith(os.getcwd()):
        raise EmulatedSharingViolationError(errno.EACCES, "the file is open", str(path))


def refuse_open_files(action: Callable[..., None], busy: bool) -> Callable[..., None]:
    """Return a file operation that refuses open files; if `busy`, its first attempts on each path fail."""

    def checked_action(*paths: Any, **options: Any) -> None:  # noqa: ANN401
        for path in paths:
            refuse_open_file(path)
        target = str(paths[-1])
        if busy and num_failures.setdefault(target, 0) < NUM_FAILURES:
            num_failures[target] += 1
            raise EmulatedSharingViolationError(errno.EACCES, "the file is busy", target)
        num_failures.pop(target, None)
        action(*paths, **options)

    return checked_action


class ReducedModule(ModuleType):
    """A module that hides some of its names from the package."""

    hidden: Mapping[str, object]

    def __getattr__(self, name: str) -> object:
        if name not in self.hidden or sys._getframe(1).f_globals["__name__"].startswith("pellucid"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r} on this system")
        return self.hidden[name]


def hide_names(module: ModuleType, names: Sequence[str]) -> None:
    """Hide these names of a module from the package."""
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
