"""The replicas of every pool: discovery says where to connect, and each address keeps a link."""

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from grpc import aio

from services.orchestrator.core.events import ReplicaListed
from services.orchestrator.driver import Driver
from services.orchestrator.translate import KnownReplica, Submits
from services.orchestrator.workers.links import ReplicaLinks
from stagemesh.api.stage.v1 import stage_service_pb2_grpc
from stagemesh.api.types.v1 import link_pb2
from stagemesh.discovery import Endpoint, Source
from stagemesh.link.pump import Dialer, LinkPolicy

__all__ = ["Pools"]

_log = logging.getLogger(__name__)


_Key = tuple[str, Endpoint]


@dataclass(slots=True)
class _Replica:
    """One address that discovery named, and the task that keeps its link."""

    links: ReplicaLinks
    task: asyncio.Task[None]
    listed: bool = True


class Pools:
    """Follows discovery for every pool, until cancelled or closed."""

    def __init__(
        self,
        driver: Driver,
        submits: Submits,
        *,
        names: Iterable[str],
        source: Source,
        open_channel: Callable[[str], aio.Channel],
        hello: Callable[[], link_pb2.Hello],
        ping: Callable[[], link_pb2.Ping],
        policy: LinkPolicy,
    ) -> None:
        self._driver = driver
        self._submits = submits
        self._names = tuple(names)
        self._source = source
        self._open_channel = open_channel
        self._hello = hello
        self._ping = ping
        self._policy = policy
        # As many as discovery names, and those with a healthy link that it named before: such a
        # link is kept until it breaks.
        self._replicas: dict[_Key, _Replica] = {}
        self._watches: list[asyncio.Task[None]] = []

    async def run(self) -> None:
        """Keep a link to every replica that discovery names; returns after `close`."""
        async with asyncio.TaskGroup() as tasks:
            self._watches = [
                tasks.create_task(self._watch(pool, tasks), name=f"watch-{pool}")
                for pool in self._names
            ]

    def close(self, reason: str) -> None:
        """Stop following, and close every link after what waits on it was written."""
        for watch in self._watches:
            watch.cancel()
        for key, replica in list(self._replicas.items()):
            replica.links.close(reason)
            self._unlist(key)

    def known(self) -> list[KnownReplica]:
        """Tell what is known of every replica that discovery names, or that still has a link."""
        return [
            replica.links.known(endpoint.address)
            for (_, endpoint), replica in self._replicas.items()
        ]

    async def _watch(self, pool: str, tasks: asyncio.TaskGroup) -> None:
        async for endpoints in self._source.watch(f"pool/{pool}"):
            self._reconcile(pool, set(endpoints), tasks)

    def _reconcile(self, pool: str, named: set[Endpoint], tasks: asyncio.TaskGroup) -> None:
        before = self._listed(pool)
        for key, replica in list(self._replicas.items()):
            if key[0] == pool and replica.listed and key[1] not in named:
                self._unlist(key)
        for endpoint in named:
            known = self._replicas.get((pool, endpoint))
            if known is None:
                self._begin((pool, endpoint), tasks)
            else:
                known.listed = True
        after = self._listed(pool)
        for replica_id in sorted(before ^ after):
            listed = replica_id in after
            self._driver.post(ReplicaListed(replica_id=replica_id, listed=listed))
            _log.info("replica_listed", extra={"replica_id": replica_id, "listed": listed})

    def _listed(self, pool: str) -> set[str]:
        return {
            endpoint.id
            for (owner, endpoint), replica in self._replicas.items()
            if owner == pool and replica.listed
        }

    def _begin(self, key: _Key, tasks: asyncio.TaskGroup) -> None:
        pool, endpoint = key
        links = ReplicaLinks(
            self._driver,
            self._submits,
            pool=pool,
            replica_id=endpoint.id,
            gone=partial(self._end_if_over, key),
        )
        task = tasks.create_task(self._keep_link(endpoint, links), name=f"dial-{endpoint.id}")
        self._replicas[key] = _Replica(links, task)

    def _unlist(self, key: _Key) -> None:
        self._replicas[key].listed = False
        self._end_if_over(key)

    def _end_if_over(self, key: _Key) -> None:
        """Let a task end whose address nobody names and whose link, if it had one, is over."""
        replica = self._replicas[key]
        if not replica.listed and not replica.links.attached_now:
            del self._replicas[key]
            replica.task.cancel()

    async def _keep_link(self, endpoint: Endpoint, links: ReplicaLinks) -> None:
        async with self._open_channel(endpoint.address) as channel:
            dialer = Dialer(
                stage_service_pb2_grpc.StageServiceStub(channel).Attach,
                hello=self._hello,
                ping=self._ping,
                events=links,
                policy=self._policy,
                name=f"{endpoint.id} at {endpoint.address}",
            )
            await dialer.run()
