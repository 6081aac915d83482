"""The links of orchestrators: what comes becomes events, and effects become what goes."""

import logging
from collections.abc import Callable
from typing import Protocol

from services.stage_worker.core.effects import SendGrants, SendRows
from services.stage_worker.core.events import CreditGranted, Event, InputsArrived, LinkLost
from services.stage_worker.driver import LinkEffect
from services.stage_worker.translate import event_of, frame_of, link_attached
from stagemesh.errors import MeshError
from stagemesh.link.pump import Link, Received

__all__ = ["Links"]

_log = logging.getLogger(__name__)


class _Driver(Protocol):
    def post(self, event: Event) -> None: ...


class Links:
    """Every link of the worker: it hears what happens on them, and sends what concerns them."""

    def __init__(self, driver: _Driver, reported: Callable[[], None]) -> None:
        self._driver = driver
        self._reported = reported
        self._links: dict[int, Link] = {}

    def attached(self, link: Link) -> None:
        """Take an orchestrator; anybody else is turned away."""
        try:
            event = link_attached(link.id, link.peer)
        except MeshError as error:
            link.close(error.info.message)
            return
        self._links[link.id] = link
        _log.info("link_attached", extra={"link": link.id, "peer": link.peer.id})
        self._driver.post(event)

    def received(self, link: Link, received: Received) -> None:
        """Tell the driver what came: rows, then frames, then grants."""
        if received.rows:
            self._driver.post(InputsArrived(link=link.id, rows=received.rows))
        for frame in received.frames:
            try:
                event = event_of(link.id, frame)
            except MeshError as error:
                link.close(error.info.message)
                return
            if event is not None:
                self._driver.post(event)
        if received.grants:
            self._driver.post(CreditGranted(link=link.id, grants=received.grants))

    def lost(self, link: Link, reason: str) -> None:
        """Tell the driver that a link is over, with everything on it."""
        if self._links.pop(link.id, None) is not None:
            _log.info("link_lost", extra={"link": link.id, "peer": link.peer.id, "reason": reason})
            self._driver.post(LinkLost(link=link.id))

    def perform(self, effect: LinkEffect) -> None:
        """Send what an effect orders; what is for a link that is gone goes nowhere."""
        link = self._links.get(effect.link)
        if link is None:
            return
        match effect:
            case SendRows():
                link.send_rows(effect.rows)
            case SendGrants():
                link.send_grants(effect.grants)
            case _:
                link.send_frame(frame_of(effect))

    def report(self) -> None:
        """Tell every orchestrator, and health, of the worker's state."""
        self._reported()
        for link in self._links.values():
            link.ping_now()

    def close(self, reason: str) -> None:
        """Close every link, once what waits on it is written."""
        for link in list(self._links.values()):
            link.close(reason)
