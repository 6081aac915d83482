"""Endpoints that never change."""

import asyncio
from contextlib import aclosing

from stagemesh.discovery import Endpoint, StaticSource


async def test_a_watch_tells_once_and_then_waits_for_its_end() -> None:
    endpoints = (Endpoint("a0", "h:1"),)
    async with aclosing(StaticSource({"a": endpoints}).watch("a")) as watch:
        assert await anext(watch) == endpoints
        more = asyncio.ensure_future(anext(watch))
        await asyncio.sleep(0)
        assert not more.done()
        more.cancel()
        await asyncio.wait([more])


async def test_a_group_that_nobody_named_is_never_told() -> None:
    async with aclosing(StaticSource({}).watch("a")) as watch:
        first = asyncio.ensure_future(anext(watch))
        await asyncio.sleep(0)
        assert not first.done()
        first.cancel()
        await asyncio.wait([first])
