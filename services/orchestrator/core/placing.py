"""Placing: which group gets which engine slots.

A request stays with one replica of a pool as long as that one can be used, and waits for it while
it is busy. A group is placed whole; choices of one stage that fit go in one submission.
"""

from typing import Final

from services.orchestrator.core.credit import pump_feed
from services.orchestrator.core.effects import RoleOrder, SubmitAttempts
from services.orchestrator.core.ending import fail_or_reject
from services.orchestrator.core.flow import Feed
from services.orchestrator.core.moves import ATTEMPT_MOVES, AttemptState
from services.orchestrator.core.replicas import Replica, ReplicaPool
from services.orchestrator.core.request import Attempt, Group, OpenRequest, Standing
from services.orchestrator.core.state import State
from services.orchestrator.core.tickets import Ticket
from services.orchestrator.core.timers import Due
from stagemesh.link.core import Meter, Window
from stagemesh.outcome import ErrorInfo, error_for
from stagemesh.pipeline import EdgeMode

__all__ = ["pend", "pend_again", "placement_due", "pump", "requeue", "watch"]

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
    if group.refusal and state.now_s - group.refused_s >= state.settings.redrive_s:
        fail_or_reject(state, request, group.refusal)
        return
    pool = state.pool_of(group)
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
    """Give a group's pool `redrive_s` to have a replica that can be used."""
    if group.timer is None:
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
            _place(state, ticket.group, replica)
            return True
        if not ticket.valid:
            return True  # It was given up; the next one may have better luck.
    for replica in pool.usable:
        own = replica.tickets.head()
        if own is None or own.group.plan.slots > replica.free:
            continue
        if ticket is None or not _goes_before(ticket, own, replica):
            _place(state, own.group, replica)
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
    group.standing = Standing.PENDING
    group.pending_s = state.now_s
    group.attempts = tuple(
        Attempt(
            group=group,
            role=role,
            number=0,
            state=ATTEMPT_MOVES.start,
            meter=Meter(state.settings.window_units, state.settings.window_bytes),
        )
        for role in group.plan.roles
    )


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


def _choose(state: State, pool: ReplicaPool, ticket: Ticket) -> Replica | None:
    """Choose a replica for a group that has no home, unless all are busy for now."""
    group, slots = ticket.group, ticket.group.plan.slots
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
    message = f"No replica of pool {pool} can be used."
    return error_for("no_replica", message, stage=group.stage.name, pool=pool)


def _too_large(group: Group) -> ErrorInfo:
    stage, slots = group.stage, group.plan.slots
    message = (
        f"{stage.name} needs {slots} engine slots at once; no replica of {stage.pool} has so many."
    )
    return error_for("unsupported_value", message, stage=stage.name, pool=stage.pool)


def _goes_before(ticket: Ticket, own: Ticket, replica: Replica) -> bool:
    """Whether a group without a home has the better claim on a replica that it could use."""
    group = ticket.group
    able = replica.link not in group.avoid and replica.card.slots >= group.plan.slots
    return able and ticket < own


def _place(state: State, first: Group, replica: Replica) -> None:
    """Submit a group, and those other choices of its stage that fit beside it."""
    request = first.request
    groups = [first]
    free = replica.free - first.plan.slots
    for other in request.groups:
        beside = other is not first and other.stage is first.stage and other.ticket is not None
        if beside and other.plan.slots <= free and replica.link not in other.avoid:
            groups.append(other)
            free -= other.plan.slots
    request.homes[replica.pool.name] = replica
    if not replica.in_flight:
        replica.progress_s = state.now_s
    number = 1 + max(group.numbers_used for group in groups)
    attempts = [attempt for group in groups for attempt in _bind(state, group, replica, number)]
    state.orders.to_worker(_submission(state, request, groups, attempts, number))
    for group in groups:
        _feed(state, group)
    if replica.stall_timer is None:
        replica.stall_timer = state.arm(state.settings.stall_s, Due.STALL, replica)


def _bind(state: State, group: Group, replica: Replica, number: int) -> tuple[Attempt, ...]:
    request = group.request
    group.ticket = None
    state.timers.cancel(group.timer)
    group.timer = None
    group.standing = Standing.LIVE
    group.numbers_used = number
    for attempt in group.attempts:
        attempt.move(AttemptState.SUBMITTED)
        attempt.number = number
        attempt.placed_on = replica
        attempt.slot = replica.mint.next()
        attempt.open_lanes = set(attempt.role.lanes)
        attempt.lanes = {lane: request.lanes[lane] for lane in attempt.role.lanes}
        for lane in attempt.lanes.values():
            lane.attempt = attempt
        replica.attempts[attempt.slot] = attempt
        request.live += 1
    return group.attempts


def _submission(
    state: State,
    request: OpenRequest,
    groups: list[Group],
    attempts: list[Attempt],
    number: int,
) -> SubmitAttempts:
    return SubmitAttempts(
        link=attempts[0].replica.link,
        request_id=request.request_id,
        epoch=request.epoch,
        attempt=number,
        model=request.plan.pipeline.name,
        stage=groups[0].stage.index,
        roles=tuple(
            RoleOrder(
                slot=attempt.slot,
                role=attempt.role.role,
                companion=attempt.role.companion,
                lanes=attempt.role.lanes,
            )
            for attempt in attempts
        ),
        sources=tuple(source for group in groups for source in group.plan.sources),
        deadline_left_s=max(0.0, request.deadline_s - state.now_s),
        body=request.body,
    )


def _feed(state: State, group: Group) -> None:
    """Give a group that was just submitted what is there of its inputs."""
    request = group.request
    only_stream = group.plan.stream_inputs == 1
    group.unfed = False
    for source, lane in zip(group.plan.sources, group.sources, strict=True):
        lane.unfed -= 1
        for attempt in group.attempts:
            replica = attempt.replica
            feed = Feed(
                lane=lane,
                link=replica.link,
                slot=attempt.slot,
                window=Window(replica.window_units, replica.window_bytes),
                join_units_max=max(1, replica.window_units // 2),
                paces=only_stream and source.mode is EdgeMode.STREAM,
                next=lane.base,
            )
            attempt.feeds[lane.number] = feed
            lane.feeds.append(feed)
        for attempt in group.attempts:
            pump_feed(state, attempt.feeds[lane.number], request)
