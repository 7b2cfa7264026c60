"""Ctrl-C while compiled code runs: held back, never lost."""

import os
import signal
import threading

import pytest

from pellucid.kernels.parallel import defer_sigint, for_each


def test_an_interruption_waits_for_the_end() -> None:
    reached = []
    with pytest.raises(KeyboardInterrupt), defer_sigint():
        os.kill(os.getpid(), signal.SIGINT)
        reached.append("behind the signal")
    assert reached == ["behind the signal"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_whoever_listens_hears_of_it_afterwards() -> None:
    heard: list[int] = []
    former = signal.signal(signal.SIGINT, lambda number, _: heard.append(number))
    try:
        with defer_sigint():
            os.kill(os.getpid(), signal.SIGINT)
            assert heard == []
        assert heard == [signal.SIGINT]
    finally:
        signal.signal(signal.SIGINT, former)


def test_an_error_within_goes_its_way_and_the_handler_is_back() -> None:
    with pytest.raises(ValueError, match="mine"), defer_sigint():
        raise ValueError("mine")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_other_threads_are_left_alone() -> None:
    seen: list[object] = []

    def work() -> None:
        with defer_sigint():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [signal.default_int_handler]


def test_every_part_of_a_batch_is_shielded() -> None:
    def task(part: int) -> int:
        os.kill(os.getpid(), signal.SIGINT)
        done.append(part)
        return part

    done: list[int] = []
    with pytest.raises(KeyboardInterrupt):
        for_each(task, [1])
    assert done == [1]
