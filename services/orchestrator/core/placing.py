"""Placing: which group gets which engine slots.

A request stays with one replica of a pool as long as that one can be used, and waits for it while
it is busy. A group is placed whole, unless its pool lets companions run apart.
"""

from math import inf
from typing import Final

from services.orchestrator.core.choosing import least_loaded, prefix_affinity, round_robin
from services.orchestrator.core.ending import fail, fail_or_reject
from services.orchestrator.core.history import Kind
from services.orchestrator.core.moves import ATTEMPT_MOVES, RequestState
from services.orchestrator.core.replicas import Replica, ReplicaPool
from services.orchestrator.core.request import Attempt, Group, OpenRequest, Standing
from services.orchestrator.core.state import State
from services.orchestrator.core.submitting import submit
from services.orchestrator.core.tickets import Ticket
from services.orchestrator.core.timers import Due
from stagemesh.link.core import Meter
from stagemesh.outcome import ErrorInfo, error_for
from stagemesh.pipeline import ReplicaChoice

__all__ = ["pend", "pend_again", "placement_due", "pump", "redrive", "requeue", "watch"]

_GOLDEN: Final = 0.6180339887498949


def pend(state: State, group: Group) -> None:
    """Let a group want engine slots."""
    _make_pending(state, group)
    state.note(group.request, Kind.PENDING, stage=group.stage.name)
    _enqueue(state, group)


def pend_again(state: State, group: Group) -> None:
    """Let a group that was refused want slots elsewhere, or after a back-off, for `redrive_s`."""
    request = group.request
    state.timers.cancel(group.timer)
    group.timer = None
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
        _leave_home(pool, request)
    _make_pending(state, group)
    cause = group.refusal.message if group.refusal else ""
    state.note(request, Kind.PENDING, stage=group.stage.name, cause=cause)
    if not pool.ready or _elsewhere(pool, group):
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
    cause = group.cause.message if group.cause else ""
    stage = group.stage.name
    state.note(group.request, Kind.REDRIVEN, stage=stage, cause=cause, seconds=wait_s)
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
    elif group.resumes:
        if _is_stuck(pool, group):
            fail(state, group.request, group.cause or _no_replica(group))
        else:
            group.avoid.clear()
            state.roomy[pool] = None
            group.timer = state.arm(state.settings.redrive_s, Due.PLACEMENT, group)


def watch(state: State, group: Group) -> None:
    """Give a group's pool `redrive_s` to have a replica that can be used, or a slot to come free.

    A slot for who goes on after a loss may be held by those who wait for what it makes. A pool that
    operators closed has longer.
    """
    pool = state.pool_of(group)
    if group.timer is None and (pool.ready or pool.empty_since_s != inf):
        since_s = group.pending_s if pool.ready else max(pool.empty_since_s, group.pending_s)
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
    """Place the first who can be placed; False if nobody can."""
    before: list[Ticket] = []
    placed = False
    while not placed and (ticket := _first_homeless(pool)) is not None:
        replica = _choose(state, pool, ticket)
        if replica is not None:
            _submit(state, ticket.group, replica)
        # One that was given up counts as placed: the next one may have better luck.
        placed = replica is not None or not ticket.valid
        if not placed:
            before.append(ticket)
            if not ticket.group.avoid:
                break
            pool.tickets.pop()  # It waits for others than those that the next one may use.
    for ticket in before:
        if ticket.group.avoid:
            pool.tickets.push(ticket)
    return placed or _place_own(state, pool, before)


def _place_own(state: State, pool: ReplicaPool, before: list[Ticket]) -> bool:
    """Place the first who waits for a replica of its own that nobody before it has a claim on."""
    for replica in pool.usable:
        own = replica.tickets.head()
        if own is None or own.group.wanted_at_once > replica.free:
            continue
        if not any(_goes_before(ticket, own, replica) for ticket in before):
            _submit(state, own.group, replica)
            return True
    return False


def _submit(state: State, group: Group, replica: Replica) -> None:
    """Submit a group, or as much of it as there is room for where it may run apart."""
    pool = replica.pool
    home = group.request.homes.get(pool.name)
    submit(state, group, replica)
    if home is not None and group.request.homes[pool.name] is not home:
        _leave_home(pool, group.request)
    if group.standing is Standing.LIVE and group.wanted:
        group.move(Standing.PENDING)
        group.want_inputs()
        _enqueue(state, group)


def _first_homeless(pool: ReplicaPool) -> Ticket | None:
    """Give the first group that may go anywhere; send those before it to their replica's queue."""
    while (ticket := pool.tickets.head()) is not None:
        home = _home(pool, ticket.group)
        if home is None:
            return ticket
        pool.tickets.pop()
        home.tickets.push(ticket)
    return None


