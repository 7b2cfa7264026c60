"""Rows of a batch spread over threads, each thread running its own rows through the whole sequence.

There is one meeting a sequence, where threads inside every small product would meet at every step. The products
within stay in the thread that asks for them: threads of a second kind would only fight for the same cores.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import TypeVar

import numpy as np
import scipy.linalg.cython_blas  # noqa: F401  # the products of compiled kernels; loaded before it is looked for
import torch
from threadpoolctl import ThreadpoolController
from torch import Tensor

Part = TypeVar("Part")
Result = TypeVar("Result")


ROWS = 16
"""Rows that a part has at least: a product of fewer is bound by its weights, which every part must read."""


def parts_of(rows: int) -> int:
    """In how many parts a batch is worth cutting: one for each of PyTorch's threads, as long as there are rows."""
    return max(1, min(torch.get_num_threads(), rows // ROWS))


def for_each(task: Callable[[Part], Result], parts: Sequence[Part]) -> list[Result]:
    """The task done for every part, at the same time; a single part is done here and now."""
    with _products_in_one_thread():
        return [task(parts[0])] if len(parts) == 1 else list(_pool(len(parts)).map(task, parts))


def end_to_end(parts: Sequence[np.ndarray]) -> Tensor:
    """The rows of all parts as one tensor; a single part is not copied."""
    return torch.from_numpy(parts[0] if len(parts) == 1 else np.concatenate(parts))


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    """Threads that wait for work, asleep."""
    return ThreadPoolExecutor(threads, thread_name_prefix="pellucid")


@cache
def _blas() -> ThreadpoolController:
    """The libraries of products in this process."""
    return ThreadpoolController().select(user_api="blas")


@contextmanager
def _products_in_one_thread() -> Iterator[None]:
    """Within, a product of matrices runs in the thread that asks for it; afterwards the setting is as it was."""
    with _blas().limit(limits=1):
        yield
