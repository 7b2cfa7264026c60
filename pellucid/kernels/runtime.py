"""Memory, threads and signals around kernels: aligned arrays, one thread per part of a batch, deferral of Ctrl-C.

Neither Numba nor PyTorch is needed to import this module.

Each thread runs its rows through the whole sequence. So threads wait for each other once a sequence; threads inside
every small product would wait at every step. The products within stay in the calling thread: threads of a second pool
would compete for the same cores.

The result of a kernel is assembled by Python classes. An interrupt that is pending there would be raised inside
compiled code, which does not check for errors, and crash the process; so it is deferred until the kernel has returned.
"""

import ctypes
import math
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import TypeVar

import numpy as np
from threadpoolctl import ThreadpoolController

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


Part = TypeVar("Part")
Result = TypeVar("Result")


MIN_ROWS = 16
"""Smallest number of rows of a part. With fewer rows a product is bound by its weights, which every part must read."""


@cache
def torch_library() -> ctypes.CDLL | None:
    """Return PyTorch's library, if PyTorch is loaded and the library exports SGEMM."""
    torch = sys.modules.get("torch")
    if torch is None or torch.__file__ is None:
        return None
    folder = Path(torch.__file__).parent / "lib"
    for name in ("libtorch_cpu.so", "libtorch_cpu.dylib", "torch_cpu.dll"):
        try:
            library = ctypes.CDLL(str(folder / name))
            _ = library.sgemm_, library.MKL_Set_Num_Threads_Local
        except (OSError, AttributeError):
            continue
        return library
    return None


@contextmanager
def in_one_thread() -> Iterator[None]:
    """Compute products within the block in the calling thread alone, and restore the thread's setting afterwards."""
    library = torch_library()
    if library is None:
        with _blas().limit(limits=1):
            yield
        return
    former = library.MKL_Set_Num_Threads_Local(1)
    try:
        yield
    finally:
        library.MKL_Set_Num_Threads_Local(former)


@cache
def _blas() -> ThreadpoolController:
    """Return the BLAS libraries of this process."""
    return ThreadpoolController().select(user_api="blas")


@contextmanager
def defer_sigint() -> Iterator[None]:
    """Defer Ctrl-C until the end of the block. Only the main thread receives it; in other threads this does nothing."""
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield
        return
    frames: list[FrameType | None] = []
    signal.signal(signal.SIGINT, lambda _, frame: frames.append(frame))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
    if frames:
        handler(signal.SIGINT, frames[-1])


def num_threads() -> int:
    """Return the number of threads that compute: PyTorch's if it is loaded, else one."""
    torch = sys.modules.get("torch")
    threads: int = torch.get_num_threads() if torch else 1
    return threads


def num_slices(rows: int, num_groups: int = 1) -> int:
    """Return the number of parts of a batch, so that all groups together have one part for each thread.

    Args:
        rows: Number of rows of the batch.
        num_groups: Number of groups that each divide the batch, as the directions of an encoder; default 1.
    """
    return max(1, min(num_threads() // num_groups, rows // MIN_ROWS))


def split_rows(rows: int, parts: int) -> list[slice]:
    """Return consecutive slices of nearly equal length.

    Args:
        rows: Number of rows.
        parts: Number of slices.
    """
    return [slice(start, end) for start, end in pairwise(rows * part // parts for part in range(parts + 1))]


def thread_map(task: Callable[[Part], Result], parts: Sequence[Part]) -> list[Result]:
    """Return the task's result for every part: concurrently if there are several threads, else one after the other.

    Args:
        task: Function of one part.
        parts: Arguments of the task.
    """
    workers = min(len(parts), num_threads())
    if workers == 1:
        with defer_sigint(), in_one_thread():
            return [task(part) for part in parts]
    return list(_pool(workers).map(partial(_run_task, task), parts))


def _run_task(task: Callable[[Part], Result], part: Part) -> Result:
    """Run the task with its products in this thread and Ctrl-C deferred."""
    with defer_sigint(), in_one_thread():
        return task(part)


def concat_rows(parts: Sequence[np.ndarray]) -> np.ndarray:
    """Return the rows of all parts as one array; a single part is not copied.

    Args:
        parts: Arrays that differ in the first dimension only.
    """
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    """Return a pool of threads; cached."""
    return ThreadPoolExecutor(threads, thread_name_prefix="pellucid")


os.register_at_fork(after_in_child=_pool.cache_clear)  # a forked process has none of its parent's threads
