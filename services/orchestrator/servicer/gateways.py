"""`GatewayLinkService`: the links of gateways, as client links of the core."""

import logging
from collections.abc import Callable
from typing import Any

from grpc import aio

from services.orchestrator.core.effects import (
    AnswerUnknown,
    DropRequest,
    Effect,
    EndRequest,
    HandBackRequest,
    PlaceNotice,
    ResetLanes,
    SayGoAway,
    SendGrants,
    SendRows,
)
from services.orchestrator.core.events import (
    AbortAsked,
    ClientLost,
    CreditGranted,
    FenceRaised,
    InputsAppended,
)
from services.orchestrator.driver import Driver
from services.orchestrator.servicer.openings import Opening, Openings
from services.orchestrator.translate import (
    client_attached,
    frame_of,
    gateway_event,
    opened,
    terminal_frame,
)
from stagemesh.api.orchestrator.v1 import gateway_link_service_pb2_grpc
from stagemesh.api.types.v1 import link_pb2
from stagemesh.errors import MeshError
from stagemesh.link.core import REQUEST_SOURCE, Row, join_journals
from stagemesh.link.pump import Link, LinkPolicy, Received, journal_from_proto, serve_link
from stagemesh.outcome import Terminal, error_for, outcome_of

__all__ = ["GatewayLinkServicer", "GatewayLinks"]

_log = logging.getLogger(__name__)


class _Outlet:
    """Performs what the core orders for one gateway."""

    def __init__(self, link: Link) -> None:
        self._link = link

    def perform(self, effect: Effect) -> None:
        match effect:
            case SendRows():
                self._link.send_rows(effect.rows)
            case SendGrants():
                self._link.send_grants(effect.grants)
            case (
                EndRequest()
                | AnswerUnknown()
                | HandBackRequest()
                | PlaceNotice()
                | ResetLanes()
                | SayGoAway()
            ):
                self._link.send_frame(frame_of(effect))
            case DropRequest():
                pass  # Its gateway is not told.
            case _:
                raise TypeError(f"{type(effect).__name__} is not for a gateway")


class GatewayLinks:
    """Turns what gateways send into events, and tells them when models come and go."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._links: dict[int, Link] = {}  # One a gateway, from its Hello until it is lost.
        self._openings: dict[int, Openings] = {}  # One a link, as long as it.

    def attached(self, link: Link) -> None:
        """Make a gateway known to the core, or refuse what is no gateway."""
        try:
            event = client_attached(link.id, link.peer)
        except MeshError as error:
            self._refuse(link, error)
            return
        self._links[link.id] = link
        self._openings[link.id] = Openings()
        self._driver.connect(link.id, _Outlet(link))
        self._driver.post(event)
        _log.info("gateway_attached", extra={"peer_id": link.peer.id})

    def received(self, link: Link, received: Received) -> None:
        """Step what one message of a gateway brought."""
        if link.id not in self._links:
            return
        try:
            if received.rows:
                self._take_inputs(link, received.rows)
            for frame in received.frames:
                self._take(link, frame)
        except MeshError as error:
            self._refuse(link, error)
            return
        if received.grants:
            self._driver.post(CreditGranted(link=link.id, grants=received.grants))

    def lost(self, link: Link, reason: str) -> None:
        """Tell the core that a gateway is gone, with its requests."""
        if self._links.pop(link.id, None) is None:
            return
        del self._openings[link.id]
        self._driver.disconnect(link.id)
        self._driver.post(ClientLost(link=link.id))
        _log.info("gateway_lost", extra={"peer_id": link.peer.id, "reason": reason})

    def tell_news(self) -> None:
        """Send every gateway a ping now: models or the state of this process have changed."""
        for link in self._links.values():
            link.ping_now()

    def close(self, reason: str) -> None:
        """Close every link, after what waits on it was written."""
        for link in list(self._links.values()):
            link.close(reason)

    def _take_inputs(self, link: Link, rows: list[Row]) -> None:
        """Take pieces of input, of requests that are being opened and of those that are open."""
        openings = self._openings[link.id]
        appended = [row for row in rows if not openings.add_input(row)]
        if any(row.lane != REQUEST_SOURCE for row in appended):
            raise MeshError(error_for("protocol_error", "A gateway sent an output."))
        if appended:
            self._driver.post(InputsAppended(link=link.id, rows=appended))

    def _take(self, link: Link, frame: link_pb2.Frame) -> None:
        openings = self._openings[link.id]
        match frame.WhichOneof("kind"):
            case "open":
                if not openings.begin(frame.open):
                    self._open(link, Opening(frame.open))
            case "journal_part":
                openings.add(frame.journal_part)
            case "go":
                whole = openings.take(frame.go.slot)
                if whole is not None:
                    self._open(link, whole)
            case _:
                event = gateway_event(link.id, frame)
                if isinstance(event, AbortAsked | FenceRaised):
                    openings.take(event.slot)
                if event is not None:
                    self._driver.post(event)

    def _open(self, link: Link, opening: Opening) -> None:
        frame = opening.frame
        try:
            journals = (frame.journal, *(part.journal for part in opening.parts))
            journal = join_journals(map(journal_from_proto, journals))
            event = opened(link.id, frame, journal, opening.inputs)
        except MeshError as error:
            # Only this request is wrong, and the core never hears of its slot.
            terminal = Terminal(outcome=outcome_of(error.info.code), error=error.info)
            link.send_frame(terminal_frame(frame.slot, terminal))
            return
        self._driver.post(event)

    def _refuse(self, link: Link, error: MeshError) -> None:
        _log.error("gateway_refused", extra={"peer_id": link.peer.id, "reason": error.info.message})
        link.close(error.info.message)


class GatewayLinkServicer(gateway_link_service_pb2_grpc.GatewayLinkServiceServicer):
    """Serves the link port."""

    def __init__(
        self,
        links: GatewayLinks,
        *,
        hello: Callable[[], link_pb2.Hello],
        ping: Callable[[], link_pb2.Ping],
        policy: LinkPolicy,
    ) -> None:
        self._links = links
        self._hello = hello
        self._ping = ping
        self._policy = policy

    async def Attach(  # type: ignore[override]  # noqa: N802
        self, request_iterator: object, context: aio.ServicerContext[Any, Any]
    ) -> None:
        """Serve one link, by reading and writing on the context."""
        del request_iterator
        await serve_link(
            context, hello=self._hello, ping=self._ping, events=self._links, policy=self._policy
        )
