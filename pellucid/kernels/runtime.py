"""Memory, threads and signals around kernels: aligned arrays, one thread per slice of a batch, deferral of signals.

Neither Numba nor PyTorch is needed to import this module.

Each thread runs its rows through the whole sequence. So threads wait for each other once a sequence; threads inside
every small product would wait at every step. The products within stay in the calling thread: threads of a second pool
would compete for the same cores.

The result of a kernel is assembled by Python functions. A signal handler that raised there would raise inside compiled
code, which does not check for errors, and crash the process; so signals are deferred until the kernel has returned.
"""

import _signal  # type: ignore[import-not-found]  # `signal` converts numbers to enumerations: twenty times as slow
import ctypes
import math
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
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


Handler = Callable[[int, FrameType | None], object]
SIGNALS = tuple(int(number) for number in signal.valid_signals())
"""Numbers of all signals of this system."""


@cache
def tune_malloc() -> None:
    """Make the C library keep freed blocks of up to 1 GiB in the process, so that the next update or batch reuses them.

    The GNU C library maps each large array again, and the system clears it page by page, which takes up to a tenth of
    an update. Peak memory does not change. It applies to the whole process; on other systems it does nothing.
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
    """Return the array itself if it is C-contiguous, else a C-contiguous copy of the same type.

    Args:
        array: Array of any type; a copy of a float32 array begins at a cache line.
    """
    if array.flags.c_contiguous:
        return array
    if array.dtype != np.float32:
        return np.ascontiguousarray(array)
    copy = empty(array.shape)
    copy[...] = array
    return copy


Item = TypeVar("Item")
Result = TypeVar("Result")


MIN_ROWS = 16
"""Smallest number of rows of a slice. With fewer, a product is bound by its weights, which every slice must read."""


@cache
def torch_library() -> ctypes.CDLL | None:
    """Return PyTorch's library of matrix products; None if PyTorch is not loaded or is built without Intel's MKL.

    The answer of the first call holds for the process.
    """
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
    """Compute matrix products within the block in the calling thread alone, and restore the setting afterwards."""
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


class DeferredSignals:
    """Handler that records signals while it is active, and calls the former handlers otherwise."""

    def __init__(self) -> None:
        """Record signals from now on."""
        self.is_active = True
        self.handlers: dict[int, Handler] = {}
        """Former handler of each signal."""
        self.frames: dict[int, FrameType | None] = {}
        """Frame of the last arrival of each recorded signal."""

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Record a signal, or handle it.

        Args:
            number: Number of the signal.
            frame: Frame in which the signal arrived.
        """
        if self.is_active:
            self.frames[number] = frame
        else:
            self.handlers[number](number, frame)

    def install(self) -> None:
        """Replace every handler in Python by this one."""
        for number in SIGNALS:
            handler = _signal.getsignal(number)
            if callable(handler):
                while isinstance(handler, DeferredSignals):  # left where a handler raised while it was restored
                    handler = handler.handlers[number]
                self.handlers[number] = handler
                _signal.signal(number, self)

    def restore(self) -> None:
        """Restore the former handlers, and call those of the recorded signals once each, even if one raises."""
        with ExitStack() as stack:
            for number, handler in self.handlers.items():
                try:
                    _signal.signal(number, handler)
                except BaseException as error:  # raised by a handler that is already restored
                    _signal.signal(number, handler)
                    stack.callback(partial(_raise, error))
            self.is_active = False
            for number, frame in list(self.frames.items()):
                stack.callback(self.handlers[number], number, frame)


def _raise(error: BaseException) -> None:
    """Raise the error."""
    raise error


_deferred: list[DeferredSignals] = []
"""The handler of the block that is running, if any."""


@contextmanager
def defer_signals() -> Iterator[None]:
    """Defer all signals with a handler in Python to the end of the block, which calls each handler once if it is due.

    Numba calls Python functions to build the arrays and tuples that a kernel returns. A handler that raised there, such
    as that of Ctrl-C or of a time limit, would crash the process.

    Only the main thread runs handlers; in other threads, and within another such block, this does nothing.
    """
    if _deferred or threading.current_thread() is not threading.main_thread():
        yield
        return
    deferred = DeferredSignals()
    try:
        _deferred.append(deferred)
        deferred.install()
        yield
    finally:
        _deferred.clear()
        deferred.restore()


def num_threads() -> int:
    """Return the number of threads of kernels: `torch.get_num_threads()` if PyTorch is loaded, else one."""
    torch = sys.modules.get("torch")
    threads: int = torch.get_num_threads() if torch else 1
    return threads


def num_slices(rows: int, num_groups: int = 1) -> int:
    """Return the number of slices into which a batch is divided: at most one per thread, of at least `MIN_ROWS` rows.

    It is at least one.

    Args:
        rows: Number of rows of the batch.
        num_groups: Number of groups that share the threads, as the directions of an encoder, each of which divides the
            batch into this number of slices; default 1.
    """
    return max(1, min(num_threads() // num_groups, rows // MIN_ROWS))


def split_rows(rows: int, count: int) -> list[slice]:
    """Return consecutive slices that cover all rows, whose lengths differ by at most one.

    Args:
        rows: Number of rows.
        count: Number of slices.
    """
    return [slice(start, end) for start, end in pairwise(rows * index // count for index in range(count + 1))]


def thread_map(task: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """Return the results of the task in the order of the items; up to `num_threads()` items run at the same time.

    Matrix products of a task stay in its thread. With one thread or one item, the tasks run in the calling thread, and
    signals are deferred until all have ended. An error of a task is raised here.

    Args:
        task: Function of one item.
        items: Arguments of the task, at least one.
    """
    workers = min(len(items), num_threads())
    if workers == 1:
        with defer_signals(), in_one_thread():
            return [task(item) for item in items]
    return list(_pool(workers).map(partial(_run_task, task), items))


def _run_task(task: Callable[[Item], Result], item: Item) -> Result:
    """Run the task with its products in this thread and signals deferred."""
    with defer_signals(), in_one_thread():
        return task(item)


def concat_rows(arrays: Sequence[np.ndarray]) -> np.ndarray:
    """Return the rows of all arrays as one array; a single array is returned itself, without a copy.

    Args:
        arrays: Arrays that differ in the first dimension only; at least one.
    """
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    """Return a pool of threads; cached."""
    return ThreadPoolExecutor(threads, thread_name_prefix="pellucid")


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_pool.cache_clear)  # a forked process has none of its parent's threads
