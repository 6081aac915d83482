"""Replicas come, report, stall and go."""

from math import inf
from typing import Final

from services.orchestrator.core.attempts import lose_attempt, stall_attempt
from services.orchestrator.core.events import ReplicaAttached, ReplicaReported
from services.orchestrator.core.holding import look
from services.orchestrator.core.placing import requeue, watch
from services.orchestrator.core.replicas import Replica, ReplicaPool, WorkerState
from services.orchestrator.core.request import Attempt, Loss
from services.orchestrator.core.state import State
from services.orchestrator.core.timers import Due
from services.orchestrator.core.wills import obeys, told_otherwise
from stagemesh.control import Gate

__all__ = [
    "attach",
    "availability",
    "changed",
    "list_replica",
    "lose_replica",
    "progressed",
    "report",
    "stall_due",
]

UNLISTED_MAX: Final = 4096


def attach(state: State, event: ReplicaAttached) -> None:
    """Take a replica in; an older link of the same replica gets nothing new."""
    pool = state.pools.get(event.pool)
    if pool is None or event.link in state.replicas:
        return
    for older in pool.replicas:
        if older.replica_id == event.replica_id:
            older.superseded = True
            requeue(pool, older)
    replica = Replica(
        link=event.link,
        pool=pool,
        replica_id=event.replica_id,
        incarnation=event.incarnation,
        card=event.card,
        state=event.state,
        window_units=event.window_units,
        window_bytes=event.window_bytes,
        gate=event.gate,
    )
    replica.obeys = obeys(pool.will, event.gate)
    replica.listed = event.replica_id not in state.unlisted
    replica.shown = replica.seen
    state.changes += 1
    state.replicas[event.link] = replica
    pool.replicas.append(replica)
    pool.card = event.card
    pool.budget.know_replica(event.card.slots)
    changed(state, pool)


def report(state: State, replica: Replica, event: ReplicaReported) -> None:
    """Take a replica's word on its state and load."""
    was_still = replica.still
    replica.state = event.state
    replica.reported(event.load)
    if event.gate is not None and event.gate != replica.gate:
        _gate_moved(state, replica, event.gate)
    if was_still and not replica.still:
        replica.progress_s = state.now_s
        if replica.stall_timer is None:
            replica.stall_timer = state.arm(state.settings.stall_s, Due.STALL, replica)
    if event.state is WorkerState.STALLED:
        _take_away(state, replica)  # It knows better than we whether its engine has work.
    if event.load.steps > replica.steps:
        replica.steps = event.load.steps
        progressed(state, replica)
    availability(state, replica)


def _gate_moved(state: State, replica: Replica, gate: Gate) -> None:
    """Take a replica's word on its gate; if it had obeyed and does no more, somebody undid it."""
    if replica.gate.drained and not gate.drained:
        state.drained.pop(replica.replica_id, None)
    replica.gate = gate
    pool = replica.pool
    if replica.obeys and not obeys(pool.will, gate):
        pool.will = told_otherwise(pool.will, gate)
    replica.obeys = not replica.asked and obeys(pool.will, gate)


def list_replica(state: State, replica_id: str, *, listed: bool) -> None:
    """Note whether discovery names a replica; an unlisted one keeps the attempts that it has."""
    state.unlisted.pop(replica_id, None)
    if not listed:
        state.unlisted[replica_id] = None
        if len(state.unlisted) > UNLISTED_MAX:
            state.unlisted.popitem(last=False)
    state.changes += 1
    for replica in state.replicas.values():
        if replica.replica_id == replica_id:
            replica.listed = listed
            availability(state, replica)


def lose_replica(state: State, link: int) -> None:
    """Take note that a worker link broke: everything on it is over."""
    replica = state.replicas.pop(link, None)
    if replica is None:
        return
    replica.lost = True
    state.changes += 1
    replica.pool.replicas.remove(replica)
    state.timers.cancel(replica.stall_timer)
    replica.leftovers.clear()
    for attempt in list(replica.attempts.values()):
        lose_attempt(state, attempt, Loss.CRASH)
    availability(state, replica)


def progressed(state: State, replica: Replica) -> None:
    """Note that a replica's engine has moved."""
    replica.progress_s = state.now_s
    if replica.stalled:
        replica.stalled = False
        replica.stall_timer = state.arm(state.settings.stall_s, Due.STALL, replica)
        availability(state, replica)


def stall_due(state: State, replica: Replica) -> None:
    """Take a replica out of rotation that has work and has not moved for `stall_s`.

    What it has is given to others; it holds its engine slots until it answers.
    """
    replica.stall_timer = None
    if not replica.in_flight or replica.still:
        return  # What an operator has frozen is looked at again once it goes on.
    if not _has_work(state, replica):
        replica.progress_s = state.now_s
    due_s = replica.progress_s + state.settings.stall_s
    if state.now_s < due_s:
        replica.stall_timer = state.timers.at(due_s, Due.STALL, replica)
    else:
        replica.stalled = True
        _take_away(state, replica)
        availability(state, replica)


def _take_away(state: State, replica: Replica) -> None:
    """Give to others what a replica that stands still has."""
    for attempt in list(replica.attempts.values()):
        stall_attempt(state, attempt)


def _has_work(state: State, replica: Replica) -> bool:
    """Whether a replica has anything that waits for nobody: not for input, and not for credit."""
    return bool(replica.leftovers) or not all(
        attempt.running and _waits(state, attempt) for attempt in replica.attempts.values()
    )


def _waits(state: State, attempt: Attempt) -> bool:
    """Whether an attempt may be waiting: it has got all there is of an input, or little credit."""
    if any(feed.starved for feed in attempt.feeds.values()):
        return True
    units = size = 0
    for lane in attempt.lanes.values():
        lane_units, lane_bytes = lane.unsettled
        units += lane_units
        size += lane_bytes
    return 2 * units >= state.settings.window_units or 2 * size >= state.settings.window_bytes


def availability(state: State, replica: Replica) -> None:
    """Act on what a replica can be used for now."""
    if replica.seen != replica.shown:
        replica.shown = replica.seen
        state.changes += 1
    if not replica.usable:
        requeue(replica.pool, replica)
    changed(state, replica.pool)


def changed(state: State, pool: ReplicaPool) -> None:
    """Act on a pool whose usable replicas may be others than before."""
    state.roomy[pool] = None
    was_closed, pool.was_closed = pool.was_closed, pool.closed
    if was_closed and not pool.was_closed:
        look(state)
        for ticket in pool.tickets.valid():
            if ticket.group.resumes:
                watch(state, ticket.group)
    if pool.ready or pool.was_closed:
        pool.empty_since_s = inf
    elif pool.empty_since_s == inf:
        pool.empty_since_s = state.now_s
        for ticket in pool.tickets.valid():
            watch(state, ticket.group)
    state.publish()
