"""One training at a time in the threads of a process."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from pellucid.errors import RunError

_active_trainings = dict[object, tuple[int, int]]()
"""Process and thread of each training that has begun and not ended; a forked process ignores those of its parent."""
_active_lock = threading.Lock()


@contextmanager
def one_training_thread() -> Iterator[None]:
    """Refuse to train while another thread of this process trains: both would draw from torch's one generator.

    Raises:
        RunError: Another thread is training.
    """
    training, process, thread = object(), os.getpid(), threading.get_ident()
    with _active_lock:
        if any(owner == process and other != thread for owner, other in list(_active_trainings.values())):
            raise RunError(
                "another thread of this process is training: trainings in threads share torch's random numbers and "
                "would change each other; run each training in a process of its own"
            )
        _active_trainings[training] = process, thread
    try:
        yield
    finally:
        del _active_trainings[training]
