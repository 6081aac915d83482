"""The link of one replica: its messages as events, and the core's orders as messages."""

import logging
from collections.abc import Callable

from services.orchestrator.core.effects import (
    AbortAttempt,
    AskWorker,
    Effect,
    FenceRequest,
    ReleaseHandles,
    RenewHandles,
    SendGrants,
    SendPrompt,
    SendRows,
    SubmitAttempts,
)
from services.orchestrator.core.events import (
    InputCreditGranted,
    ReplicaLost,
    RowsArrived,
)
from services.orchestrator.driver import Driver
from services.orchestrator.translate import (
    KnownReplica,
    Submits,
    frame_of,
    replica_attached,
    worker_event,
)
from stagemesh.api.types.v1 import link_pb2
from stagemesh.errors import MeshError
from stagemesh.link.pump import Link, Received
from stagemesh.outcome import error_for

__all__ = ["ReplicaLinks"]

_log = logging.getLogger(__name__)


class _Outlet:
    """Performs what the core orders for one replica."""

    def __init__(self, link: Link, submits: Submits) -> None:
        self._link = link
        self._submits = submits

    def perform(self, effect: Effect) -> None:
        match effect:
            case SendRows():
                self._link.send_rows(effect.rows)
            case SendGrants():
                self._link.send_grants(effect.grants)
            case SubmitAttempts():
                self._link.send_frame(link_pb2.Frame(submit=self._submits.to_proto(effect)))
            case (
                AbortAttempt()
                | AskWorker()
                | FenceRequest()
                | ReleaseHandles()
                | RenewHandles()
                | SendPrompt()
            ):
                self._link.send_frame(frame_of(effect))
            case _:
                raise TypeError(f"{type(effect).__name__} is not for a worker")


class ReplicaLinks:
    """Hears of the links to one address, one after the other.

    `gone` is called each time that such a link is over.
    """

    def __init__(
        self,
        driver: Driver,
        submits: Submits,
        *,
        pool: str,
        replica_id: str,
        gone: Callable[[], None],
    ) -> None:
        self._driver = driver
        self._submits = submits
        self._pool = pool
        self._replica_id = replica_id
        self._gone = gone
        self._link: Link | None = None
        self._ping: link_pb2.Ping | None = None
        self._refused = ""

    @property
    def attached_now(self) -> bool:
        """Whether there is a link now, to a peer that was not refused."""
        return self._link is not None

    def known(self, address: str) -> KnownReplica:
        """Tell what is known of the replica at this address."""
        link = self._link
        return KnownReplica(
            pool=self._pool,
            replica_id=self._replica_id,
            address=address,
            link=link.id if link else 0,
            hello=link.peer if link else None,
            ping=self._ping if link else None,
        )

    def attached(self, link: Link) -> None:
        """Make a replica known to the core, unless it is not the one that discovery named."""
        try:
            event = replica_attached(link.id, link.peer)
            if (event.pool, event.replica_id) != (self._pool, self._replica_id):
                text = f"{event.replica_id} of pool {event.pool} answers for {self._replica_id}"
                raise MeshError(error_for("protocol_error", text))
        except MeshError as error:
            self._refuse(link, error)
            return
        self._link, self._refused = link, ""
        self._driver.connect(link.id, _Outlet(link, self._submits))
        self._driver.post(event)
        _log.info("replica_attached", extra=self._names())

    def received(self, link: Link, received: Received) -> None:
        """Step what one message of a replica brought."""
        if self._link is not link:
            return
        if received.rows:
            self._driver.post(RowsArrived(link=link.id, rows=received.rows))
        try:
            for frame in received.frames:
                if frame.HasField("ping"):
                    self._ping = frame.ping
                event = worker_event(link.id, frame)
                if event is not None:
                    self._driver.post(event)
        except MeshError as error:
            self._refuse(link, error)
            return
        if received.grants:
            self._driver.post(InputCreditGranted(link=link.id, grants=received.grants))

    def lost(self, link: Link, reason: str) -> None:
        """Tell the core that a replica is gone, with its attempts."""
        if self._link is link:
            self._link = self._ping = None
            self._driver.disconnect(link.id)
            self._driver.post(ReplicaLost(link=link.id))
            _log.info("replica_lost", extra=self._names() | {"reason": reason})
        self._gone()

    def close(self, reason: str) -> None:
        """Close the link after what waits on it was written."""
        if self._link is not None:
            self._link.close(reason)

    def _refuse(self, link: Link, error: MeshError) -> None:
        if error.info.message != self._refused:  # Who is wrong all day is news once.
            self._refused = error.info.message
            _log.error("replica_refused", extra=self._names() | {"reason": self._refused})
        link.close(error.info.message)

    def _names(self) -> dict[str, str]:
        return {"pool": self._pool, "replica_id": self._replica_id}
