"""Waiting for the end of a request."""

import asyncio

from services.orchestrator.driver import Endings


async def test_who_waits_is_woken_by_the_end_of_that_request() -> None:
    endings = Endings()
    waiting = [asyncio.create_task(endings.wait("a", 60.0)) for _ in range(2)]
    other = asyncio.create_task(endings.wait("b", 60.0))
    await asyncio.sleep(0)
    endings.ended("a")
    async with asyncio.timeout(5):
        await asyncio.gather(*waiting)
    assert not other.done()
    assert len(endings) == 1
    other.cancel()
    await asyncio.wait([other])
    assert len(endings) == 0


async def test_nobody_waits_for_ever_and_nothing_is_left() -> None:
    endings = Endings()
    async with asyncio.timeout(5):
        await endings.wait("a", 0.001)
    assert len(endings) == 0


async def test_an_end_that_nobody_waits_for_is_forgotten() -> None:
    endings = Endings()
    endings.ended("a")
    assert len(endings) == 0
