"""What discovery tells, and how a file or a flag spells it."""

from collections.abc import AsyncIterator, Mapping
from typing import Protocol

import msgspec

from stagemesh.errors import BadSettings
from stagemesh.settings import split_address

__all__ = ["Endpoint", "Groups", "Source", "parse_groups", "parse_static"]


class Endpoint(msgspec.Struct, frozen=True):
    """A process to connect to; `address` is `HOST:PORT`."""

    id: str
    address: str


Groups = Mapping[str, tuple[Endpoint, ...]]
"""The endpoints of each group, `orchestrators` or `pool/NAME`; the order means nothing."""


class Source(Protocol):
    """Tells where to connect. What may be done there, the link says."""

    def watch(self, group: str) -> AsyncIterator[tuple[Endpoint, ...]]:
        """Yield the endpoints of a group, at once if they are known, and then at each change.

        It never yields none: an empty or failed resolution changes nothing, and is counted.
        """


class _File(msgspec.Struct, forbid_unknown_fields=True):
    groups: dict[str, tuple[Endpoint, ...]]


def parse_groups(text: bytes) -> Groups:
    """Read `{"groups": {NAME: [{"id": …, "address": …}, …]}}`.

    Raises:
        ValueError: If the text is anything else, or names an id twice in a group.
    """
    groups = msgspec.json.decode(text, type=_File).groups
    for name, endpoints in groups.items():
        _check(name, endpoints)
    return groups


def parse_static(text: str) -> Groups:
    """Read `GROUP=ID@HOST:PORT,ID@HOST:PORT;GROUP=…`.

    Raises:
        BadSettings: If the text is anything else, or names an id twice in a group.
    """
    groups: dict[str, tuple[Endpoint, ...]] = {}
    for part in text.split(";"):
        name, equals, members = part.partition("=")
        if not (name and equals) or name in groups:
            raise BadSettings(f"discovery: {part!r} is not GROUP=ID@HOST:PORT,…")
        pairs = [member.partition("@") for member in members.split(",")]
        endpoints = tuple(Endpoint(id, address) for id, _, address in pairs)
        try:
            _check(name, endpoints)
        except ValueError as error:
            raise BadSettings(f"discovery: {error}") from error
        groups[name] = endpoints
    return groups


def _check(group: str, endpoints: tuple[Endpoint, ...]) -> None:
    ids = [endpoint.id for endpoint in endpoints]
    if "" in ids or len(set(ids)) < len(ids):
        raise ValueError(f"{group}: an id is empty or there twice")
    for endpoint in endpoints:
        split_address(endpoint.address)
