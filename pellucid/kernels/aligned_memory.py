"""Aligned arrays, and the reuse of freed memory."""

import ctypes
import math
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import cache

import numpy as np

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
MAX_RETAINED_BYTES = 2**30
"""Bytes: freed blocks up to this size stay in the process and are reused."""


@cache
def tune_malloc() -> None:
    """Keep freed memory in the process, so that the next update or batch reuses it.

    The GNU C library maps each large array again, and the system clears it page by page, which takes up to a tenth of
    an update. Peak memory does not change. On other systems this does nothing.
    """
    if not sys.platform.startswith("linux"):
        return
    with suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        library.mallopt(M_MMAP_THRESHOLD, MAX_RETAINED_BYTES)
        library.mallopt(M_TRIM_THRESHOLD, MAX_RETAINED_BYTES)


ALIGNMENT = 64
"""Bytes of a cache line. NumPy aligns arrays to 16 bytes only, which slows a kernel down."""


def empty(shape: Sequence[int]) -> np.ndarray:
    """Return an uninitialized float32 array that begins at a cache line.

    Args:
        shape: Sizes of the dimensions.
    """
    size = 4 * math.prod(shape)
    buffer = np.empty(size + ALIGNMENT, np.uint8)
    offset = -buffer.__array_interface__["data"][0] % ALIGNMENT
    return buffer[offset : offset + size].view(np.float32).reshape(shape)


def zeros(shape: Sequence[int]) -> np.ndarray:
    """Return a float32 array of zeros that begins at a cache line.

    Args:
        shape: Sizes of the dimensions.
    """
    result = empty(shape)
    result[...] = 0
    return result


def contiguous(array: np.ndarray) -> np.ndarray:
    """Return the array itself if it is C-contiguous, else a contiguous copy.

    Args:
        array: Array of any type; a copy of a float32 array is aligned to cache lines.
    """
    if array.flags.c_contiguous:
        return array
    if array.dtype != np.float32:
        return np.ascontiguousarray(array)
    copy = empty(array.shape)
    copy[...] = array
    return copy
