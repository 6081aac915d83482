"""The row of a request that may outlive its gateway, and the store that gateways share."""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from services.gateway.core.detached import LanePosition, OwnerName
from stagemesh.outcome import Terminal

__all__ = ["RequestRow", "RequestStore", "taken_by"]


class RequestRow(msgspec.Struct, frozen=True, kw_only=True):
    """Who has a request, and how far it is; what was asked is beside it."""

    request_id: str
    tenant: str
    epoch: int
    """The number of its owner; whoever took it has the request."""
    owner: OwnerName
    """The orchestrator that this epoch is for."""
    owner_since: int
    """The first of the epochs, this one included, that were all for this owner."""
    revision: str
    """Of the pipeline that makes it."""
    deadline_at_s: float
    """By the wall clock, as all gateways know it."""
    detach_s: float
    """How long an owner keeps it without a gateway."""
    streamed: bool = False
    """Its input came piece by piece, and is not here."""
    lanes: tuple[LanePosition, ...] = ()
    """How far it is committed."""
    terminal: Terminal | None = None


def taken_by(row: RequestRow, owner: OwnerName, revision: str) -> RequestRow:
    """Give a row as it is once its next epoch was taken for an owner."""
    epoch = row.epoch + 1
    return msgspec.structs.replace(
        row,
        epoch=epoch,
        owner=owner,
        owner_since=row.owner_since if owner == row.owner else epoch,
        revision=revision,
    )


class RequestStore(Protocol):
    """Rows of requests, and what their consumers had committed.

    A write counts if the epoch that it names is still the row's and the request is not done, else
    it changes nothing and says so. One write is done whole or not at all, also if its process dies.

    Every operation raises `MeshError` if the store cannot be used, or what it has cannot be read;
    it is a `StoreBusy` if others were in the way, and the same may succeed later.
    """

    async def create(self, row: RequestRow, request: bytes) -> bool:
        """Begin a row, of a request as its client gave it; false if there is one of this id."""
        ...

    async def read(self, request_id: str) -> RequestRow | None:
        """Give a row, if there is one."""
        ...

    async def request(self, request_id: str) -> bytes | None:
        """Give the request of a row as it was created, if there is one."""
        ...

    async def take(
        self, request_id: str, epoch: int, owner: OwnerName, revision: str
    ) -> RequestRow | None:
        """Take the epoch after this one, for an owner; give the row as it then is.

        None means that another gateway was first, or that the request is done.
        """
        ...

    async def commit(
        self, request_id: str, epoch: int, lanes: Sequence[LanePosition], content: bytes
    ) -> bool:
        """Commit the positions of all lanes, and append what was made of the rows before them."""
        ...

    async def finish(
        self,
        request_id: str,
        epoch: int,
        terminal: Terminal,
        *,
        ended_at_s: float,
        lanes: Sequence[LanePosition] | None = None,
        content: bytes = b"",
    ) -> bool:
        """Commit the last rows, if any, and the end; without positions they stay what they are."""
        ...

    async def contents(self, request_id: str) -> list[bytes]:
        """Give what was appended, in order; empty content is not."""
        ...

    async def remove(self, before_s: float) -> int:
        """Remove what ended before a time, or had to; give how many requests that were.

        Each goes whole or not at all, but not all at once: others write in between.
        """
        ...

    async def close(self) -> None:
        """Write what waits, and let go of everything."""
        ...