def _home(pool: ReplicaPool, group: Group) -> Replica | None:
    """Give the replica that a group waits for, while it can be used and has not refused it."""
    home = group.request.homes.get(pool.name)
    if home is None or not home.usable or home.link in group.avoid:
        return None
    return None if group.stage.apart and group.live() else home


def _leave_home(pool: ReplicaPool, request: OpenRequest) -> None:
    """Let whatever of a request waits for its home wait for any: it has another one, or none."""
    for group in request.groups:
        if group.ticket is not None and group.stage.pool == pool.name:
            group.ticket = Ticket(group.key, group)
            pool.tickets.push(group.ticket)


def _elsewhere(pool: ReplicaPool, group: Group) -> bool:
    """Whether a group should wait for others than the replicas that it avoids.

    One that was lost waits for them even while they are busy: it was lost where it avoids to go.
    """
    return any(
        replica.link not in group.avoid and (group.resumes or replica.free >= group.wanted_at_once)
        for replica in pool.usable
    )


def _make_pending(state: State, group: Group) -> None:
    """Make attempts for the roles that nobody works on and that have not given everything."""
    group.move(Standing.PENDING)
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
    if group.request.state is not RequestState.RUNNING:
        return  # It starts nothing, and comes here again when its next gateway has come.
    pool = state.pool_of(group)
    group.ticket = Ticket(group.key, group)
    home = _home(pool, group)
    (pool if home is None else home).tickets.push(group.ticket)
    state.roomy[pool] = None
    if group.resumes or not pool.ready:
        watch(state, group)


def _is_stuck(pool: ReplicaPool, group: Group) -> bool:
    """Whether slots would not do even if everything ended that does not wait for a lost group."""
    return all(
        replica.slots - sum(map(_waits_for_lost, replica.attempts.values())) < group.wanted_at_once
        for replica in pool.usable
    )


def _waits_for_lost(attempt: Attempt) -> bool:
    """Whether an attempt has an input that nobody makes at present."""
    request = attempt.group.request
    open_lanes = {lane.number for lane in attempt.group.sources if not lane.closed}
    return attempt.running and any(
        one.resumes
        and one.standing in (Standing.LOST, Standing.PENDING)
        and any(lane.number in open_lanes for lane in one.lanes)
        for one in request.groups
    )


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
    group, slots = ticket.group, ticket.group.wanted_at_once
    usable = pool.usable
    if usable and all(replica.card.slots < slots for replica in usable):
        fail_or_reject(state, group.request, _too_large(group))
        return None
    avoid = group.avoid if _elsewhere(pool, group) else frozenset()
    room = [
        replica
        for replica in usable
        if replica.link not in avoid
        and replica.free >= slots
        and not ((own := replica.tickets.head()) is not None and own < ticket)
    ]
    whole = [replica for replica in room if replica.free >= group.wanted]
    return _chosen(pool, group, whole or room, usable)


def _chosen(
    pool: ReplicaPool, group: Group, room: list[Replica], usable: list[Replica]
) -> Replica | None:
    """Choose by the policy of the pool among those that have room now."""
    match pool.choice:
        case ReplicaChoice.LEAST_LOADED:
            chosen = least_loaded(room)
        case ReplicaChoice.PREFIX_AFFINITY:
            chosen = prefix_affinity(room, usable, group.request.prefix, group.wanted_at_once)
        case ReplicaChoice.ROUND_ROBIN:
            chosen = round_robin(room, pool.chosen_last)
    if chosen is not None:
        pool.chosen_last = chosen.replica_id
    return chosen


def _no_replica(group: Group) -> ErrorInfo:
    pool = group.stage.pool
    if group.resumes:
        message = f"No replica of pool {pool} can take over."
        return error_for("replica_lost", message, stage=group.stage.name, pool=pool)
    message = f"No replica of pool {pool} can be used."
    return error_for("no_replica", message, stage=group.stage.name, pool=pool)


def _too_large(group: Group) -> ErrorInfo:
    stage, slots = group.stage, group.wanted_at_once
    message = (
        f"{stage.name} needs {slots} engine slots at once; no replica of {stage.pool} has so many."
    )
    return error_for("unsupported_value", message, stage=stage.name, pool=stage.pool)


def _goes_before(ticket: Ticket, own: Ticket, replica: Replica) -> bool:
    """Whether a group without a home has the better claim on a replica that it could use."""
    group = ticket.group
    able = replica.link not in group.avoid and replica.slots >= group.wanted_at_once
    return able and ticket < own
