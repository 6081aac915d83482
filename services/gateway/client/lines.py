"""One line to one orchestrator: the channel, the dialer, and what its link says."""

import asyncio
import logging
from collections.abc import Callable

from services.gateway.client.peers import Peer
from services.gateway.translate import SelfPortrait, hello_of, ping_of
from stagemesh.api.orchestrator.v1 import gateway_link_service_pb2_grpc
from stagemesh.discovery import Endpoint
from stagemesh.errors import MeshError
from stagemesh.link.pump import Dialer, Link, LinkPolicy, Received
from stagemesh.rpc import Tls, open_channel

__all__ = ["Line"]

_log = logging.getLogger(__name__)


class Line:
    """Keeps one link to one address for as long as discovery names it, or its requests last."""

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        portrait: SelfPortrait,
        draining: Callable[[], bool],
        policy: LinkPolicy,
        tls: Tls | None,
        insecure: bool,
        abort_wait_s: float,
        on_news: Callable[[], None],
    ) -> None:
        self.endpoint = endpoint
        self.peer: Peer | None = None
        self._portrait = portrait
        self._draining = draining
        self._policy = policy
        self._tls = tls
        self._insecure = insecure
        self._abort_wait_s = abort_wait_s
        self._on_news = on_news
        self._listed = True
        self._over = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self, tasks: asyncio.TaskGroup, on_end: Callable[["Line"], None]) -> None:
        """Begin to dial, as a task of the group."""
        self._task = tasks.create_task(self._run(), name=f"line-{self.endpoint.id}")
        self._task.add_done_callback(lambda _: on_end(self))

    def list(self, listed: bool) -> None:
        """Note whether discovery names the address; without its name it gets nothing new."""
        self._listed = listed
        if self.peer is not None:
            self.peer.listed = listed
        self._retire_if_idle()

    async def close(self) -> None:
        """End the link once what waits is written, at most a link's `linger_s` later."""
        if self.peer is not None:
            self._over.clear()
            self.peer.link.close("the gateway is being stopped")
            await self._over.wait()

    def attached(self, link: Link) -> None:
        """See `LinkEvents`."""
        try:
            self.peer = Peer(
                link,
                abort_wait_s=self._abort_wait_s,
                outbox_bytes_max=self._policy.outbox_bytes_max,
                on_news=self._on_news,
                on_leave=self._retire_if_idle,
            )
        except MeshError as error:
            link.close(f"its Hello cannot be read: {error}")
            return
        self.peer.listed = self._listed
        _log.info("linked", extra={"peer": link.peer.id, "address": self.endpoint.address})
        self._on_news()

    def received(self, link: Link, received: Received) -> None:
        """See `LinkEvents`."""
        if self.peer is not None and self.peer.link is link:
            self.peer.received(received)

    def lost(self, link: Link, reason: str) -> None:
        """See `LinkEvents`."""
        peer, self.peer = self.peer, None
        if peer is not None:
            _log.info(
                "link_ended",
                extra={"peer": link.peer.id, "reason": reason, "requests": peer.open_requests},
            )
            peer.lost(reason)
        self._over.set()
        self._retire_if_idle()

    async def _run(self) -> None:
        channel = open_channel(self.endpoint.address, tls=self._tls, insecure=self._insecure)
        async with channel:
            stub = gateway_link_service_pb2_grpc.GatewayLinkServiceStub(channel)
            await Dialer(
                stub.Attach,
                hello=lambda: hello_of(self._portrait),
                ping=lambda: ping_of(draining=self._draining()),
                events=self,
                policy=self._policy,
                name=self.endpoint.address,
            ).run()

    def _retire_if_idle(self) -> None:
        idle = self.peer is None or not self.peer.open_requests
        if not self._listed and idle and self._task is not None:
            self._task.cancel()
