"""What a call of the orchestrator's client port needs around it, without a server."""

from collections.abc import Callable
from typing import Final, Never

import grpc

from stagemesh.errors import MeshError
from stagemesh.media import Handle
from stagemesh.outcome import error_for

__all__ = ["HANDLE", "Context", "Ended", "Shelf"]

HANDLE: Final = Handle(
    handle_id="h_1", request_id="r", holder_id="w", incarnation=1, address="a", size_bytes=3
)


class Ended(Exception):
    """What the context raises when a call is aborted."""


class Context:
    """The part of a servicer's context that a call needs."""

    def __init__(self, left_s: float | None = None) -> None:
        self.left_s = left_s
        self.metadata: list[tuple[str, str]] = []
        self.over: list[Callable[[object], None]] = []
        self.status: grpc.StatusCode | None = None

    async def send_initial_metadata(self, metadata: tuple[tuple[str, str], ...]) -> None:
        """Note the metadata."""
        self.metadata += metadata

    def add_done_callback(self, callback: Callable[[object], None]) -> None:
        """Note who wants to hear of the end."""
        self.over.append(callback)

    def time_remaining(self) -> float | None:
        """Tell what is left of the deadline."""
        return self.left_s

    async def abort(self, code: grpc.StatusCode, details: str, trailers: object) -> Never:
        """Note the status."""
        self.status = code
        raise Ended


class Shelf:
    """A store and a reader: handles lead to `data`, or nowhere."""

    def __init__(self) -> None:
        self.data: bytes | None = b"abc"
        self.put_for: list[str] = []
        self.released: list[str] = []

    def put(self, data: bytes, request_id: str) -> Handle:
        """Refuse: nothing large is put in these tests unless there is data."""
        if self.data is None:
            raise MeshError(error_for("payload_store_full"))
        self.put_for.append(request_id)
        return HANDLE

    def release(self, request_id: str) -> None:
        """Note whose bytes were let go of."""
        self.released.append(request_id)

    async def get(self, handle: Handle) -> bytes:
        """Fetch."""
        if self.data is None:
            raise MeshError(error_for("handle_lost"))
        return self.data
