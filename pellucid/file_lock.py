"""Locks of open files between processes: `flock` on POSIX, a locked byte on Windows.

A lock ends with its file, and so with its process, also with a killed one. Both kinds exclude a second opening of the
same file in the same process, too. On a system that has neither, every lock is granted.
"""

import os
import time
from typing import IO, Any

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]
try:
    import msvcrt
except ImportError:  # POSIX
    msvcrt = None  # type: ignore[assignment]

LOCKED_BYTE = 2**30
"""Position of the byte that is locked on Windows: far behind the content, which stays readable."""
POLL_SECONDS = 0.1
"""Pause between two attempts to take the lock on Windows, which cannot wait without a time limit."""


def try_lock(file: IO[Any], shared: bool = False) -> bool:
    """Take the lock of an open file without waiting; closing the file releases it.

    Args:
        file: The open file.
        shared: Whether other shared locks are permitted meanwhile. On Windows every lock is exclusive.

    Returns:
        Whether the lock is taken.
    """
    if fcntl is not None:
        try:
            fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    elif msvcrt is not None:
        return _try_lock_byte(file.fileno())
    return True


def wait_for_lock(file: IO[Any]) -> None:
    """Take the lock of an open file, and wait while another process holds it.

    Args:
        file: The open file.
    """
    if fcntl is not None:
        fcntl.flock(file, fcntl.LOCK_EX)
        return
    while not try_lock(file):
        time.sleep(POLL_SECONDS)


def _try_lock_byte(descriptor: int) -> bool:
    """Lock one byte with msvcrt, and leave the position in the file unchanged."""
    position = os.lseek(descriptor, 0, os.SEEK_CUR)
    os.lseek(descriptor, LOCKED_BYTE, os.SEEK_SET)
    try:
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]
    except PermissionError:
        return False
    finally:
        os.lseek(descriptor, position, os.SEEK_SET)
    return True
