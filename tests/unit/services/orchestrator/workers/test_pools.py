"""Who is dialled, for how long, and what the core is told of it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, Self

import pytest

from services.orchestrator.core.events import (
    Event,
    ReplicaAttached,
    ReplicaListed,
    ReplicaLost,
)
from services.orchestrator.translate import Submits
from services.orchestrator.workers import Pools
from stagemesh.api.types.v1 import link_pb2
from stagemesh.discovery import Endpoint
from stagemesh.link.pump import PROTOCOL, LinkPolicy
from tests.helpers.orchestrator_mesh import MESH
from tests.helpers.scripted_core import ScriptedCore, drive


class Told:
    """A source that tells what a test says, for the pool `thinker` only."""

    def __init__(self) -> None:
        self.news: asyncio.Queue[tuple[Endpoint, ...]] = asyncio.Queue()

    async def watch(self, group: str) -> AsyncIterator[tuple[Endpoint, ...]]:
        """Yield what was put into the queue."""
        if group != "pool/thinker":
            await asyncio.Event().wait()
        while True:
            yield await self.news.get()

    def tell(self, **addresses: str) -> None:
        """Name replicas by id and address."""
        endpoints = [Endpoint(id.replace("_", "-"), at) for id, at in addresses.items()]
        self.news.put_nowait(tuple(endpoints))


class Call:
    """One dialled link: a peer that says Hello if it is up, and then nothing until it breaks."""

    def __init__(self, replica_id: str, *, up: bool) -> None:
        hello = link_pb2.Hello(
            service=link_pb2.SERVICE_KIND_STAGE_WORKER,
            id=replica_id,
            incarnation=1,
            protocol=PROTOCOL,
            state=link_pb2.PROCESS_STATE_READY,
            worker=link_pb2.WorkerCard(pool="thinker"),
        )
        self._first = link_pb2.LinkMessage(frames=[link_pb2.Frame(hello=hello)]) if up else None
        self.broken = asyncio.Event()

    async def __aiter__(self) -> AsyncIterator[link_pb2.LinkMessage]:
        """Give the Hello, then wait for the end."""
        if self._first is not None:
            yield self._first
        await self.broken.wait()

    async def write(self, message: link_pb2.LinkMessage) -> None:
        """Take anything."""

    async def done_writing(self) -> None:
        """Close, as a peer does when this side has."""
        self.broken.set()

    def cancel(self) -> bool:
        """Break."""
        self.broken.set()
        return True


class Net:
    """Channels to workers; an address is `ID!anything` for a worker that is up, else nobody's."""

    def __init__(self) -> None:
        self.calls: dict[str, list[Call]] = {}

    def open_channel(self, address: str) -> Any:
        """Open a channel to an address."""
        return Channel(self, address)

    def dial(self, address: str) -> Call:
        """Make the call of a link."""
        replica_id, up, _ = address.partition("!")
        call = Call(replica_id, up=bool(up))
        self.calls.setdefault(address, []).append(call)
        return call


class Channel:
    """A channel to one address."""

    def __init__(self, net: Net, address: str) -> None:
        self._net = net
        self._address = address

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *args: object) -> None:
        pass

    def stream_stream(self, *args: object, **kwargs: object) -> Callable[[], Call]:
        """Make the callable of a stub."""
        return lambda: self._net.dial(self._address)

    def unary_unary(self, *args: object, **kwargs: object) -> None:
        """Make the callable of a stub that nobody calls here."""


class Field:
    """Everything around `Pools`, and its task."""

    def __init__(self) -> None:
        self.core, self.source, self.net = ScriptedCore(), Told(), Net()
        self.pools = Pools(
            drive(self.core),
            Submits(MESH),
            names=MESH.pools,
            source=self.source,
            open_channel=self.net.open_channel,
            hello=lambda: link_pb2.Hello(
                service=link_pb2.SERVICE_KIND_ORCHESTRATOR, id="o-0", incarnation=1
            ),
            ping=link_pb2.Ping,
            policy=LinkPolicy(),
        )
        self.task = asyncio.create_task(self.pools.run())

    async def until(self, *events: Event) -> None:
        """Wait until the core was told these, besides others."""
        await self.core.until(lambda: all(event in self.told for event in events))

    @property
    def told(self) -> list[Event]:
        """What the core was told, with attachments shortened to their replica id."""
        return [
            ReplicaListed(replica_id=f"{event.replica_id} attached", listed=True)
            if isinstance(event, ReplicaAttached)
            else event
            for event in self.core.events
        ]

    def link_of(self, replica_id: str) -> int:
        """Give the number of the replica's last link."""
        return [
            event.link
            for event in self.core.events
            if isinstance(event, ReplicaAttached) and event.replica_id == replica_id
        ][-1]


