"""Endpoints that never change."""

import asyncio
from collections.abc import AsyncGenerator

from stagemesh.discovery.endpoints import Endpoint, Groups

__all__ = ["StaticSource"]


class StaticSource:
    """Endpoints from a flag. A watch yields once and then waits until it is cancelled."""

    def __init__(self, groups: Groups) -> None:
        self._groups = groups

    async def watch(self, group: str) -> AsyncGenerator[tuple[Endpoint, ...], None]:
        """Yield the endpoints of a group; see `Source`."""
        if endpoints := self._groups.get(group):
            yield endpoints
        await asyncio.Event().wait()  # Nothing sets it: the end of a watch is its caller's.
