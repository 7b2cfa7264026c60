"""How a process computes: its threads and its memory."""

import torch

from pellucid.kernels.allocation import keep_freed_memory
from pellucid.processes import cores


def use_threads(threads: int) -> None:
    """Compute with so many threads in this process; 0 takes one for each core it may use.

    Threads that share a core wait for each other by spinning, which makes small models many times slower on a busy
    machine: one thread is the safe default.
    """
    keep_freed_memory()
    torch.set_num_threads(threads or cores())
