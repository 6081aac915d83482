"""HTTP/1.1 as uvicorn speaks it, with bounds on the head of a request: its size and its time."""

import asyncio
from typing import Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

__all__ = ["HEAD_BYTES_MAX", "BoundedProtocol"]

HEAD_BYTES_MAX: Final = 64 * 1024
"""Of the path, and of all header names and values."""

_HEAD_S: Final = 30.0
"""How long a head may take to arrive, from the connection's or the head's first byte."""


class BoundedProtocol(HttpToolsProtocol):
    """One connection of a client."""

    head_s = _HEAD_S

    _head_bytes = 0
    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first head."""
        super().connection_made(transport)
        self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._stop_waiting()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        """Begin to count a head."""
        self._head_bytes = 0
        self._wait_for_head()
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """Count some of the path."""
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Count a header."""
        self._count(len(name) + len(value))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Go on with the request; its body has bounds of its own."""
        self._stop_waiting()
        super().on_headers_complete()

    def _count(self, size_bytes: int) -> None:
        self._head_bytes += size_bytes
        if self._head_bytes > HEAD_BYTES_MAX:
            raise ValueError("the head is too large")  # The parser passes it on: the answer is 400.

    def _wait_for_head(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(self.head_s, self._give_up)

    def _stop_waiting(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _give_up(self) -> None:
        self._head_timer = None
        # A client that began its next head while an answer is on its way keeps that answer.
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()
