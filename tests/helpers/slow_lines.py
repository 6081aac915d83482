"""A relay on loopback that takes what a server sends as slowly as a client on a bad line would."""

import asyncio
import socket
from contextlib import suppress

from tests.helpers.relays import Relay

__all__ = ["SlowLine"]

PIECE_BYTES = 1024
BUFFER_BYTES = 4096
"""Of its own end of the connection: a large one would only hide that it does not read."""
SEGMENT_BYTES = 1460
"""As on a real line: on loopback one segment is larger than the whole buffer, which then opens so
seldom that the server takes a client that does read for one that does not."""
FAST_BYTES = 64 * 1024


class SlowLine(Relay):
    """Relays connections to one address, 1 KiB at a time, until `hasten`."""

    def __init__(self, target: str, *, every_s: float = 1.0) -> None:
        super().__init__(target)
        self._every_s = every_s
        self._hasty = asyncio.Event()

    def hasten(self) -> None:
        """Relay all that is there, and what comes, at once."""
        self._hasty.set()

    async def relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one connection: fast to the server, slowly back."""
        there = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        there.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
        there.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, SEGMENT_BYTES)
        there.setblocking(False)
        await asyncio.get_running_loop().sock_connect(there, self.target)
        back, ahead = await asyncio.open_connection(sock=there, limit=BUFFER_BYTES)
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._hurry(reader, ahead))
                both.create_task(self._dawdle(back, writer))
        finally:
            writer.transport.abort()
            ahead.transport.abort()

    @staticmethod
    async def _hurry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(FAST_BYTES):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def _dawdle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(FAST_BYTES if self._hasty.is_set() else PIECE_BYTES):
                writer.write(data)
                await writer.drain()
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._every_s):
                        await self._hasty.wait()
        writer.close()
