"""What becomes of memory that was freed."""

import ctypes
import sys
from contextlib import suppress
from functools import cache

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
MOST = 2**30
"""Bytes up to which a piece of memory is kept for the next that asks."""


@cache
def keep_freed_memory() -> None:
    """Keep memory that one update or batch has freed for the next, instead of giving it back to the system.

    The GNU C library maps each large array anew, and the system clears it page by page: up to a tenth of an update.
    The most that a process holds stays the same. Elsewhere this does nothing.
    """
    if not sys.platform.startswith("linux"):
        return
    with suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        library.mallopt(M_MMAP_THRESHOLD, MOST)
        library.mallopt(M_TRIM_THRESHOLD, MOST)
