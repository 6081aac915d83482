"""The health service, without a server around it."""

import asyncio
from typing import Any

from grpc_health.v1 import health_pb2

from stagemesh.rpc.health import Health

CONTEXT: Any = None
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
SERVICE_UNKNOWN = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN


def about(name: str) -> health_pb2.HealthCheckRequest:
    return health_pb2.HealthCheckRequest(service=name)


async def told(health: Health, name: str) -> int:
    return int((await health.Check(about(name), CONTEXT)).status)


async def test_a_process_is_live_until_it_closes() -> None:
    health = Health()
    assert await told(health, "") == SERVING
    health.close()
    assert await told(health, "") == NOT_SERVING


async def test_after_close_nothing_gets_ready_any_more() -> None:
    health = Health()
    health.set("a", False)
    health.close()
    health.set("a", True)
    assert await told(health, "a") == NOT_SERVING


async def test_a_watcher_of_an_unknown_name_hears_when_it_is_there() -> None:
    health = Health()
    watcher = aiter(health.Watch(about("model"), CONTEXT))
    assert (await anext(watcher)).status == SERVICE_UNKNOWN
    following = asyncio.ensure_future(anext(watcher))
    await asyncio.sleep(0)
    health.set("model", True)
    assert (await following).status == SERVING


async def test_a_watcher_is_not_told_twice_or_about_others() -> None:
    health = Health()
    health.set("a", True)
    watcher = aiter(health.Watch(about("a"), CONTEXT))
    await anext(watcher)
    following = asyncio.ensure_future(anext(watcher))
    await asyncio.sleep(0)
    health.set("a", True)
    health.set("b", True)
    health.close()
    assert (await following).status == NOT_SERVING
    assert [answer async for answer in watcher] == []
