"""Taking this orchestrator out by an operator's will, and in again; the process stays up."""

import asyncio
from collections.abc import Callable

from services.orchestrator.driver import Driver
from services.orchestrator.servicer.presence import Presence
from stagemesh.errors import MeshError
from stagemesh.outcome import error_for

__all__ = ["Draining"]


class Draining:
    """Tells everybody of the orchestrator's state; `told` is called whenever that has changed."""

    def __init__(self, driver: Driver, presence: Presence, told: Callable[[], None]) -> None:
        self._driver = driver
        self._presence = presence
        self._told = told
        self._stopping = False
        self._undrained = asyncio.Event()

    async def stop(self, drain_s: float) -> None:
        """Drain for good: the process is being stopped."""
        self._stopping = True
        await self._drain(drain_s)

    async def drain(self, drain_s: float) -> None:
        """Take no new requests; return when none is open, or when that was undone.

        Raises:
            MeshError: If the process is being stopped.
        """
        self._check()
        self._undrained.clear()
        async with asyncio.TaskGroup() as tasks:
            draining = tasks.create_task(self._drain(drain_s), name="drain")
            undrained = tasks.create_task(self._undrained.wait(), name="undrained")
            await asyncio.wait({draining, undrained}, return_when=asyncio.FIRST_COMPLETED)
            draining.cancel()
            undrained.cancel()

    def undrain(self) -> None:
        """Take requests again.

        Raises:
            MeshError: If the process is being stopped.
        """
        self._check()
        self._driver.undrain()
        self._undrained.set()
        self._presence.draining = False
        self._told()

    async def _drain(self, drain_s: float) -> None:
        self._presence.draining = True
        self._told()
        await self._driver.drain(drain_s)

    def _check(self) -> None:
        if self._stopping:
            raise MeshError(error_for("draining"))
