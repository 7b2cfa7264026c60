"""Network interface by which a machine of a cluster reaches the others."""

import socket
import sys

import pytest

from pellucid.cluster.network_interface import interface_of


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux")
def test_the_interface_of_an_address_is_found() -> None:
    assert interface_of("127.0.0.1") in {name for _, name in socket.if_nameindex()}


@pytest.mark.parametrize("address", ["192.0.2.77", "first", "::1", ""])
def test_an_unknown_address_has_no_interface(address: str) -> None:
    assert interface_of(address) == ""
