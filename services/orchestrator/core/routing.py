"""Routing: what a request does next. Only here does a stage get work (ORCH-INV-001)."""

from services.orchestrator.core.ending import complete, drop_group, fail, finish_stopped
from services.orchestrator.core.flow import Lane
from services.orchestrator.core.moves import AttemptState, RequestState
from services.orchestrator.core.placing import pend
from services.orchestrator.core.request import Group, OpenRequest, Standing
from services.orchestrator.core.state import State
from services.orchestrator.core.timers import Due
from stagemesh.pipeline import EdgeMode

__all__ = ["advance"]


def advance(state: State, request: OpenRequest) -> None:
    """Drop what nobody needs, start what can start, and end the request when all is given.

    It is right to call this at any time: it changes nothing where nothing is to be done.
    """
    if request.state is RequestState.STOPPING and not request.live:
        finish_stopped(state, request)
    if request.state is not RequestState.RUNNING:
        return
    _drop_unneeded(state, request)
    for group in request.groups:
        if group.standing is Standing.LOST:
            _recover(state, group)
            return
        if group.standing is Standing.WAITING and _can_start(group):
            pend(state, group)
    if not request.lanes_left and not request.held:
        _end(state, request)


def _recover(state: State, group: Group) -> None:
    """Go on after the loss of a replica: no contract to resume is known, so the request fails."""
    lost = next(a for a in group.attempts if a.state is AttemptState.LOST)
    fail(state, group.request, lost.error("replica_lost"))


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
    feeds = [attempt.feeds.get(lane.number) for attempt in reader.attempts]
    return any(feed is not None and not feed.complete for feed in feeds)


def _can_start(group: Group) -> bool:
    """Whether whole inputs are complete and streams have begun."""
    for source, lane in zip(group.plan.sources, group.sources, strict=True):
        if lane.cursor.ended:
            continue
        if source.mode is EdgeMode.WHOLE or not lane.cursor.next:
            return False
    return True


def _end(state: State, request: OpenRequest) -> None:
    """End a request whose client has everything, once its attempts have told their usage."""
    if not request.live:
        complete(state, request)
    elif request.end_timer is None:
        request.end_timer = state.arm(state.settings.usage_wait_s, Due.USAGE_WAIT, request)
