"""How a process computes: its threads and its memory."""

import os

import torch

from pellucid.kernels.allocation import keep_freed_memory


def use_threads(threads: int) -> None:
    """Compute with so many threads in this process; 0 takes one for each core.

    Threads that share a core wait for each other by spinning, which makes small models many times slower on a busy
    machine: one thread is the safe default.
    """
    keep_freed_memory()
    torch.set_num_threads(threads or os.cpu_count() or 1)
