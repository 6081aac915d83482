"""What the core shows of itself; reading it changes nothing."""

import heapq
from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from services.orchestrator.core.history import Entry
from services.orchestrator.core.moves import AttemptState
from services.orchestrator.core.replicas import Replica, WorkerState
from stagemesh.outcome import Terminal

if TYPE_CHECKING:
    from services.orchestrator.core.request import OpenRequest

__all__ = [
    "AttemptView",
    "Counts",
    "ReplicaView",
    "RequestQuery",
    "RequestView",
    "list_requests",
    "view_replica",
    "view_request",
]


class AttemptView(msgspec.Struct, frozen=True, kw_only=True):
    """How one attempt stands; `number` is 0 while it has never been placed."""

    stage: str
    role: int
    number: int
    state: str
    replica_id: str
    unconfirmed: bool = False
    """It was told to stop, and its worker has not answered, or had not when the request ended."""


class RequestView(msgspec.Struct, frozen=True, kw_only=True):
    """How a request stands; `terminal` is set once it is done.

    `serial` counts what was opened here, and `opened_s` is on the core's clock.
    """

    request_id: str
    model: str
    state: str
    age_s: float
    attempts: tuple[AttemptView, ...] = ()
    terminal: Terminal | None = None
    tenant: str = ""
    label: str = ""
    epoch: int = 0
    serial: int = 0
    opened_s: float = 0.0
    entries: tuple[Entry, ...] = ()
    entries_dropped: int = 0

    @property
    def unconfirmed(self) -> tuple[str, ...]:
        """The stages that were told to stop and have not answered, or had not at the end."""
        stages = [one.stage for one in self.attempts if one.unconfirmed]
        return tuple(dict.fromkeys(stages))


class RequestQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which requests to show: of this tenant, and where they are given of this state and model.

    Only those before the serial number `before` count, if it is not 0; at most `count` are shown.
    """

    tenant: str
    count: int
    state: str = ""
    model: str = ""
    before: int = 0


class ReplicaView(msgspec.Struct, frozen=True, kw_only=True):
    """How a replica stands; `in_flight` counts the engine slots that this orchestrator holds."""

    link: int
    pool: str
    replica_id: str
    incarnation: int
    state: WorkerState
    usable: bool
    listed: bool
    slots: int
    in_flight: int


class Counts(msgspec.Struct, kw_only=True):
    """What has happened since the start, for metrics."""

    control_answers_late: int = 0
    """Answers to control calls that nobody waits for."""
    rows_repeated: int = 0
    """Wholly below the cursor of their lane."""
    rows_late: int = 0
    """For an attempt that is over, or never was."""
    protocol_errors: int = 0
    refusals: int = 0
    opens_ignored: int = 0
    """For a link that is gone, or a slot that is taken."""
    redrives: int = 0
    """Stages that were lost and given to a replica again."""
    takeovers: int = 0
    """Requests that another owner had."""
    reattached: int = 0
    """Detachable requests that another gateway took over."""
    inputs_late: int = 0
    """Pieces of a client's input for a request that is over, or never was."""
    hand_backs: int = 0
    """Requests that were given back to their gateway."""


def view_request(
    request: "OpenRequest", now_s: float, terminal: Terminal | None = None
) -> RequestView:
    """Show a request."""
    return RequestView(
        request_id=request.request_id,
        model=request.plan.pipeline.name,
        state=request.state.name,
        age_s=now_s - request.opened_s,
        attempts=tuple(
            AttemptView(
                stage=group.stage.name,
                role=attempt.role.role,
                number=attempt.number,
                state=attempt.state.name,
                replica_id=attempt.placed_on.replica_id if attempt.placed_on else "",
                unconfirmed=attempt.unanswered or attempt.state is AttemptState.STOPPING,
            )
            for group in request.groups
            for attempt in group.attempts
        ),
        terminal=terminal,
        tenant=request.tenant,
        label=request.label,
        epoch=request.epoch,
        serial=request.serial,
        opened_s=request.opened_s,
        entries=request.history.entries,
        entries_dropped=request.history.dropped,
    )


def list_requests(
    running: "Iterable[OpenRequest]",
    ended: Iterable[RequestView],
    query: RequestQuery,
    now_s: float,
) -> list[RequestView]:
    """Show the requests that match a query, those opened last first."""
    found: list[OpenRequest | RequestView] = [
        one
        for one in running
        if _matches(query, one.tenant, one.plan.pipeline.name, one.state.name, one.serial)
    ]
    found += [one for one in ended if _matches(query, one.tenant, one.model, one.state, one.serial)]
    newest = heapq.nlargest(query.count, found, key=lambda one: one.serial)
    return [one if isinstance(one, RequestView) else view_request(one, now_s) for one in newest]


def _matches(query: RequestQuery, tenant: str, model: str, state: str, serial: int) -> bool:
    return (
        tenant == query.tenant
        and query.model in ("", model)
        and query.state in ("", state)
        and not 0 < query.before <= serial
    )


def view_replica(replica: Replica) -> ReplicaView:
    """Show a replica."""
    return ReplicaView(
        link=replica.link,
        pool=replica.pool.name,
        replica_id=replica.replica_id,
        incarnation=replica.incarnation,
        state=WorkerState.STALLED if replica.stalled else replica.state,
        usable=replica.usable,
        listed=replica.listed,
        slots=replica.card.slots,
        in_flight=replica.in_flight,
    )
