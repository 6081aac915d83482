"""One linked orchestrator, and the requests that it has from this gateway."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from services.gateway.client.exchange import Exchange
from services.gateway.translate import (
    abort_frame,
    fence_frame,
    handle_lost_frame,
    models_of,
    takes_work,
    terminal_of,
)
from stagemesh.api.types.v1 import link_pb2
from stagemesh.errors import MeshError
from stagemesh.link.core import Grant, SlotMint
from stagemesh.link.pump import Link, Received
from stagemesh.outcome import ErrorInfo, Outcome, Terminal, error_for
from stagemesh.wire import PublishedModelValue

__all__ = ["FENCED_MAX", "Peer"]

FENCED_MAX: Final = 4096
"""How many slots a peer is remembered to have been told of."""


class Peer:
    """An orchestrator for as long as its link is open."""

    def __init__(
        self, link: Link, *, abort_wait_s: float, on_release: Callable[[Exchange], None]
    ) -> None:
        """Read the peer's Hello.

        Raises:
            MeshError: If it publishes what is not known here.
        """
        self.link = link
        self.listed = True
        self.slots = SlotMint()
        self.exchanges: dict[int, Exchange] = {}
        self.models: dict[str, PublishedModelValue] = models_of(link.peer)
        self._ready = takes_work(link.peer.state)
        self._gone = False
        self._abort_wait_s = abort_wait_s
        self._on_release = on_release
        # The latest slots that were answered with a fence, so that each is answered once.
        self._fenced: OrderedDict[int, None] = OrderedDict()

    @property
    def open_requests(self) -> int:
        """How many requests of this gateway it has."""
        return len(self.exchanges)

    @property
    def takes_work(self) -> bool:
        """Whether it is ready, and neither draining nor delisted."""
        return self._ready and self.listed and not self._gone

    def has_model(self, model: str) -> bool:
        """Whether it publishes a pipeline under this name."""
        return model in self.models

    def received(self, received: Received) -> None:
        """Take what came on the link, in its order."""
        exchanges = self.exchanges
        for row in received.rows:
            exchange = exchanges.get(row.slot)
            if exchange is None:
                self._fence(row.slot)
            else:
                exchange.push(row)
        for frame in received.frames:
            self._take_frame(frame)

    def lost(self, reason: str) -> None:
        """End everything on the link."""
        self._gone = True
        for exchange in list(self.exchanges.values()):
            exchange.lose(reason)

    def grant(self, exchange: Exchange, grant: Grant) -> None:
        """See `Owner`."""
        self.link.send_grants((grant,))

    def abort(self, exchange: Exchange, cause: str) -> None:
        """See `Owner`: late outputs are dropped until the orchestrator has answered."""
        self.link.send_frame(abort_frame(exchange.slot, cause))
        if exchange.deadline is not None:
            exchange.deadline.cancel()
        exchange.deadline = asyncio.get_running_loop().call_later(
            self._abort_wait_s, self._give_up, exchange
        )

    def handle_lost(self, exchange: Exchange, handle_id: str) -> None:
        """See `Owner`."""
        self.link.send_frame(handle_lost_frame(exchange.slot, handle_id))

    def release(self, exchange: Exchange) -> None:
        """See `Owner`."""
        if self.exchanges.pop(exchange.slot, None) is not None:
            self._on_release(exchange)

    def _give_up(self, exchange: Exchange) -> None:
        """Forget a request whose abort nobody answered; what still comes of it is fenced."""
        exchange.finish(
            Terminal(outcome=Outcome.FAILED, error=error_for("link_lost", "No answer to an abort."))
        )

    def _take_frame(self, frame: link_pb2.Frame) -> None:
        match frame.WhichOneof("kind"):
            case "terminal":
                self._end(frame.terminal)
            case "unknown":
                self._end_slot(frame.unknown.slot, error_for("link_lost", "The request is gone."))
            case "ping":
                self._hear(frame.ping)
            case "go_away":
                self._ready = False

    def _end(self, message: link_pb2.Terminal) -> None:
        try:
            terminal = terminal_of(message)
        except MeshError as error:
            self._end_slot(message.slot, error.info)
            return
        exchange = self.exchanges.get(message.slot)
        if exchange is not None:
            exchange.finish(terminal)

    def _end_slot(self, slot: int, info: ErrorInfo) -> None:
        exchange = self.exchanges.get(slot)
        if exchange is not None:
            exchange.finish(Terminal(outcome=Outcome.FAILED, error=info))

    def _hear(self, ping: link_pb2.Ping) -> None:
        self._ready = takes_work(ping.state)
        if ping.has_pipelines:
            try:
                self.models = models_of(ping)
            except MeshError as error:
                self.link.close(f"its news cannot be read: {error}")

    def _fence(self, slot: int) -> None:
        if slot in self._fenced:
            return
        self._fenced[slot] = None
        if len(self._fenced) > FENCED_MAX:
            self._fenced.popitem(last=False)
        self.link.send_frame(fence_frame(slot))
