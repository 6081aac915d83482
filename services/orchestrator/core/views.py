"""What the core shows of itself; reading it changes nothing."""

from typing import TYPE_CHECKING

import msgspec

from services.orchestrator.core.replicas import Replica, WorkerState
from stagemesh.outcome import Terminal

if TYPE_CHECKING:
    from services.orchestrator.core.request import OpenRequest

__all__ = ["AttemptView", "Counts", "ReplicaView", "RequestView", "view_replica", "view_request"]


class AttemptView(msgspec.Struct, frozen=True, kw_only=True):
    """How one attempt stands; `number` is 0 while it has never been placed."""

    stage: str
    role: int
    number: int
    state: str
    replica_id: str


class RequestView(msgspec.Struct, frozen=True, kw_only=True):
    """How a request stands; `terminal` is set once it is done."""

    request_id: str
    model: str
    state: str
    age_s: float
    attempts: tuple[AttemptView, ...] = ()
    terminal: Terminal | None = None


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
            )
            for group in request.groups
            for attempt in group.attempts
        ),
        terminal=terminal,
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
