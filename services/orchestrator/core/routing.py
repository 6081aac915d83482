"""Routing: what a request does next. Only here does a stage get work (ORCH-INV-001).

`_recover` is the one procedure for everything that was begun and that nobody works on: its replica
was lost or stands still, it was handed back, its payloads are gone, or another owner had it.
"""

from typing import Final

import msgspec

from services.orchestrator.core.ending import complete, drop_group, fail, finish_stopped, stop
from services.orchestrator.core.flow import Lane
from services.orchestrator.core.moves import AttemptState, RequestState
from services.orchestrator.core.outputs import end_segments, watch_client
from services.orchestrator.core.placing import pend, redrive
from services.orchestrator.core.plan import RolePlan
from services.orchestrator.core.request import Group, Loss, OpenRequest, Standing, Verdict
from services.orchestrator.core.resuming import prepare
from services.orchestrator.core.starting import can_start, wants_more, was_last
from services.orchestrator.core.state import State
from services.orchestrator.core.streaming import hand_on, rest
from services.orchestrator.core.timers import Due
from stagemesh.outcome import ErrorInfo, Outcome, error_for

__all__ = ["advance", "join_due"]

_FREE: Final = frozenset({Loss.HANDED_BACK, Loss.INPUT})
_CRASHES_MAX: Final = 2
"""So many replicas lost under a stage that has not moved: it is the request's fault."""


def advance(state: State, request: OpenRequest) -> None:
    """Drop what nobody needs, start what can start, and end the request when all is given.

    It is right to call this at any time: it changes nothing where nothing is to be done.
    """
    if request.state is RequestState.STOPPING and not request.live:
        finish_stopped(state, request)
    if request.state is not RequestState.RUNNING:
        return
    _drop_unneeded(state, request)
    intake = request.intake
    if (intake is None or hand_on(state, request, intake)) and not _start(state, request):
        return
    if intake is not None:
        rest(state, request, intake)
    if not request.lanes_left and not request.held:
        if request.standby:
            watch_client(state, request)  # Until it is confirmed that the gateway has all of it.
        else:
            _end(state, request)


def _start(state: State, request: OpenRequest) -> bool:
    """Let those groups want slots that can begin or go on; False if the request had to fail."""
    for group in request.groups:
        _mind_companions(state, group)
        if group.standing is Standing.LOST:
            if not _recover(state, group):
                return False
        elif group.standing is Standing.WAITING:
            if can_start(group):
                pend(state, group)
            elif group.plan.segmented and was_last(group):
                end_segments(state, group)
    return True


def join_due(state: State, group: Group) -> None:
    """End a request of which a companion is silent, while what it is a companion of has ended."""
    group.join_timer = None
    late = next((role for role in group.plan.roles[1:] if not _has_ended(group, role)), None)
    if late is None:
        return  # It ended while its conversation had no turn.
    stage = group.stage
    error = error_for(
        "deadline_exceeded",
        f"Companion {late.companion}: {stage.name} itself ended {stage.join_s:g} s ago.",
        stage=stage.name,
        pool=stage.pool,
    )
    holder = next((one.placed_on for one in group.attempts if one.role is late), None)
    if holder is not None:
        error = msgspec.structs.replace(error, replica_id=holder.replica_id)
    stop(state, group.request, Verdict(Outcome.DEADLINE_EXCEEDED, error), "deadline")


def _mind_companions(state: State, group: Group) -> None:
    """Give companions `join_s` from when the choice that they belong to has ended.

    The time runs on where one of them is lost.
    """
    if len(group.plan.roles) == 1:
        return
    choice, *companions = (_has_ended(group, role) for role in group.plan.roles)
    if group.standing is Standing.OVER or not choice or all(companions):
        state.timers.cancel(group.join_timer)
        group.join_timer = None
    elif group.join_timer is None:
        group.join_timer = state.arm(group.stage.join_s, Due.JOIN, group)


def _has_ended(group: Group, role: RolePlan) -> bool:
    return all(group.request.lanes[number].cursor.ended for number in role.lanes)


def _recover(state: State, group: Group) -> bool:
    """Let a lost group go on as its contract allows; False if its request had to fail."""
    if any(attempt.state is AttemptState.STOPPING for attempt in group.attempts):
        return True  # Some of it was refused; what was told to stop still holds its slots.
    loss, group.loss = group.loss, None
    spent = None if loss is None else _count_loss(state, group, loss)
    if spent is not None:
        fail(state, group.request, spent)
        return False
    if loss is not None:
        group.free = loss in _FREE
    card = group.card or state.pool_of(group).card
    if card is not None and not prepare(state, group, card):
        return False
    return not can_start(group) or redrive(state, group, free=group.free)


def _count_loss(state: State, group: Group, loss: Loss) -> ErrorInfo | None:
    """Count a loss; give the cause if the group has had enough of them."""
    if loss in _FREE:
        return None
    if any(count >= _CRASHES_MAX for count, _ in group.crashes.values()):
        return error_for(
            "engine_error",
            f"{_CRASHES_MAX} replicas were lost with it at the same point.",
            stage=group.stage.name,
            pool=group.stage.pool,
        )
    group.losses += 1
    return group.cause if group.losses >= state.settings.attempts_max else None


def _drop_unneeded(state: State, request: OpenRequest) -> None:
    """End every group that feeds neither the client nor a stage that is needed."""
    needed: set[Group] = set()
    readers = request.plan.readers
    for group in reversed(request.groups):
        if group.standing is Standing.OVER:
            continue
        if any(
            (lane.visible and not lane.cursor.ended)
            or any(
                request.groups[at] in needed and _wants(request.groups[at], lane)
                for at in readers.get(lane.number, ())
            )
            for lane in group.lanes
        ):
            needed.add(group)
        else:
            drop_group(state, group, "not needed any more")


def _wants(reader: Group, lane: Lane) -> bool:
    """Whether a group still has to be sent something of a lane."""
    if reader.standing is not Standing.LIVE:
        return True
    return wants_more(reader, lane)


def _end(state: State, request: OpenRequest) -> None:
    """End a request whose client has everything, once its attempts have told their usage."""
    if not request.live:
        complete(state, request)
    elif request.end_timer is None:
        request.end_timer = state.arm(state.settings.usage_wait_s, Due.USAGE_WAIT, request)