def listed(replica_id: str) -> Event:
    return ReplicaListed(replica_id=replica_id, listed=True)


def unlisted(replica_id: str) -> Event:
    return ReplicaListed(replica_id=replica_id, listed=False)


def attached(replica_id: str) -> Event:
    return ReplicaListed(replica_id=f"{replica_id} attached", listed=True)


@pytest.fixture
async def field() -> AsyncIterator[Field]:
    field = Field()
    yield field
    field.task.cancel()
    await asyncio.wait([field.task])


async def test_a_replica_that_is_named_is_listed_and_dialled(field: Field) -> None:
    field.source.tell(t_0="t-0!a", t_1="t-1!b")
    await field.until(listed("t-0"), attached("t-0"), listed("t-1"), attached("t-1"))

    assert {known.address for known in field.pools.known()} == {"t-0!a", "t-1!b"}
    assert all(known.hello is not None for known in field.pools.known())


async def test_a_replica_without_a_link_is_forgotten_when_it_is_named_no_more(
    field: Field,
) -> None:
    field.source.tell(t_0="t-0", t_1="t-1!b")
    await field.until(listed("t-0"), attached("t-1"))
    field.source.tell(t_1="t-1!b")
    await field.until(unlisted("t-0"))

    assert [known.replica_id for known in field.pools.known()] == ["t-1"]


async def test_a_healthy_link_is_kept_until_it_breaks_though_nobody_names_it(
    field: Field,
) -> None:
    field.source.tell(t_0="t-0!a", t_1="t-1!b")
    await field.until(attached("t-0"), attached("t-1"))
    field.source.tell(t_1="t-1!b")
    await field.until(unlisted("t-0"))
    assert {known.replica_id for known in field.pools.known()} == {"t-0", "t-1"}

    field.net.calls["t-0!a"][0].broken.set()
    await field.until(ReplicaLost(link=field.link_of("t-0")))
    assert [known.replica_id for known in field.pools.known()] == ["t-1"]
    assert len(field.net.calls["t-0!a"]) == 1


async def test_a_replica_that_is_named_again_keeps_its_link(field: Field) -> None:
    field.source.tell(t_0="t-0!a")
    await field.until(attached("t-0"))
    field.source.tell(t_1="t-1")
    await field.until(unlisted("t-0"))
    before = len(field.core.events)
    field.source.tell(t_0="t-0!a", t_1="t-1")
    await field.until(listed("t-0"))
    await field.core.until(lambda: len(field.core.events) > before)
    assert field.core.events[before:] == [listed("t-0")]
    assert len(field.net.calls["t-0!a"]) == 1


async def test_a_replica_that_moved_is_dialled_at_its_new_address(field: Field) -> None:
    field.source.tell(t_0="t-0")
    await field.until(listed("t-0"))
    field.source.tell(t_0="t-0!new")
    await field.until(attached("t-0"))

    assert [known.address for known in field.pools.known()] == ["t-0!new"]
    assert unlisted("t-0") not in field.told


async def test_a_link_that_broke_is_dialled_again_while_it_is_named(field: Field) -> None:
    field.source.tell(t_0="t-0!a")
    await field.until(attached("t-0"))
    first = field.link_of("t-0")
    field.net.calls["t-0!a"][0].broken.set()
    await field.core.until(lambda: field.link_of("t-0") != first)

    assert len(field.net.calls["t-0!a"]) == 2


async def test_closing_ends_every_link_and_the_task(field: Field) -> None:
    field.source.tell(t_0="t-0!a", t_1="t-1")
    await field.until(attached("t-0"), listed("t-1"))
    field.pools.close("drained")
    async with asyncio.timeout(5):
        await field.task

    assert field.core.events[-1] == ReplicaLost(link=field.link_of("t-0"))
    assert field.pools.known() == []
