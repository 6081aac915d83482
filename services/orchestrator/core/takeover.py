"""A request that another owner had: its journal becomes the journal here."""

from services.orchestrator.core.effects import FenceRequest
from services.orchestrator.core.ending import take_usage
from services.orchestrator.core.flow import Lane
from services.orchestrator.core.journal import LaneLog, covers
from services.orchestrator.core.plan import Plan
from services.orchestrator.core.replicas import Replica
from services.orchestrator.core.request import Group, OpenRequest, Standing
from services.orchestrator.core.starting import leave_segments
from services.orchestrator.core.state import State
from services.orchestrator.core.timers import Due
from stagemesh.link.core import Cursor, Journal, LaneJournal, Row, row_cost
from stagemesh.media import Handle

__all__ = ["fence_workers", "fits", "take_over"]


def fits(plan: Plan, journal: Journal) -> bool:
    """Whether a journal was made by this very plan, as far as it shows."""
    if journal.revision not in ("", plan.pipeline.revision):
        return False
    known = {(g.stage.index, role.role) for g in plan.groups for role in g.roles}
    lanes = {number for g in plan.groups for role in g.roles for number in role.lanes}
    return all(lane.lane in lanes for lane in journal.lanes) and all(
        (placed.stage, placed.role) in known for placed in journal.placed
    )


def fence_workers(state: State, request: OpenRequest, journal: Journal) -> None:
    """Silence older owners at every replica that they may reach, used so far or not.

    One that is cut off from its gateway and has not noticed may start a stage anywhere.
    """
    handles = [handle for lane in journal.lanes for row in lane.rows if (handle := _handle(row))]
    for name in dict.fromkeys(stage.pool for stage in request.plan.pipeline.stages):
        for replica in state.pools[name].replicas:
            mine = tuple(h.handle_id for h in handles if _holds(replica, h))
            if mine:
                _keep(state, request, replica)
            state.orders.to_worker(
                FenceRequest(
                    link=replica.link,
                    request_id=request.request_id,
                    epoch=request.work_epoch,
                    handle_ids=mine,
                )
            )


def take_over(request: OpenRequest, journal: Journal) -> None:
    """Let a request stand where its journal stands: what is missing is to be made."""
    for given in journal.lanes:
        _take_lane(request, request.lanes[given.lane], given)
    placed = {(one.stage, one.role) for one in journal.placed}
    for group in request.groups:
        _take_group(group, placed)
    if any(lane.visible_pos for lane in journal.lanes):
        request.started = True
        request.first_output_s = request.opened_s


def _take_lane(request: OpenRequest, lane: Lane, given: LaneJournal) -> None:
    lane.cursor = Cursor(given.next, ended=given.end is not None)
    lane.finish = given.end
    lane.segments, lane.start = given.segments, given.segment_pos
    lane.log = LaneLog.given(given)
    if lane.visible:
        lane.delivered = given.next
    else:
        lane.mirrored = True
    if given.end is not None:
        take_usage(request, given.end.usage, given.end.timings)
        if lane.visible:
            request.lanes_left -= 1
    if lane.direct or not (lane.begun or lane.segments):
        return
    closed = bool(given.rows) and given.rows[-1].end is not None
    if not covers(given.rows, given.next) or closed != lane.cursor.ended:
        lane.missing = True
        return
    for row in given.rows:
        request.journal_bytes += lane.keep(row)
        units, size = row_cost(row)
        lane.taken_units += units
        lane.taken_bytes += size
    lane.passed_units, lane.passed_bytes = lane.taken_units, lane.taken_bytes
    lane.settled_units, lane.settled_bytes = lane.taken_units, lane.taken_bytes


def _take_group(group: Group, placed: set[tuple[int, int]]) -> None:
    given = any((group.stage.index, role.role) in placed for role in group.plan.roles)
    if not group.idle_roles:
        group.move(Standing.OVER)
        group.unfed = False
        for lane in group.kept_sources:
            lane.unfed -= 1
        group.release_inputs()
        leave_segments(group)
    elif group.plan.segmented and not any(lane.begun for lane in group.lanes):
        pass  # Nothing of its next run was given, so it begins like any run.
    elif given or any(lane.begun for lane in group.lanes):
        group.move(Standing.LOST)
        group.resumes = True


def _keep(state: State, request: OpenRequest, replica: Replica) -> None:
    request.asked.add(replica)
    request.holders.setdefault(replica, False)
    if request.renewal_timer is None:
        request.renewal_timer = state.arm(state.settings.lease_s / 3, Due.RENEWAL, request)


def _handle(row: Row) -> Handle | None:
    return None if row.body is None else row.body.handle


def _holds(replica: Replica, handle: Handle) -> bool:
    return (replica.replica_id, replica.incarnation) == (handle.holder_id, handle.incarnation)
