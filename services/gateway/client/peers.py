"""One linked orchestrator, and the requests that it has from this gateway."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from services.gateway.client.exchange import Exchange
from services.gateway.core.detached import OwnerName
from services.gateway.core.redrive import Loss, LossKind
from services.gateway.translate import (
    abort_frame,
    fence_frame,
    go_frame,
    handle_lost_frame,
    models_of,
    open_frames,
    takes_work,
    terminal_of,
)
from stagemesh.api.types.v1 import link_pb2
from stagemesh.errors import MeshError
from stagemesh.link.core import Grant, SlotMint
from stagemesh.link.pump import Link, Received, placed_from_proto
from stagemesh.outcome import ErrorInfo, Outcome, Terminal, error_for
from stagemesh.wire import PublishedModelValue

__all__ = ["FENCED_MAX", "Peer"]

FENCED_MAX: Final = 4096
"""How many slots a peer is remembered to have been told of."""

_UNKNOWN: Final = Loss(
    kind=LossKind.UNKNOWN,
    info=error_for("link_lost", "The orchestrator does not know the request."),
)
_HANDED_BACK: Final = Loss(
    kind=LossKind.HANDED_BACK,
    info=error_for("link_lost", "The orchestrator gave the request back."),
)


class Peer:
    """An orchestrator for as long as its link is open."""

    def __init__(
        self,
        link: Link,
        *,
        abort_wait_s: float,
        outbox_bytes_max: int,
        on_news: Callable[[], None],
        on_leave: Callable[[], None],
    ) -> None:
        """Read the peer's Hello.

        Raises:
            MeshError: If it publishes what is not known here.
        """
        self.link = link
        self.name = OwnerName(link.peer.id, link.peer.incarnation)
        self.gone = False
        """Whether its link is over."""
        self.listed = True
        self.slots = SlotMint()
        self.exchanges: dict[int, Exchange] = {}
        self.models: dict[str, PublishedModelValue] = models_of(link.peer)
        self._ready = takes_work(link.peer.state)
        self._abort_wait_s = abort_wait_s
        self._outbox_bytes_max = outbox_bytes_max
        self._on_news = on_news
        self._on_leave = on_leave
        # The latest slots of which nothing more is to be said: each is fenced once.
        self._fenced: OrderedDict[int, None] = OrderedDict()

    @property
    def open_requests(self) -> int:
        """How many requests of this gateway it has."""
        return len(self.exchanges)

    @property
    def takes_work(self) -> bool:
        """Whether it is ready, and neither draining nor delisted."""
        return self._ready and self.listed and not self.gone

    @property
    def ready(self) -> bool:
        """Whether it takes work, and can serve at least one of its models now."""
        return self.takes_work and any(model.ready for model in self.models.values())

    def has_model(self, model: str) -> bool:
        """Whether it publishes a pipeline under this name."""
        return model in self.models

    def revision_of(self, model: str) -> str:
        """Give the revision of the pipeline that it publishes under this name, or nothing."""
        published = self.models.get(model)
        return "" if published is None else published.revision

    def has_room(self, size_bytes: int) -> bool:
        """Whether so much more may wait on the link, with a half of it left for the rest."""
        return 2 * (self.link.waiting_bytes + size_bytes) <= self._outbox_bytes_max

    def give(self, exchange: Exchange, now_s: float, *, open_bytes_max: int) -> None:
        """Give it a request, with what that has produced so far.

        Raises:
            MeshError: If the request is too large.
        """
        slot = self.slots.next()
        exchange.journal.opened(self.revision_of(exchange.request.model))
        given, claims = exchange.input, exchange.claims
        inputs = [] if given is None else given.replayed(slot)
        frames = open_frames(
            slot=slot,
            request_id=exchange.request_id,
            epoch=exchange.epoch + 1,
            deadline_left_s=exchange.deadline_left_s(now_s),
            request=exchange.request,
            journal=exchange.journal.export(),
            streamed=given is not None,
            inputs_follow=bool(inputs),
            detach_s=0.0 if claims is None else claims.detach_s,
            owner_since=0 if claims is None else claims.owner_since,
        )
        first = frames[0]
        if not first.open.HasField("journal") and first.ByteSize() > open_bytes_max:
            raise MeshError(
                error_for(
                    "body_too_large",
                    f"The messages are larger than {open_bytes_max} bytes.",
                    param="messages",
                )
            )
        self.exchanges[slot] = exchange
        exchange.opened(self, slot, now_s)
        for frame in frames:
            self.link.send_frame(frame)
        if inputs:
            self.link.send_rows(inputs)
            self.link.send_frame(go_frame(slot))
        if given is not None:
            limits = self.link.peer.limits
            window = (limits.window_units, limits.window_bytes)
            given.opened(slot, self.link.send_rows, window)

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
        for grant in received.grants:
            self._take_grant(grant)

    def lost(self, reason: str) -> None:
        """Give everything on the link up; it goes on elsewhere."""
        self.gone = True
        info = error_for("link_lost", f"The link to the orchestrator ended ({reason}).")
        for exchange in list(self.exchanges.values()):
            exchange.lose(Loss(kind=LossKind.LINK, info=info))

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

    def leave(self, exchange: Exchange) -> None:
        """See `Owner`: what still comes of it is fenced."""
        if self.exchanges.pop(exchange.slot, None) is not None:
            self._on_leave()

    def cede(self, exchange: Exchange, *, here: bool) -> None:
        """See `Owner`."""
        if self.exchanges.pop(exchange.slot, None) is not None:
            self._fence(exchange.slot, detach=here)
            self._on_leave()

    def _give_up(self, exchange: Exchange) -> None:
        """Forget a request whose abort nobody answered; what still comes of it is fenced."""
        exchange.finish(
            Terminal(outcome=Outcome.FAILED, error=error_for("link_lost", "No answer to an abort."))
        )

    def _take_frame(self, frame: link_pb2.Frame) -> None:
        match frame.WhichOneof("kind"):
            case "terminal":
                self._end(frame.terminal)
            case "placed":
                self._place(frame.placed)
            case "reset":
                self._reset(frame.reset)
            case "unknown":
                self._lose(frame.unknown.slot, _UNKNOWN)
            case "hand_back":
                self._lose(frame.hand_back.slot, _HANDED_BACK)
            case "ping":
                self._hear(frame.ping)
            case "go_away":
                self._ready = False

    def _take_grant(self, grant: Grant) -> None:
        exchange = self.exchanges.get(grant.slot)
        if exchange is not None and exchange.input is not None:
            exchange.input.granted(grant)

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

    def _lose(self, slot: int, loss: Loss) -> None:
        exchange = self.exchanges.get(slot)
        if exchange is not None:
            exchange.lose(loss)

    def _place(self, message: link_pb2.Placed) -> None:
        exchange = self.exchanges.get(message.slot)
        if exchange is None:
            self._fence(message.slot)
        else:
            exchange.place(placed_from_proto(message))

    def _reset(self, message: link_pb2.Reset) -> None:
        exchange = self.exchanges.get(message.slot)
        if exchange is None:
            self._fence(message.slot)
        else:
            exchange.reset(set(message.stages))

    def _hear(self, ping: link_pb2.Ping) -> None:
        self._ready = takes_work(ping.state)
        if ping.has_pipelines:
            try:
                self.models = models_of(ping)
            except MeshError as error:
                self.link.close(f"its news cannot be read: {error}")
                return
        self._on_news()

    def _fence(self, slot: int, *, detach: bool = False) -> None:
        if slot not in self._fenced:
            self._fenced[slot] = None
            if len(self._fenced) > FENCED_MAX:
                self._fenced.popitem(last=False)
            self.link.send_frame(fence_frame(slot, detach=detach))
