"""HTTP/1.1 as uvicorn speaks it, with bounds: on a request's head, and on a client's patience."""

import asyncio
import fcntl
import socket
import struct
import termios
from typing import Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from services.gateway.core.patience import Patience

__all__ = ["HEAD_BYTES_MAX", "BoundedProtocol"]

HEAD_BYTES_MAX: Final = 64 * 1024
"""Of the path, and of all header names and values."""

_HEAD_S: Final = 30.0
"""How long a head may take to arrive, from the connection's or the head's first byte."""

_LOOKS: Final = 8
"""How often in `slow_s` it is looked whether a client takes anything, while it is answered."""

_ACKED_AT: Final = 120
"""Where Linux's `tcp_info` has `tcpi_bytes_acked`, a count of 64 bits."""
_INFO_BYTES: Final = 128


class BoundedProtocol(HttpToolsProtocol):
    """One connection of a client."""

    head_s = _HEAD_S
    slow_s = 30.0
    """How long it may take nothing of what waits for it.

    TCP's own user timeout would also end one that reads all the time, but little: the time runs as
    long as its window is smaller than what the kernel would like to send next.
    """

    _head_bytes = 0
    _head_timer: asyncio.TimerHandle | None = None
    _patience: Patience | None = None
    _slow_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first head."""
        super().connection_made(transport)
        self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._stop_waiting()
        if self._slow_timer is not None:
            self._slow_timer.cancel()
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
        if self._slow_timer is None:
            taken, _ = self._sent()
            self._patience = Patience(self.slow_s, taken=taken, now_s=self.loop.time())
            self._look_later()

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

    def _look_later(self) -> None:
        self._slow_timer = self.loop.call_later(self.slow_s / _LOOKS, self._look)

    def _look(self) -> None:
        """End the connection of a client that takes nothing; look on while it is answered."""
        self._slow_timer = None
        taken, waiting = self._sent()
        assert self._patience is not None
        if self._patience.is_over(taken=taken, waiting=waiting, now_s=self.loop.time()):
            self.transport.abort()
        elif waiting or not (self.cycle is None or self.cycle.response_complete):
            self._look_later()

    def _sent(self) -> tuple[int, int]:
        """Give how many bytes the client has taken, and how many wait: here and in the kernel."""
        own: socket.socket = self.transport.get_extra_info("socket")
        info = own.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO_BYTES)
        (taken,) = struct.unpack_from("Q", info, _ACKED_AT)
        (queued,) = struct.unpack("i", fcntl.ioctl(own.fileno(), termios.TIOCOUTQ, bytes(4)))
        return taken, queued + self.transport.get_write_buffer_size()

    def _give_up(self) -> None:
        self._head_timer = None
        # A client that began its next head while an answer is on its way keeps that answer.
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()
