"""The composition root: makes the parts of one orchestrator, and starts and stops them in order."""

import asyncio
import os
import signal
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from importlib.metadata import version
from typing import Final

import msgspec
from grpc import aio

from services.orchestrator.core.effects import PublishModels
from services.orchestrator.core.machine import Orchestrator
from services.orchestrator.core.settings import CoreSettings
from services.orchestrator.driver import Driver, Dumper, Endings, Ledger, Recorder
from services.orchestrator.peers import Peers
from services.orchestrator.servicer import (
    ADMIN_SERVICE,
    CLIENT_SERVICE,
    LINK_SERVICES,
    AdminServicer,
    Calls,
    Conversations,
    Draining,
    GatewayLinks,
    GatewayLinkServicer,
    Generation,
    Operations,
    OrchestratorServicer,
    PeerServicer,
    Presence,
    Requests,
    Watchers,
    register_admin,
    register_clients,
    register_links,
)
from services.orchestrator.settings import Settings
from services.orchestrator.translate import KnownReplica, Portrait, Submits
from services.orchestrator.workers import Pools
from stagemesh.discovery import open_source
from stagemesh.heap import freeze_heap
from stagemesh.ids import new_incarnation
from stagemesh.link.pump import LinkPolicy
from stagemesh.payload import PayloadReader, PayloadServicer, PayloadStore
from stagemesh.pipeline import Mesh
from stagemesh.rpc import RunningServer, open_channel, start_server
from stagemesh.telemetry import Metrics, metrics, start_metrics

__all__ = ["Program", "serve"]

FLUSH_S: Final = 2.0
"""How long the last answers may take to be written once nothing is open any more."""

FULL_COLLECTION_AFTER: Final = 30
"""Looking through a thousand open requests takes 30 ms, in which an abort waits. A request of a
gateway leaves nothing to be found, and one of gRPC's calls little, so it need not happen often."""

LEASE_S: Final = 3600.0
"""Nobody sweeps: what a call put away is released when the call ends, and nothing is kept warm."""


async def serve(settings: Settings, mesh: Mesh) -> None:
    """Run one orchestrator until SIGTERM or SIGINT; see `Program.run` for what it raises."""
    program = Program(settings, mesh)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, program.stop)
    loop.add_signal_handler(signal.SIGUSR1, program.dump)
    freeze_heap(full_after=FULL_COLLECTION_AFTER)
    await program.run()


