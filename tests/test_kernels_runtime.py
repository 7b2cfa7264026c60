"""Aligned arrays, the reuse of freed memory, and the deferral of signals while compiled code runs."""

import os
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest

from pellucid.kernels.runtime import ALIGNMENT, contiguous, defer_signals, empty, thread_map, zeros

PROGRAM = """
import resource, sys
import numpy as np
from pellucid.kernels.runtime import tune_malloc
if sys.argv[1] == "kept":
    tune_malloc()

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def use():
    np.empty(48 * 2**20, np.uint8).fill(1)  # larger than any block that the C library keeps by default

use()
before = faults()
for _ in range(5):
    use()
print(faults() - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the GNU C library's own setting")
def test_freed_memory_is_reused() -> None:
    faults_if_kept, faults_if_returned = (
        int(subprocess.run([sys.executable, "-c", PROGRAM, mode], check=True, capture_output=True, text=True).stdout)
        for mode in ("kept", "returned")
    )
    assert faults_if_kept < 100 < faults_if_returned


@pytest.mark.parametrize("shape", [(0,), (1,), (3, 0), (5, 7), (2, 3, 100)])
def test_arrays_begin_at_cache_lines(shape: tuple[int, ...]) -> None:
    for allocate in (empty, zeros):
        array = allocate(shape)
        assert array.shape == shape and array.dtype == np.float32 and array.flags.c_contiguous and array.flags.writeable
        assert not array.size or array.ctypes.data % ALIGNMENT == 0
    assert not zeros(shape).any()


def test_only_non_contiguous_arrays_are_copied() -> None:
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    assert contiguous(array) is array
    transposed, ids = contiguous(array.T), contiguous(np.arange(6).reshape(2, 3).T)
    assert transposed.flags.c_contiguous and transposed.ctypes.data % ALIGNMENT == 0 and (transposed == array.T).all()
    assert ids.flags.c_contiguous and ids.dtype == np.int64


def test_ctrl_c_is_raised_after_the_block() -> None:
    reached = []
    with pytest.raises(KeyboardInterrupt), defer_signals():
        os.kill(os.getpid(), signal.SIGINT)
        reached.append("behind the signal")
    assert reached == ["behind the signal"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_custom_handler_is_called_after_the_block() -> None:
    received: list[int] = []
    previous = signal.signal(signal.SIGINT, lambda number, _: received.append(number))
    try:
        with defer_signals():
            os.kill(os.getpid(), signal.SIGINT)
            assert received == []
        assert received == [signal.SIGINT]
    finally:
        signal.signal(signal.SIGINT, previous)


def test_an_error_in_the_block_restores_the_handler() -> None:
    with pytest.raises(ValueError, match="mine"), defer_signals():
        raise ValueError("mine")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_other_threads_keep_the_handler() -> None:
    handlers: list[object] = []

    def work() -> None:
        with defer_signals():
            handlers.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert handlers == [signal.default_int_handler]


def test_every_part_of_a_batch_defers_ctrl_c() -> None:
    def task(part: int) -> int:
        os.kill(os.getpid(), signal.SIGINT)
        finished.append(part)
        return part

    finished: list[int] = []
    with pytest.raises(KeyboardInterrupt):
        thread_map(task, [1])
    assert finished == [1]


SIGNAL_PROGRAM = """
import signal
import numpy as np
from pellucid.kernels.recurrence import recurrent_parameters, row_groups, run_groups
from pellucid.kernels.types import GRU, DirectionParameters

class TimeOut(Exception):
    pass

def stop(*_):
    raise TimeOut

arrays = (np.zeros(shape, np.float32) for shape in ((9, 48), (48, 16), (16,)))
direction = DirectionParameters(GRU, *arrays)
symbols, lengths = np.zeros((64, 40), np.int64), np.full(64, 40)

def run():
    run_groups([recurrent_parameters(direction)], row_groups(symbols, lengths, 1), (64, 40, 1), False)

run()
signal.signal(signal.SIGALRM, stop)
raised = 0
for _ in range(100):
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.001)
        while True:
            run()
    except TimeOut:
        raised += 1
assert signal.getsignal(signal.SIGALRM) is stop
print(raised)
"""


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs SIGALRM")
def test_a_handler_that_raises_does_not_crash_a_kernel() -> None:
    result = subprocess.run([sys.executable, "-c", SIGNAL_PROGRAM], check=False, capture_output=True, text=True)
    assert (result.returncode, result.stdout) == (0, "100\n"), result.stderr


@pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="needs SIGUSR1")
def test_all_deferred_handlers_are_called_and_restored_though_one_raises() -> None:
    def stop(number: int, _: object) -> None:
        received.append(number)
        raise KeyError(number)

    received: list[int] = []
    signals = (signal.SIGUSR1, signal.SIGUSR2)
    previous = [signal.signal(number, stop) for number in signals]
    try:
        with pytest.raises(KeyError), defer_signals(), defer_signals():
            for number in signals:
                os.kill(os.getpid(), number)
            assert received == []
        assert sorted(received) == sorted(signals)
        assert all(signal.getsignal(number) is stop for number in signals)
    finally:
        for number, handler in zip(signals, previous, strict=True):
            signal.signal(number, handler)
