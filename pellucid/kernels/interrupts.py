"""Ctrl-C while compiled code runs.

What a kernel returns is put together by Python classes. An interruption that waits there would be raised inside, where
compiled code looks for no error, and take the process down; so it is held back until the kernel has returned.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def held_back() -> Iterator[None]:
    """Within, Ctrl-C is only noted; afterwards it does what it would have done. Threads but the first never see it."""
    former = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(former):
        yield
        return
    noted: list[FrameType | None] = []
    signal.signal(signal.SIGINT, lambda _, frame: noted.append(frame))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, former)
    if noted:
        former(signal.SIGINT, noted[-1])
