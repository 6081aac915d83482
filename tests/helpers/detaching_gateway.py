"""The part of a gateway that has detachable requests, without an edge in front of it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from services.gateway.client import ClientPolicy, Detachable, Detachables, Media, Orchestrators
from services.gateway.store import SqliteStore
from stagemesh.discovery import open_source
from stagemesh.link.core import Row
from stagemesh.outcome import Terminal
from tests.helpers.gateway_client import gateway_client

__all__ = ["DetachingGateway", "all_of", "detaching_gateway", "keep_texts", "texts_of"]


class DetachingGateway:
    """Links to orchestrators, a store, and the requests of both."""

    def __init__(self, orchestrators: Orchestrators, store: SqliteStore) -> None:
        self.orchestrators = orchestrators
        self.store = store
        self.detachables = Detachables(orchestrators, store)
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self, links: int) -> None:
        """Go, and wait until so many orchestrators are linked."""
        self._tasks = [
            asyncio.create_task(self.detachables.run()),
            asyncio.create_task(self.orchestrators.run()),
        ]
        async with asyncio.timeout(20):
            # A gateway has no way to tell of a link.
            while self.orchestrators.links < links:  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    async def kill(self) -> None:
        """Be gone at once, as a process that is killed."""
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)

    async def stop(self) -> None:
        """Be gone in good order."""
        await self.detachables.close()
        await self.orchestrators.close()
        await self.kill()


@asynccontextmanager
async def detaching_gateway(
    store: Path,
    discovery: str,
    *,
    links: int = 1,
    media: Media | None = None,
    policy: ClientPolicy | None = None,
    windows: tuple[int, int] = (64, 1 << 20),
    name: str = "gateway-d",
) -> AsyncIterator[DetachingGateway]:
    """Run such a gateway for as long as the block lasts."""
    orchestrators = gateway_client(
        open_source(discovery),
        media=media,
        policy=policy,
        windows=windows,
        name=name,
    )
    opened = await SqliteStore(store).open()
    gateway = DetachingGateway(orchestrators, opened)
    try:
        await gateway.start(links)
        yield gateway
    finally:
        await gateway.kill()
        await opened.close()


def keep_texts(rows: list[Row]) -> bytes:
    """Keep what a text says, row by row; a bare end says nothing."""
    return msgspec.json.encode([row.text for row in rows])


def texts_of(contents: list[bytes] | Any) -> str:
    """Give the text that was kept."""
    return "".join(text for content in contents for text in msgspec.json.decode(content))


async def all_of(detachable: Detachable) -> tuple[str, Terminal]:
    """Take all that a consumer is given."""
    text = ""
    async with asyncio.timeout(20):
        while True:
            taken = await detachable.take()
            text += "".join(row.text for row in taken.rows)
            if taken.terminal is not None:
                return text, taken.terminal
