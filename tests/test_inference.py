"""decoding/inference.py: modes of networks that several threads use."""

import threading

from small_networks import make_config, make_network

from pellucid.decoding.inference import evaluation_mode


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
