"""`Watch`: who looks at the replicas is told when they change, and told less if he reads slowly."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Final, Protocol

from services.orchestrator.core.effects import Effect
from services.orchestrator.core.events import Event
from services.orchestrator.core.views import ReplicaView
from services.orchestrator.translate import KnownReplica, replica_to_proto
from stagemesh.api.admin.v1 import admin_service_pb2
from stagemesh.api.types.v1 import link_pb2
from stagemesh.errors import MeshError
from stagemesh.outcome import error_for

__all__ = ["ReplicaViews", "Watchers"]

WATCHERS_MAX: Final = 64

Replica = admin_service_pb2.Replica


class ReplicaViews(Protocol):
    """Shows the replicas that have a link, and how much is open."""

    def replica_views(self) -> Iterable[ReplicaView]:
        """Show all of them."""
        ...

    @property
    def requests_open(self) -> int:
        """How many requests have no terminal yet."""
        ...

    @property
    def changes(self) -> int:
        """How often the replicas, or this orchestrator, have changed in what operators see."""
        ...


class Watchers:
    """Every watcher keeps what it was told last and a flag, and no queue."""

    def __init__(
        self,
        views: ReplicaViews,
        known: Callable[[], Iterable[KnownReplica]],
        hello: Callable[[], link_pb2.Hello],
    ) -> None:
        self._views = views
        self._known = known
        self._hello = hello
        self._changes = 0
        self._flags: set[asyncio.Event] = set()

    def __len__(self) -> int:
        return len(self._flags)

    def stepped(self, event: Event, effects: list[Effect], now_s: float, took_s: float) -> None:
        """Wake the watchers if a step of the core has changed what they see."""
        del event, effects, now_s, took_s
        if self._views.changes != self._changes:
            self._changes = self._views.changes
            for flag in self._flags:
                flag.set()

    def replicas(self, pools: frozenset[str]) -> list[Replica]:
        """Show the replicas of some pools, in order."""
        views = {view.link: view for view in self._views.replica_views()}
        return [
            replica_to_proto(known, views.get(known.link))
            for known in sorted(self._known(), key=lambda one: (one.pool, one.replica_id))
            if known.pool in pools
        ]

    async def watch(self, pools: frozenset[str]) -> AsyncIterator[admin_service_pb2.WatchResponse]:
        """Tell of the replicas of some pools, and then of each change, until cancelled.

        Raises:
            MeshError: If too many watch.
        """
        if len(self._flags) >= WATCHERS_MAX:
            raise MeshError(error_for("queue_full", f"There are {WATCHERS_MAX} watchers."))
        flag = asyncio.Event()
        self._flags.add(flag)
        told: dict[str, Replica] = {}
        state: link_pb2.ProcessState.ValueType | None = None
        try:
            while True:
                response = self._news(pools, told)
                hello = self._hello()
                if hello.state != state:
                    state = hello.state
                    response.orchestrator.CopyFrom(hello)
                if response.ByteSize():
                    yield response
                await flag.wait()
                flag.clear()
        finally:
            self._flags.discard(flag)

    def _news(
        self, pools: frozenset[str], told: dict[str, Replica]
    ) -> admin_service_pb2.WatchResponse:
        """Say what has changed, and note it as told."""
        response = admin_service_pb2.WatchResponse()
        gone = set(told)
        for replica in self.replicas(pools):
            gone.discard(replica.replica_id)
            lasting = _lasting(replica)
            if told.get(replica.replica_id) != lasting:
                told[replica.replica_id] = lasting
                response.replicas.append(replica)
        for replica_id in sorted(gone):
            del told[replica_id]
            response.gone.append(replica_id)
        return response


def _lasting(replica: Replica) -> Replica:
    """Leave out what changes all the time."""
    lasting = Replica()
    lasting.CopyFrom(replica)
    lasting.ClearField("load")
    lasting.ClearField("inflight")
    return lasting
