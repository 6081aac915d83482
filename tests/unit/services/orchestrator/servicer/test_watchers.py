"""Who watches is told of changes, once for all that happened meanwhile."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from services.orchestrator.core.events import Tick
from services.orchestrator.core.replicas import WorkerState
from services.orchestrator.core.views import ReplicaView
from services.orchestrator.servicer import Watchers
from services.orchestrator.servicer.watchers import WATCHERS_MAX
from services.orchestrator.translate import KnownReplica
from stagemesh.api.admin.v1 import admin_service_pb2 as pb
from stagemesh.api.types.v1 import link_pb2
from stagemesh.errors import MeshError

POOLS = frozenset({"thinker"})
READY, PAUSED = WorkerState.READY, WorkerState.PAUSED


class Shown:
    """Some replicas of a pool, in the states that a test gives them."""

    requests_open = 0
    changes = 0

    def __init__(self) -> None:
        self.states: dict[int, WorkerState] = {1: READY, 2: READY}
        self.load = 0
        self.orchestrator = link_pb2.PROCESS_STATE_READY
        self.watchers = Watchers(
            self, self.known, lambda: link_pb2.Hello(id="o-0", state=self.orchestrator)
        )

    def replica_views(self) -> list[ReplicaView]:
        """See `ReplicaViews`."""
        return [
            ReplicaView(
                link=link,
                pool="thinker",
                replica_id=f"thinker-{link}",
                incarnation=link,
                state=state,
                usable=True,
                listed=True,
                slots=1,
                in_flight=self.load,
            )
            for link, state in self.states.items()
        ]

    def known(self) -> list[KnownReplica]:
        """Show what discovery names."""
        ping = link_pb2.Ping(load=link_pb2.Load(running=self.load))
        return [
            KnownReplica(
                pool="thinker",
                replica_id=f"thinker-{link}",
                address="a",
                link=link,
                hello=link_pb2.Hello(),
                ping=ping,
            )
            for link in self.states
        ]

    def change(self) -> None:
        """Let a step of the core have changed something."""
        self.changes += 1
        self.step()

    def step(self) -> None:
        """Let the core step."""
        self.watchers.stepped(Tick(), [], 0.0, 0.0)


async def told(watch: AsyncIterator[pb.WatchResponse]) -> pb.WatchResponse:
    async with asyncio.timeout(1):
        return await anext(watch)


def shown_in(response: pb.WatchResponse) -> list[tuple[str, int]]:
    return [(one.replica_id, one.state) for one in response.replicas]


async def test_first_comes_everything_and_then_what_has_changed() -> None:
    shown = Shown()
    watch: Any = shown.watchers.watch(POOLS)
    first = await told(watch)
    assert shown_in(first) == [("thinker-1", READY), ("thinker-2", READY)]
    assert first.orchestrator.id == "o-0"
    shown.states[2] = PAUSED
    shown.change()
    news = await told(watch)
    assert shown_in(news) == [("thinker-2", PAUSED)]
    assert not news.HasField("orchestrator")
    await watch.aclose()
    assert len(shown.watchers) == 0


async def test_what_changes_while_nobody_reads_is_told_once_as_it_is_by_then() -> None:
    shown = Shown()
    watch: Any = shown.watchers.watch(POOLS)
    await told(watch)
    for state in [PAUSED, READY] * 50:
        shown.states[1] = state
        shown.change()
    shown.states[2] = PAUSED
    shown.change()
    del shown.states[1]
    shown.change()
    news = await told(watch)
    assert shown_in(news) == [("thinker-2", PAUSED)]
    assert list(news.gone) == ["thinker-1"]
    await watch.aclose()


async def test_load_alone_is_no_news() -> None:
    shown = Shown()
    watch: Any = shown.watchers.watch(POOLS)
    await told(watch)
    shown.load = 7
    shown.step()
    waiting = asyncio.create_task(anext(watch))
    shown.change()
    await asyncio.sleep(0)
    shown.orchestrator = link_pb2.PROCESS_STATE_DRAINING
    shown.change()
    news = await waiting
    assert shown_in(news) == []
    assert news.orchestrator.state == link_pb2.PROCESS_STATE_DRAINING
    await watch.aclose()


async def test_only_so_many_may_watch() -> None:
    shown = Shown()
    watches: list[Any] = [shown.watchers.watch(POOLS) for _ in range(WATCHERS_MAX)]
    for watch in watches:
        await told(watch)
    with pytest.raises(MeshError):
        await told(shown.watchers.watch(POOLS))
    for watch in watches:
        await watch.aclose()
    await told(shown.watchers.watch(POOLS))
