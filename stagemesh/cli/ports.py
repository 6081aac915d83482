"""Free ports on loopback, whether an asked one is free, and whether two are in each other's way."""

import socket
from collections.abc import Collection
from contextlib import ExitStack
from ipaddress import ip_address
from random import SystemRandom
from typing import Final

__all__ = ["PORTS", "NoFreePorts", "busy", "free_ports", "overlap"]

PORTS: Final = range(20_000, 32_768)
"""Below Linux's range for outgoing connections, so that nobody is given one by accident."""


class NoFreePorts(OSError):
    """This machine has not enough free ports between the bounds."""


def busy(host: str, port: int) -> str:
    """Say why an address cannot be listened on; empty if it can."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            # Connections of an earlier mesh that are winding down do not make a port busy.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            probe.listen(1)
    except OSError as error:
        return error.strerror or str(error)
    return ""


def overlap(one: tuple[str, int], other: tuple[str, int]) -> bool:
    """Tell whether two addresses cannot both be listened on, however their hosts are spelt."""
    if one[1] != other[1]:
        return False
    hosts, others = _numbers(one[0]), _numbers(other[0])
    return bool(hosts & others) or any(ip_address(ip).is_unspecified for ip in hosts | others)


def _numbers(host: str) -> set[str]:
    """Give what a host's name stands for; nothing where that is not known."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return set()  # Nobody can listen there, as `busy` will say.
    return {str(address[0]).partition("%")[0] for *_, address in found}


def free_ports(count: int, *, besides: Collection[int] = ()) -> list[int]:
    """Find free ports on loopback, all different, and none of those that are promised already.

    Raises:
        NoFreePorts: If there are not so many.
    """
    candidates = SystemRandom().sample(PORTS, len(PORTS))
    found: list[int] = []
    with ExitStack() as held:
        for port in candidates:
            if len(found) == count:
                return found
            if port in besides:
                continue
            probe = held.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            found.append(port)
    if len(found) < count:
        raise NoFreePorts(f"no {count} free ports between {PORTS.start} and {PORTS.stop - 1}")
    return found
