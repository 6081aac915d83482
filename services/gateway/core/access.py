"""Who may call: the hosts that requests may name, and the origins of browsers that may ask.

A page in somebody's browser can send requests to a loopback address. It cannot choose the `Host` of
a name that it does not control, and it cannot hide its `Origin`.
"""

from collections.abc import Iterable
from typing import Final
from urllib.parse import urlsplit

from stagemesh.errors import MeshError
from stagemesh.outcome import error_for

__all__ = ["ANY", "AccessRule"]

ANY: Final = "*"
_LOOPBACK_NAMES: Final = frozenset({"127.0.0.1", "::1", "localhost"})


class AccessRule:
    """Allows loopback names, the address that is listened on, and what an operator adds.

    A host is a name without its port; an origin is written as browsers do (`https://app.example`).
    An origin that names the very host and port of the request is no foreigner.
    """

    __slots__ = ("_hosts", "_origins")

    def __init__(self, bind_host: str, hosts: Iterable[str], origins: Iterable[str]) -> None:
        self._hosts = _LOOPBACK_NAMES | {bind_host.lower()} | {host.lower() for host in hosts}
        self._origins = frozenset(origin.lower().rstrip("/") for origin in origins)

    def check(self, host: str, origin: str) -> None:
        """Check the two headers; an empty one was not sent.

        Raises:
            MeshError: With `PERMISSION_DENIED`, if either is not allowed.
        """
        if ANY not in self._hosts and _name_of(host) not in self._hosts:
            raise MeshError(
                error_for("host_not_allowed", "The Host of the request is not allowed.")
            )
        if origin and not self._origin_allowed(origin.lower(), host.lower()):
            raise MeshError(error_for("host_not_allowed", "The request's Origin is not allowed."))

    def _origin_allowed(self, origin: str, host: str) -> bool:
        if ANY in self._origins or origin in self._origins:
            return True
        return bool(host) and origin in {f"http://{host}", f"https://{host}"}


def _name_of(host: str) -> str:
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:  # An unclosed bracket.
        return ""
