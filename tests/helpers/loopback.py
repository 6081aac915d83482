"""Addresses for servers of tests: on loopback, outside the range that outgoing connections use."""

import random
import socket
from itertools import cycle

__all__ = ["free_address"]

PORTS = range(20_000, 32_000)

_ports = cycle(random.sample(PORTS, len(PORTS)))


def free_address() -> str:
    """Give a loopback address that nobody listens on right now, and that was not given before."""
    while True:
        port = next(_ports)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return f"127.0.0.1:{port}"
