"""A store that others hold: what that is, and how it is borne for a while."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from stagemesh.errors import MeshError

__all__ = ["StoreBusy", "insist"]

_TRIES: Final = 4
_PAUSE_S: Final = 0.05

_T = TypeVar("_T")


class StoreBusy(MeshError):
    """Others held the store for too long; nothing was written."""


async def insist(write: Callable[[], Awaitable[_T]], *, within_s: float) -> _T:
    """Write, and a few times again while the store is busy; no try begins after `within_s`.

    Raises:
        MeshError: If the store failed, or is still busy.
    """
    loop = asyncio.get_running_loop()
    ends_s = loop.time() + within_s
    for _ in range(_TRIES - 1):
        try:
            return await write()
        except StoreBusy:
            if loop.time() + _PAUSE_S >= ends_s:
                raise
        await asyncio.sleep(_PAUSE_S)
    return await write()
