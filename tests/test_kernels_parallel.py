"""Ctrl-C while compiled code runs is deferred, never lost."""

import os
import signal
import threading

import pytest

from pellucid.kernels.parallel import defer_sigint, for_each


def test_ctrl_c_is_raised_after_the_block() -> None:
    reached = []
    with pytest.raises(KeyboardInterrupt), defer_sigint():
        os.kill(os.getpid(), signal.SIGINT)
        reached.append("behind the signal")
    assert reached == ["behind the signal"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_custom_handler_is_called_after_the_block() -> None:
    received: list[int] = []
    previous = signal.signal(signal.SIGINT, lambda number, _: received.append(number))
    try:
        with defer_sigint():
            os.kill(os.getpid(), signal.SIGINT)
            assert received == []
        assert received == [signal.SIGINT]
    finally:
        signal.signal(signal.SIGINT, previous)


def test_an_error_in_the_block_restores_the_handler() -> None:
    with pytest.raises(ValueError, match="mine"), defer_sigint():
        raise ValueError("mine")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_other_threads_keep_the_handler() -> None:
    handlers: list[object] = []

    def work() -> None:
        with defer_sigint():
            handlers.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert handlers == [signal.default_int_handler]


def test_every_part_of_a_batch_defers_ctrl_c() -> None:
    def task(part: int) -> int:
        os.kill(os.getpid(), signal.SIGINT)
        done.append(part)
        return part

    done: list[int] = []
    with pytest.raises(KeyboardInterrupt):
        for_each(task, [1])
    assert done == [1]
