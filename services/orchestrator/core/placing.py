"""Placing: which group gets which engine slots.

A request stays with one replica of a pool as long as that one can be used, and waits for it while
it is busy. A group is placed whole.
"""

from math import inf
from typing import Final

from services.orchestrator.core.ending import fail, fail_or_reject
from services.orchestrator.core.moves import ATTEMPT_MOVES
from services.orchestrator.core.replicas import Replica, ReplicaPool
from services.orchestrator.core.request import Attempt, Group, Standing
from services.orchestrator.core.state import State
from services.orchestrator.core.submitting import submit
from services.orchestrator.core.tickets import Ticket
from services.orchestrator.core.timers import Due
from stagemesh.link.core import Meter
from stagemesh.outcome import ErrorInfo, error_for

__all__ = ["pend", "pend_again", "placement_due", "pump", "redrive", "requeue", "watch"]

_GOLDEN: Final = 0.6180339887498949


def pend(state: State, group: Group) -> None:
    """Let a group want engine slots."""
    _make_pending(state, group)
    _enqueue(state, group)


def pend_again(state: State, group: Group) -> None:
    """Let a group that was refused want slots elsewhere, or after a back-off, for `redrive_s`."""
    request = group.request
    group.refusals += 1
    if group.refused_s is None:
        group.refused_s = state.now_s
    pool = state.pool_of(group)
    if pool.closed:
        group.refused_s = None  # It is opened again by whom it was closed, and the group waits.
    elif group.refusal and state.now_s - group.refused_s >= state.settings.redrive_s:
        fail_or_reject(state, request, group.refusal)
        return
    home = request.homes.get(pool.name)
    if home is not None and not any(
        attempt.placed_on is home for other in request.groups for attempt in other.live()
    ):
        del request.homes[pool.name]
    _make_pending(state, group)
    if not pool.ready or any(replica.link not in group.avoid for replica in pool.usable):
        _enqueue(state, group)
    else:
        group.avoid.clear()
        group.timer = state.arm(_back_off_s(state, group), Due.PLACEMENT, group)


def redrive(state: State, group: Group, *, free: bool) -> bool:
    """Let a lost group want slots elsewhere, soon; False if the pool's retry budget is spent."""
    wait_s = 0.0
    if not free:
        budget_s = state.pool_of(group).budget.take(state.now_s)
        if budget_s is None:
            fail(state, group.request, group.cause or _no_replica(group))
            return False
        wait_s = max(budget_s, _jitter_s(state, group))
    state.counts.redrives += 1
    state.timers.cancel(group.timer)
    group.timer = None
    _make_pending(state, group)
    if wait_s:
        group.timer = state.arm(wait_s, Due.PLACEMENT, group)
    else:
        _enqueue(state, group)
    return True


def placement_due(state: State, group: Group) -> None:
    """End a back-off, or the wait for a replica that can be used."""
    group.timer = None
    if group.standing is not Standing.PENDING:
        return
    pool = state.pool_of(group)
    if group.ticket is None:
        _enqueue(state, group)
    elif not pool.ready:
        waits_since_s = max(pool.empty_since_s, group.pending_s)
        if state.now_s >= waits_since_s + state.settings.redrive_s:
            fail_or_reject(state, group.request, _no_replica(group))
        else:
            watch(state, group)


def watch(state: State, group: Group) -> None:
    """Give a group's pool `redrive_s` to have a replica that can be used; one closed has longer."""
    if group.timer is None and state.pool_of(group).empty_since_s != inf:
        since_s = max(state.pool_of(group).empty_since_s, group.pending_s)
        group.timer = state.timers.at(since_s + state.settings.redrive_s, Due.PLACEMENT, group)


def requeue(pool: ReplicaPool, replica: Replica) -> None:
    """Let those who wait for a replica wait for any, now that it cannot be used."""
    for ticket in replica.tickets.drain():
        pool.tickets.push(ticket)


def pump(state: State, pool: ReplicaPool) -> None:
    """Place whoever can be placed, in order."""
    while _place_next(state, pool):
        pass


