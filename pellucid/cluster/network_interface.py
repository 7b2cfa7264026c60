"""Network interface by which a machine of a Ray cluster reaches the others, for torch.distributed.

The library of torch.distributed (gloo) uses the interface of the host name. On many machines the address of the host
name is 127.0.1.1, which others cannot reach. Ray knows an address that they reach.
"""

import os
import socket
import struct

INTERFACE_VARIABLE = "GLOO_SOCKET_IFNAME"
"""Environment variable with the interface that gloo uses."""
GET_ADDRESS = 0x8915
"""Number of the request of Linux for the address of an interface (SIOCGIFADDR)."""
ADDRESS = slice(20, 24)
"""Bytes of its answer with the IPv4 address: sin_addr within struct ifreq."""


def choose_interface() -> None:
    """Set the interface of gloo to that of the address of this machine in its Ray cluster, unless it is set."""
    import ray.util

    if INTERFACE_VARIABLE not in os.environ and (name := interface_of(ray.util.get_node_ip_address())):
        os.environ[INTERFACE_VARIABLE] = name


def interface_of(address: str) -> str:
    """Return the name of the network interface with an IPv4 address; "" if it is not found, or without Linux.

    Args:
        address: The address: "10.0.0.7".
    """
    try:
        import fcntl

        expected = socket.inet_aton(address)
    except (ImportError, OSError):
        return ""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            try:
                answer = fcntl.ioctl(probe, GET_ADDRESS, struct.pack("256s", name.encode()[:15]))
            except OSError:  # an interface without an address
                continue
            if answer[ADDRESS] == expected:
                return name
    return ""
