"""How many threads compute."""

import os

import torch


def use_threads(threads: int) -> None:
    """Compute with so many threads in this process; 0 takes one for each core.

    Threads that share a core wait for each other by spinning, which makes small models many times slower on a busy
    machine: one thread is the safe default.
    """
    torch.set_num_threads(threads or os.cpu_count() or 1)
