"""Rows of a batch spread over threads, each thread running its own rows through the whole sequence.

There is one meeting a sequence, where threads inside every small product would meet at every step. The products
within stay in the thread that asks for them: threads of a second kind would only fight for the same cores.
"""

import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from itertools import pairwise
from typing import TypeVar

import numpy as np

from pellucid.kernels.gemm import in_one_thread
from pellucid.kernels.interrupts import held_back

Part = TypeVar("Part")
Result = TypeVar("Result")


ROWS = 16
"""Rows that a part has at least: a product of fewer is bound by its weights, which every part must read."""


def num_threads() -> int:
    """Return how many threads compute: as many as PyTorch's where it is loaded, else one."""
    torch = sys.modules.get("torch")
    threads: int = torch.get_num_threads() if torch else 1
    return threads


def parts_of(rows: int, sharers: int = 1) -> int:
    """In how many parts a batch is worth cutting, where so many `sharers` each cut it: one for each thread in all."""
    return max(1, min(num_threads() // sharers, rows // ROWS))


def slices(rows: int, parts: int) -> list[slice]:
    """So many rows in parts of nearly equal length, in their order."""
    return [slice(start, end) for start, end in pairwise(rows * part // parts for part in range(parts + 1))]


def for_each(task: Callable[[Part], Result], parts: Sequence[Part]) -> list[Result]:
    """The task done for every part: at the same time where there are threads, else one after the other, here."""
    workers = min(len(parts), num_threads())
    if workers == 1:
        return [_alone(task, part) for part in parts]
    return list(_pool(workers).map(partial(_alone, task), parts))


def _alone(task: Callable[[Part], Result], part: Part) -> Result:
    """The task, with its products in this thread, and uninterrupted."""
    with held_back(), in_one_thread():
        return task(part)


def end_to_end(parts: Sequence[np.ndarray]) -> np.ndarray:
    """The rows of all parts as one array; a single part is not copied."""
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    """Threads that wait for work, asleep."""
    return ThreadPoolExecutor(threads, thread_name_prefix="pellucid")


os.register_at_fork(after_in_child=_pool.cache_clear)  # a forked process has none of its parent's threads
