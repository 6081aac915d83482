"""Payloads that are gone before they were fetched: what made them makes them again."""

from services.orchestrator.core.ending import fail, set_aside
from services.orchestrator.core.flow import Lane
from services.orchestrator.core.moves import RequestState
from services.orchestrator.core.replicas import Replica
from services.orchestrator.core.request import Attempt, Group, Loss, OpenRequest
from services.orchestrator.core.state import State
from stagemesh.link.core import Cursor
from stagemesh.outcome import ErrorInfo, error_for

__all__ = ["keep_held", "lose_for_attempt", "lose_for_client"]


def lose_for_attempt(state: State, attempt: Attempt, handle_id: str) -> None:
    """Let an input be made again that a worker could not fetch."""
    request = attempt.group.request
    error = attempt.error("handle_lost")
    for lane in attempt.group.sources:
        index = _index_of(lane, handle_id)
        hidden = not (lane.visible or lane.segmented)
        if index is not None and hidden and attempt.running:
            _make_again(state, request, lane, index, error)
            return
    fail(state, request, error)


def lose_for_client(state: State, request: OpenRequest, handle_id: str) -> None:
    """Let an output be made again that a gateway could not fetch, and therefore did not take.

    What waits for credit cannot be taken back, and a caller of `Generate` has taken everything.
    """
    error = error_for("handle_lost")
    lane, pos = request.shown.get(handle_id, (None, 0))
    alone = lane is not None and lane.direct and not lane.segmented
    if lane is None or not alone or request.held or not request.client.mirrors:
        fail(state, request, error)
    elif request.state is RequestState.RUNNING:
        _set_back(state, request, lane, pos, error)


def keep_held(state: State, request: OpenRequest, replica: Replica, held: tuple[str, ...]) -> None:
    """Take a replica's word on which payloads of a lower epoch it still has."""
    if replica not in request.asked:
        return
    request.asked.discard(replica)
    for lane in list(request.lanes.values()):
        for index, row in enumerate(lane.rows, start=lane.base):
            handle = None if row.body is None else row.body.handle
            if (
                handle is not None
                and handle.handle_id not in held
                and (handle.holder_id, handle.incarnation)
                == (replica.replica_id, replica.incarnation)
            ):
                if lane.segmented:
                    fail(state, request, error_for("handle_lost"))
                    return
                _make_again(state, request, lane, index, error_for("handle_lost"))
                break


def _index_of(lane: Lane, handle_id: str) -> int | None:
    for index, row in enumerate(lane.rows, start=lane.base):
        handle = None if row.body is None else row.body.handle
        if handle is not None and handle.handle_id == handle_id:
            return index
    return None


def _make_again(
    state: State, request: OpenRequest, lane: Lane, index: int, error: ErrorInfo
) -> None:
    """Cut a hidden lane; whoever reads it begins again too, behind what it gave itself."""
    for at in request.plan.readers.get(lane.number, ()):
        reader = request.groups[at]
        running = [attempt for attempt in reader.attempts if attempt.running]
        if running:
            reader.lose(Loss.INPUT, error)
        for attempt in running:
            set_aside(state, attempt, "its input is made again")
    maker = _maker_of(request, lane)
    _stop_making(state, maker, lane, error)
    maker.stale |= lane.mirrored
    lane.cut(index)
    request.journal_bytes = request.measured_bytes


def _set_back(state: State, request: OpenRequest, lane: Lane, pos: int, error: ErrorInfo) -> None:
    if lane.cursor.ended:
        request.lanes_left += 1
        state.timers.cancel(request.end_timer)
        request.end_timer = None
    request.stuck_since_s = None  # Its client has done all that it could.
    _stop_making(state, _maker_of(request, lane), lane, error)
    lane.cursor, lane.finish = Cursor(pos), None
    lane.delivered = min(lane.delivered, pos)
    if lane.log is not None:
        lane.log.cut()
    for handle_id in [one for one, (of, at) in request.shown.items() if of is lane and at >= pos]:
        del request.shown[handle_id]


def _stop_making(state: State, group: Group, lane: Lane, error: ErrorInfo) -> None:
    """Let the group of a lane be lost; what its other roles do goes on."""
    for attempt in group.attempts:
        if lane.number in attempt.role.lanes:
            set_aside(state, attempt, "its output is made again")
    group.lose(Loss.WORK, error)
    group.keep_inputs()
    state.touch(group.request)


def _maker_of(request: OpenRequest, lane: Lane) -> Group:
    return next(group for group in request.groups if lane in group.lanes)
