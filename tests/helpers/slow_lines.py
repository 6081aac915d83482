"""A relay on loopback that takes what a server sends as slowly as a client on a bad line would."""

import asyncio
import socket
from contextlib import suppress
from typing import Self

from stagemesh.cli.ports import free_ports

__all__ = ["SlowLine"]

PIECE_BYTES = 1024
BUFFER_BYTES = 4096
"""Of its own end of the connection: a large one would only hide that it does not read."""
SEGMENT_BYTES = 1460
"""As on a real line: on loopback one segment is larger than the whole buffer, which then opens so
seldom that the server takes a client that does read for one that does not."""
FAST_BYTES = 64 * 1024


class SlowLine:
    """Relays connections to one address, 1 KiB at a time, until `hasten`."""

    def __init__(self, target: str, *, every_s: float = 1.0) -> None:
        host, _, port = target.rpartition(":")
        self._target = host, int(port)
        self._every_s = every_s
        self._hasty = asyncio.Event()
        self._relays: set[asyncio.Task[None]] = set()
        self.address = f"127.0.0.1:{free_ports(1)[0]}"

    async def __aenter__(self) -> Self:
        host, _, port = self.address.partition(":")
        self._server = await asyncio.start_server(self._connected, host, int(port))
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for relay in self._relays:
            relay.cancel()
        if self._relays:
            await asyncio.wait(self._relays)

    def hasten(self) -> None:
        """Relay all that is there, and what comes, at once."""
        self._hasty.set()

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        relay = asyncio.create_task(self._relay(reader, writer))
        self._relays.add(relay)
        relay.add_done_callback(self._relays.discard)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        there.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
        there.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, SEGMENT_BYTES)
        there.setblocking(False)
        await asyncio.get_running_loop().sock_connect(there, self._target)
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
