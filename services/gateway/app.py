"""The composition root: makes every part of one gateway, and starts and stops them in order."""

import asyncio
import logging
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Final

import uvicorn

from services.gateway.client import Detachables, Media, Orchestrators, serve_payloads
from services.gateway.core.access import AccessRule
from services.gateway.edges import Backend, BoundedProtocol, Front, GatewayMetrics
from services.gateway.settings import Settings
from services.gateway.store import SqliteStore
from services.gateway.translate import SelfPortrait
from stagemesh.discovery import open_source
from stagemesh.heap import freeze_heap
from stagemesh.ids import new_incarnation
from stagemesh.link.pump import LinkPolicy
from stagemesh.outcome import error_for
from stagemesh.payload import PayloadReader, PayloadStore
from stagemesh.settings import split_address
from stagemesh.telemetry import Metrics, metrics

__all__ = ["Gateway", "listen", "serve"]

_BACKLOG: Final = 4096
_KEEP_ALIVE_S: Final = 75
"""Longer than the proxies in front of it keep an idle connection, so that they close it first."""
_GRACE_S: Final = 3.0
"""For answers that were ended at the end of the drain to be written."""

_log = logging.getLogger(__name__)
# It warns of every malformed form, which is the client's business and not an operator's.
logging.getLogger("python_multipart").setLevel(logging.ERROR)
# It tells of its own start and stop, and so do we.
logging.getLogger("uvicorn.error").setLevel(logging.WARNING)


class _Server(uvicorn.Server):
    """Uvicorn without signal handlers of its own: the drain is ours to order."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals alone."""
        yield


class Gateway:
    """One gateway of a process, from `run` to the end of its drain."""

    def __init__(self, settings: Settings, *, registry: Metrics = metrics) -> None:
        self._settings = settings
        self._registry = registry
        self._stop = asyncio.Event()
        self.address = settings.http
        """Where it listens; the port is known once `started` is set."""
        self.detachables: Detachables | None = None
        """Requests that may outlive it; from `started` on, if there is a store."""
        self.started = asyncio.Event()

    def stop(self) -> None:
        """Begin to drain."""
        self._stop.set()

    async def run(self) -> None:
        """Serve until `stop`, then drain.

        Raises:
            BadSettings: If discovery or an address cannot be used.
            OSError: If an address cannot be bound.
        """
        settings = self._settings
        async with AsyncExitStack() as stack:
            listener = stack.enter_context(listen(settings))
            host, port = split_address(settings.http)[0], listener.getsockname()[1]
            self.address = f"{host}:{port}"
            gauges = GatewayMetrics(self._registry)
            media = await self._media(stack, incarnation := new_incarnation())
            orchestrators = Orchestrators(
                open_source(settings.discovery),
                portrait=self._portrait(incarnation),
                media=media,
                policy=settings.client,
                link_policy=LinkPolicy(),
                tls=settings.channel_tls,
                insecure=settings.insecure,
                on_drop=gauges.dropped.inc,
                on_loss=lambda kind: gauges.losses.labels(kind.value).inc(),
            )
            self.detachables = await self._open_store(stack, orchestrators)
            backend = Backend(
                orchestrators,
                access=AccessRule(host, settings.allowed_hosts, settings.allowed_origins),
                limits=settings.limits,
                metrics=gauges,
            )
            async with asyncio.TaskGroup() as tasks:
                links = tasks.create_task(orchestrators.run(), name="links")
                leases = tasks.create_task(media.run(), name="leases")
                keeping = tasks.create_task(self._keep(), name="detachables")
                await self._serve_http(listener, backend)
                if self.detachables is not None:
                    # While the links stand: what is left goes on at another gateway.
                    await self.detachables.close()
                await orchestrators.close()
                links.cancel()
                leases.cancel()
                keeping.cancel()

    async def _serve_http(self, listener: socket.socket, backend: Backend) -> None:
        """Serve HTTP until `stop`; then let what is open finish, and end the rest typed."""

        class Protocol(BoundedProtocol):
            slow_s = self._settings.slow_s

        server = _Server(
            uvicorn.Config(
                Front(backend),
                http=Protocol,
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                backlog=_BACKLOG,
                timeout_keep_alive=_KEEP_ALIVE_S,
                timeout_graceful_shutdown=int(self._settings.drain_s + _GRACE_S),
            )
        )
        async with asyncio.TaskGroup() as tasks:
            http = tasks.create_task(server.serve(sockets=[listener]), name="http")
            _log.info("serving", extra={"address": self.address})
            self.started.set()
            await self._stop.wait()
            _log.info("draining")
            backend.orchestrators.drain()
            server.should_exit = True
            end = asyncio.get_running_loop().call_later(
                self._settings.drain_s, backend.orchestrators.end_all, error_for("draining")
            )
            await http
            end.cancel()

    async def _open_store(
        self, stack: AsyncExitStack, orchestrators: Orchestrators
    ) -> Detachables | None:
        if not self._settings.store:
            return None
        store = SqliteStore(Path(self._settings.store))
        await store.open()
        stack.push_async_callback(store.close)
        return Detachables(orchestrators, store)

    async def _keep(self) -> None:
        if self.detachables is not None:
            await self.detachables.run()

    async def _media(self, stack: AsyncExitStack, incarnation: int) -> Media:
        settings = self._settings
        store = PayloadStore(
            holder_id=settings.id,
            incarnation=incarnation,
            address=settings.payload,
            directory=settings.payload_directory,
            bytes_max=settings.payload_bytes_max,
            lease_s=settings.lease_s,
            warm_bytes_max=0,  # What clients send is gone when their request is.
        )
        stack.callback(store.close)
        reader = await stack.enter_async_context(
            PayloadReader(tls=settings.channel_tls, insecure=settings.insecure)
        )
        server = await serve_payloads(
            store, settings.payload, tls=settings.server_tls, insecure=settings.insecure
        )
        stack.push_async_callback(server.stop, 0)
        return Media(store, reader, fetch_s=settings.fetch_s, lease_s=settings.lease_s)

    def _portrait(self, incarnation: int) -> SelfPortrait:
        settings = self._settings
        return SelfPortrait(
            gateway_id=settings.id,
            incarnation=incarnation,
            version=version("stagemesh"),
            pid=os.getpid(),
            payload_address=settings.payload,
            window_units=settings.window_units,
            window_bytes=settings.window_bytes,
        )


async def serve(settings: Settings) -> None:
    """Run a gateway until SIGTERM or SIGINT.

    Raises:
        BadSettings: If discovery or an address cannot be used.
        OSError: If an address cannot be bound.
    """
    gateway = Gateway(settings)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, gateway.stop)
    freeze_heap()
    await gateway.run()


def listen(settings: Settings) -> socket.socket:
    """Open the listening socket; accepted ones inherit its options.

    A small send buffer, so that a client that does not read is noticed, and no Nagle, since an
    event must not wait for the last one's acknowledgement.

    Raises:
        OSError: If the address cannot be bound.
    """
    host, port = split_address(settings.http)
    family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    # With the protocol named, not 0, asyncio knows it for TCP.
    listener = socket.socket(family, kind, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, settings.send_buffer_bytes)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        listener.bind(address)
        # At once, not when the rest has started: until it listens, others may bind it as well.
        listener.listen(_BACKLOG)
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener
