"""The test's end of the lines to its fake services."""

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tests.helpers import fake_service

__all__ = ["FAKE", "Line", "Switchboard", "eventually_gone"]

FAKE = str(Path(fake_service.__file__))
DEADLINE_S = 10.0


@dataclass
class Line:
    """One life of one fake service."""

    pid: int
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def tell(self, words: str) -> None:
        """Send it a line."""
        self.writer.write(f"{words}\n".encode())

    async def hear(self) -> str:
        """Wait for its next line; empty when it is gone."""
        async with asyncio.timeout(DEADLINE_S):
            try:
                return (await self.reader.readline()).decode().strip()
            except ConnectionResetError:
                return ""


class Switchboard:
    """Hands out lines in the order in which services call, by their name."""

    def __init__(self) -> None:
        self._lines: list[Line] = []
        self._waiting: dict[str, asyncio.Queue[Line]] = {}
        self._ready: dict[str, asyncio.Event] = {}
        self.port = 0

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        name, pid = (await reader.readline()).decode().split()
        self._lines.append(Line(int(pid), reader, writer))
        self._waiting.setdefault(name, asyncio.Queue()).put_nowait(self._lines[-1])

    async def line(self, name: str) -> Line:
        """Wait for the next life of a service."""
        async with asyncio.timeout(DEADLINE_S):
            return await self._waiting.setdefault(name, asyncio.Queue()).get()

    def make_ready(self, name: str) -> None:
        """Let the launcher hear that a service is ready."""
        self._ready.setdefault(name, asyncio.Event()).set()

    async def readiness(self, name: str) -> AsyncGenerator[bool]:
        """Be what the launcher asks."""
        await self._ready.setdefault(name, asyncio.Event()).wait()
        yield True

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for line in self._lines:
            line.writer.close()
            with suppress(ConnectionError):
                await line.writer.wait_closed()


async def eventually_gone(pid: int) -> bool:
    """Wait until a process that is not our child has ended; False if it does not in time."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(descriptor, ended.set)
    try:
        async with asyncio.timeout(DEADLINE_S):
            return await ended.wait()
    except TimeoutError:
        return False
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)