def _place_next(state: State, pool: ReplicaPool) -> bool:
    ticket = _first_homeless(pool)
    if ticket is not None:
        replica = _choose(state, pool, ticket)
        if replica is not None:
            submit(state, ticket.group, replica)
            return True
        if not ticket.valid:
            return True  # It was given up; the next one may have better luck.
    for replica in pool.usable:
        own = replica.tickets.head()
        if own is None or own.group.wanted > replica.free:
            continue
        if ticket is None or not _goes_before(ticket, own, replica):
            submit(state, own.group, replica)
            return True
    return False


def _first_homeless(pool: ReplicaPool) -> Ticket | None:
    """Give the first group that may go anywhere; send those before it to their replica's queue."""
    while (ticket := pool.tickets.head()) is not None:
        home = ticket.group.request.homes.get(pool.name)
        if home is None or not home.usable or home.link in ticket.group.avoid:
            return ticket
        pool.tickets.pop()
        home.tickets.push(ticket)
    return None


def _make_pending(state: State, group: Group) -> None:
    """Make attempts for the roles that nobody works on and that have not given everything."""
    group.standing = Standing.PENDING
    group.pending_s = state.now_s
    roles = group.idle_roles
    kept = [attempt for attempt in group.attempts if attempt.role not in roles]
    wanted = [
        Attempt(
            group=group,
            role=role,
            number=0,
            state=ATTEMPT_MOVES.start,
            meter=Meter(state.settings.window_units, state.settings.window_bytes),
        )
        for role in roles
    ]
    group.attempts = (*kept, *wanted)


def _enqueue(state: State, group: Group) -> None:
    pool = state.pool_of(group)
    group.ticket = Ticket(group.key, group)
    pool.tickets.push(group.ticket)
    state.roomy[pool] = None
    if not pool.ready:
        watch(state, group)


def _back_off_s(state: State, group: Group) -> float:
    """Double with every round; a share of it, spread over requests, is left out."""
    settings = state.settings
    whole_s = min(settings.back_off_s * 2.0 ** (group.refusals - 1), settings.back_off_s_max)
    return whole_s * (1 - (group.request.number * _GOLDEN) % 1 / 2)


def _jitter_s(state: State, group: Group) -> float:
    """Spread the re-drives that one loss brings; the room for it doubles with every loss."""
    settings = state.settings
    whole_s = min(settings.back_off_s * 2.0 ** (group.losses - 1), settings.back_off_s_max)
    return whole_s * ((group.request.number * _GOLDEN) % 1)


def _choose(state: State, pool: ReplicaPool, ticket: Ticket) -> Replica | None:
    """Choose a replica for a group that has no home, unless all are busy for now."""
    group, slots = ticket.group, ticket.group.wanted
    usable = pool.usable
    if usable and all(replica.card.slots < slots for replica in usable):
        fail_or_reject(state, group.request, _too_large(group))
        return None
    avoid = group.avoid if any(r.link not in group.avoid for r in usable) else frozenset()
    room = [
        replica
        for replica in usable
        if replica.link not in avoid
        and replica.free >= slots
        and not ((own := replica.tickets.head()) is not None and own < ticket)
    ]
    return min(room, key=lambda replica: replica.load, default=None)


def _no_replica(group: Group) -> ErrorInfo:
    pool = group.stage.pool
    if group.resumes:
        message = f"No replica of pool {pool} can take over."
        return error_for("replica_lost", message, stage=group.stage.name, pool=pool)
    message = f"No replica of pool {pool} can be used."
    return error_for("no_replica", message, stage=group.stage.name, pool=pool)


def _too_large(group: Group) -> ErrorInfo:
    stage, slots = group.stage, group.wanted
    message = (
        f"{stage.name} needs {slots} engine slots at once; no replica of {stage.pool} has so many."
    )
    return error_for("unsupported_value", message, stage=stage.name, pool=stage.pool)


def _goes_before(ticket: Ticket, own: Ticket, replica: Replica) -> bool:
    """Whether a group without a home has the better claim on a replica that it could use."""
    group = ticket.group
    able = replica.link not in group.avoid and replica.card.slots >= group.wanted
    return able and ticket < own
