"""How a process computes: its threads and its memory."""

import os
from functools import cache, partial

import torch

from pellucid.errors import RunError
from pellucid.kernels.allocation import keep_freed_memory
from pellucid.worker_pool import available_cores


def use_threads(threads: int) -> None:
    """Compute with so many threads in this process; 0 takes one for each core it may use, and one if it is forked.

    Threads that share a core wait for each other by spinning, which makes small models many times slower on a busy
    machine: one thread is the safe default.

    Raises:
        RunError: A forked process is to compute with several threads.
    """
    keep_freed_memory()
    forked = prepare_for_forks() != os.getpid()
    if forked and threads > 1:
        raise RunError(
            f"threads = {threads}: a forked process computes with one thread, for those of its parent are not copied; "
            f"take threads = 1, or start the process with the method 'spawn'"
        )
    torch.set_num_threads(threads or (1 if forked else available_cores()))


@cache
def prepare_for_forks() -> int:
    """Make every process that is forked from now on compute with one thread.

    A fork copies the thread that asks for it and no other. OpenMP, with which PyTorch and MKL spread their work, still
    counts on those it had started, and waits for them for ever. With one thread it needs none.

    Returns:
        The id of the process that has its own threads: in any other one, this one or its parent was forked.
    """
    os.register_at_fork(after_in_child=partial(torch.set_num_threads, 1))
    return os.getpid()
