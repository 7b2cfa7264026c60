"""model/evaluation_mode.py: modes of networks that several threads use."""

import os
import signal
import threading

import pytest
from small_networks import make_config, make_network

from pellucid.model import evaluation_mode as evaluation_mode_module
from pellucid.model.evaluation_mode import evaluation_mode


def test_threads_share_the_evaluation_mode_of_a_network() -> None:
    """The first thread to enter finds the training mode; it returns when the last one has left."""
    network = make_network(make_config({}), 1).train()
    entered, leave, modes = threading.Barrier(2), threading.Event(), list[bool]()

    def stay() -> None:
        with evaluation_mode(network):
            entered.wait(10)
            leave.wait(10)
            modes.append(network.training)

    thread = threading.Thread(target=stay)
    with evaluation_mode(network):
        thread.start()
        entered.wait(10)
    assert not network.training, "the other thread still decodes"
    leave.set()
    thread.join(10)
    assert modes == [False] and network.training
    with evaluation_mode(network), evaluation_mode(network):
        assert not network.training
    assert network.training


def test_modules_get_back_the_mode_that_each_had() -> None:
    network = make_network(make_config({}), 1).train()
    network.encoder.eval()
    modes = [module.training for module in network.modules()]
    with evaluation_mode(network):
        assert not any(module.training for module in network.modules())
    assert [module.training for module in network.modules()] == modes and set(modes) == {False, True}


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs SIGALRM")
def test_an_interruption_leaves_no_network_in_evaluation_mode() -> None:
    network = make_network(make_config({}), 1).train()
    previous = signal.signal(signal.SIGALRM, signal.default_int_handler)
    interruptions = 0
    try:
        for number in range(400):
            try:
                # The timer repeats: an exception within a callback of the garbage collector is lost.
                signal.setitimer(signal.ITIMER_REAL, 1e-6 * (1 + number % 100), 0.1)
                while True:
                    with evaluation_mode(network):
                        pass
            except KeyboardInterrupt:
                signal.setitimer(signal.ITIMER_REAL, 0)
                interruptions += 1
            with evaluation_mode(network):
                assert not network.training
            assert network.training
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    assert interruptions == 400


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs SIGALRM")
def test_a_signal_handler_may_decode_with_the_same_network() -> None:
    network, calls = make_network(make_config({}), 1).train(), list[bool]()

    def decode(*_: object) -> None:
        with evaluation_mode(network):
            calls.append(network.training)

    previous = signal.signal(signal.SIGALRM, decode)
    try:
        for number in range(200):
            signal.setitimer(signal.ITIMER_REAL, 1e-6 * (1 + number % 50))
            while len(calls) <= number:
                with evaluation_mode(network):
                    assert not network.training
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    assert calls == [False] * 200 and network.training


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_process_forked_beside_a_decoding_thread_is_not_blocked() -> None:
    network, held, leave = make_network(make_config({}), 1), threading.Event(), threading.Event()

    def hold() -> None:
        with evaluation_mode_module._modes.lock:
            held.set()
            leave.wait(10)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(10)
    child = os.fork()
    if child == 0:  # the thread that holds the lock does not exist here
        signal.alarm(10)
        with evaluation_mode(network):
            os._exit(0)
    leave.set()
    thread.join()
    assert os.waitpid(child, 0)[1] == 0
