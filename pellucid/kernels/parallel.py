"""Rows of a batch spread over threads, each thread running its rows through the whole sequence; deferral of Ctrl-C.

Threads wait for each other once a sequence; threads inside every small product would wait at every step. The products
within stay in the calling thread: threads of a second pool would compete for the same cores.

The result of a kernel is assembled by Python classes. An interrupt that is pending there would be raised inside
compiled code, which does not check for errors, and crash the process; so it is deferred until the kernel has returned.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache, partial
from itertools import pairwise
from types import FrameType
from typing import TypeVar

import numpy as np

from pellucid.kernels.gemm import in_one_thread

Part = TypeVar("Part")
Result = TypeVar("Result")


MIN_ROWS = 16
"""Smallest number of rows of a part. With fewer rows a product is bound by its weights, which every part must read."""


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


def parts_of(rows: int, num_groups: int = 1) -> int:
    """Return the number of parts of a batch, so that all groups together have one part for each thread.

    Args:
        rows: Number of rows of the batch.
        num_groups: Number of groups that each divide the batch, as the directions of an encoder; default 1.
    """
    return max(1, min(num_threads() // num_groups, rows // MIN_ROWS))


def slices(rows: int, parts: int) -> list[slice]:
    """Return consecutive slices of nearly equal length.

    Args:
        rows: Number of rows.
        parts: Number of slices.
    """
    return [slice(start, end) for start, end in pairwise(rows * part // parts for part in range(parts + 1))]


def for_each(task: Callable[[Part], Result], parts: Sequence[Part]) -> list[Result]:
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


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_pool.cache_clear)  # a forked process has none of its parent's threads
