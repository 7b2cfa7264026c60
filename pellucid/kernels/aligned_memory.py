"""Aligned arrays, and the reuse of freed memory."""

import ctypes
import math
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import cache

import numpy as np

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
MOST = 2**30
"""Bytes up to which a piece of memory is kept for the next that asks."""


@cache
def tune_malloc() -> None:
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


ALIGNMENT = 64
"""Bytes of a line of the cache. NumPy begins arrays at any multiple of 16, and a kernel is slower for it."""


def empty(shape: Sequence[int]) -> np.ndarray:
    """Return an array of float32 that begins where a line of the cache does."""
    size = 4 * math.prod(shape)
    room = np.empty(size + ALIGNMENT, np.uint8)
    first = -room.__array_interface__["data"][0] % ALIGNMENT
    return room[first : first + size].view(np.float32).reshape(shape)


def zeros(shape: Sequence[int]) -> np.ndarray:
    """Return zeros of float32 that begin where a line of the cache does."""
    made = empty(shape)
    made[...] = 0
    return made


def contiguous(array: np.ndarray) -> np.ndarray:
    """Return the array if its numbers stand one after the other, else a copy in which they do."""
    if array.flags.c_contiguous:
        return array
    if array.dtype != np.float32:
        return np.ascontiguousarray(array)
    made = empty(array.shape)
    made[...] = array
    return made