class Program:
    """One orchestrator; `ready` is set once its ports are open."""

    def __init__(self, settings: Settings, mesh: Mesh, *, registry: Metrics = metrics) -> None:
        self.ready = asyncio.Event()
        self._settings = settings
        self._mesh = mesh
        self._registry = registry
        self._over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._error: Exception | None = None
        self._incarnation = new_incarnation()
        self._presence = Presence(self._portrait(), mesh)
        self._core_settings = CoreSettings(
            orchestrators=settings.orchestrators,
            slow_s=settings.slow_s,
            stall_s=settings.stall_s,
            lease_s=settings.lease_s,
        )
        self._core = Orchestrator(mesh, self._core_settings)
        self._recorder = Recorder(self._presence.readiness())
        self._watchers = Watchers(self._core, self._known, self._presence.hello)
        endings = Endings()
        self._driver = Driver(
            self._core,
            observers=(self._make_ledger(endings), self._watchers),
            published=self._published,
            failed=self._fail,
            recorder=self._recorder,
        )
        self._dumper = self._make_dumper()
        windows = (self._core_settings.window_units, self._core_settings.window_bytes)
        self._calls = Calls(self._driver, input_window=windows)
        self._gateways = GatewayLinks(self._driver)
        self._requests = Requests(
            self._driver,
            self._core,
            endings,
            orchestrator_id=settings.id,
            incarnation=self._incarnation,
        )
        self._source = open_source(settings.discovery)
        self._open_channel = partial(
            open_channel, tls=settings.channel_tls, insecure=settings.insecure
        )
        self._peers = Peers(settings.id, source=self._source, open_channel=self._open_channel)
        self._pools = self._make_pools()
        self._operations = Operations(self._driver, self._known)
        self._draining = Draining(self._driver, self._presence, self._state_changed)
        self._servers: dict[str, RunningServer] = {}

    def stop(self) -> None:
        """Begin to drain; `run` returns when it is done."""
        if not self._over.done():
            self._over.set_result(None)

    def dump(self) -> None:
        """Write the last inputs of the core down, beside what runs."""
        self._dumper.write_aside()

    async def run(self) -> None:
        """Serve until `stop`, then drain.

        Raises:
            BadSettings: If an address is not allowed.
            OSError: If an address cannot be bound, or the payload directory not be written.
            ExceptionGroup: With what the core raised; the process must not go on with it.
        """
        async with AsyncExitStack() as stack:
            stack.callback(self._driver.close)
            await self._start(stack)
            self._calls.attach()
            self._operations.attach()
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._pools.run(), name="pools")
                peers = tasks.create_task(self._peers.run(), name="peers")
                self.ready.set()
                await self._over
                await self._drain()
                peers.cancel()

    async def _start(self, stack: AsyncExitStack) -> None:
        settings = self._settings
        store = PayloadStore(
            holder_id=settings.id,
            incarnation=self._incarnation,
            address=settings.advertised,
            directory=settings.payload_directory,
            bytes_max=settings.payload_bytes_max,
            lease_s=LEASE_S,
            warm_bytes_max=0,
        )
        stack.callback(store.close)
        reader = await stack.enter_async_context(
            PayloadReader(tls=settings.channel_tls, insecure=settings.insecure)
        )
        if settings.metrics:
            scraped = await start_metrics(
                settings.metrics, source=self._registry, insecure=settings.insecure
            )
            stack.push_async_callback(scraped.close)
        await self._open_ports(stack, store, reader)
        self._tell_readiness()

    async def _open_ports(
        self, stack: AsyncExitStack, store: PayloadStore, reader: PayloadReader
    ) -> None:
        settings, presence = self._settings, self._presence
        admin = AdminServicer(
            pools=self._mesh.pools,
            views=self._core,
            watchers=self._watchers,
            operations=self._operations,
            draining=self._draining,
            hello=presence.hello,
            requests=self._requests,
        )
        links = GatewayLinkServicer(
            self._gateways, hello=presence.hello, ping=presence.news, policy=LinkPolicy()
        )
        clients = OrchestratorServicer(
            Generation(self._mesh, self._calls, store, reader),
            Conversations(self._mesh, self._calls, store, reader),
            self._requests,
            self._peers,
            presence.models,
        )
        opened = partial(self._open_port, stack)
        await opened(
            "admin",
            settings.admin,
            partial(register_admin, admin),
            (ADMIN_SERVICE,),
            reflection=settings.reflection,
        )
        await opened(
            "link",
            settings.link,
            partial(register_links, links, PeerServicer(self._requests), PayloadServicer(store)),
            LINK_SERVICES,
            reflection=settings.reflection,
        )
        await opened(
            "grpc",
            settings.grpc,
            partial(register_clients, clients),
            (CLIENT_SERVICE,),
            reflection=True,
        )

    async def _open_port(
        self,
        stack: AsyncExitStack,
        port: str,
        address: str,
        register: Callable[[aio.Server], None],
        services: Sequence[str],
        *,
        reflection: bool,
    ) -> None:
        self._servers[port] = await start_server(
            address,
            register=register,
            services=services,
            reflection=reflection,
            tls=self._settings.server_tls,
            insecure=self._settings.insecure,
        )
        stack.push_async_callback(self._servers[port].stop, 0)

    async def _drain(self) -> None:
        """Let requests end, then write the last answers, then close links and ports."""
        await self._draining.stop(self._settings.drain_s)
        if self._error is not None:
            raise self._error
        self._gateways.close("drained")
        self._pools.close("drained")
        async with asyncio.TaskGroup() as tasks:
            for server in self._servers.values():
                tasks.create_task(server.stop(FLUSH_S))

    def _make_ledger(self, endings: Endings) -> Ledger:
        ledger = Ledger(self._registry, self._presence.readiness(), endings.ended)
        ledger.watch_attempts({pool: partial(self._inflight, pool) for pool in self._mesh.pools})
        ledger.watch_oddities(lambda: msgspec.structs.asdict(self._core.counts))
        ledger.watch_kept(self._core.footprint)
        return ledger

    def _make_dumper(self) -> Dumper:
        return Dumper(
            self._recorder,
            self._core,
            directory=self._settings.dump_directory,
            orchestrator_id=self._settings.id,
            incarnation=self._incarnation,
            settings=self._core_settings,
            revisions={name: one.revision for name, one in self._mesh.pipelines.items()},
        )

    def _portrait(self) -> Portrait:
        return Portrait(
            orchestrator_id=self._settings.id,
            incarnation=self._incarnation,
            version=version("stagemesh"),
            pid=os.getpid(),
            payload_address=self._settings.advertised,
        )

    def _make_pools(self) -> Pools:
        presence = self._presence
        return Pools(
            self._driver,
            Submits(self._mesh),
            names=self._mesh.pools,
            source=self._source,
            open_channel=self._open_channel,
            hello=presence.hello,
            ping=presence.sign_of_life,
            policy=LinkPolicy(),
        )

    def _known(self) -> list[KnownReplica]:
        return self._pools.known()

    def _published(self, effect: PublishModels) -> None:
        self._presence.publish(effect)
        self._state_changed()

    def _state_changed(self) -> None:
        self._tell_readiness()
        self._gateways.tell_news()

    def _tell_readiness(self) -> None:
        """Tell health which models can be served, and whether any can."""
        readiness = self._presence.readiness()
        for model, ready in readiness.items():
            self._servers["grpc"].set_serving(model, ready)
        self._servers["grpc"].set_serving(CLIENT_SERVICE, any(readiness.values()))
        for name in LINK_SERVICES:
            self._servers["link"].set_serving(name, not self._presence.draining)
        self._servers["admin"].set_serving(ADMIN_SERVICE, True)

    def _inflight(self, pool: str) -> int:
        return sum(view.in_flight for view in self._core.replica_views() if view.pool == pool)

    def _fail(self, error: Exception) -> None:
        self._error = error
        self._dumper.write(type(error).__name__)
        if not self._over.done():
            self._over.set_exception(error)
