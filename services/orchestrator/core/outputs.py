"""The path of every output: checked, given to the client, kept for and fed to other stages.

This is the hot path: the common row (text that the client alone reads, with credit) takes the
shortest way through `take_rows`.
"""

from typing import Final

from services.orchestrator.core.attempts import (
    break_off,
    end_late_lane,
    finish_attempt,
    late_row,
)
from services.orchestrator.core.credit import accept_inputs, settle, took
from services.orchestrator.core.ending import fail, take_usage
from services.orchestrator.core.flow import PACK_ROWS, Lane
from services.orchestrator.core.history import Kind
from services.orchestrator.core.moves import AttemptState
from services.orchestrator.core.replicas import Replica
from services.orchestrator.core.request import (
    ID_BYTES,
    Attempt,
    Group,
    OpenRequest,
    Standing,
)
from services.orchestrator.core.standby import Standby
from services.orchestrator.core.starting import leave_segments
from services.orchestrator.core.state import State
from services.orchestrator.core.timers import Due
from stagemesh.link.core import NO_SOURCE, Grant, Row, Step, row_cost
from stagemesh.outcome import End, FinishReason, error_for

__all__ = ["end_segments", "give_rows", "grant_client", "take_rows", "watch_client"]

SHOWN_MAX: Final = 1024


def take_rows(state: State, replica: Replica, rows: list[Row]) -> None:
    """Take the outputs of one message, in order."""
    attempts = replica.attempts
    streaming, accept = AttemptState.STREAMING, Step.ACCEPT
    for row in rows:
        attempt = attempts.get(row.slot)
        if attempt is None or (attempt.state is not streaming and not _begins(state, attempt)):
            if attempt is None or not _take_partial(state, replica, attempt, row):
                late_row(state, replica, attempt, row)
            continue
        lane = attempt.lanes.get(row.lane)
        end = row.end
        if lane is not None and lane.segmented:
            _in_segment(lane, row)
        if lane is None or lane.cursor.check(row) is not accept:
            _out_of_order(state, attempt, lane, row)
            continue
        if row.body is not None and row.body.handle is not None:
            _hold(state, attempt.group.request, replica, lane, row)
        log = lane.log
        if log is not None:
            log.add(row)
        if lane.direct:
            _pass_on(state, attempt, lane, row)
        else:
            _route(state, attempt.group.request, lane, row)
        if end is not None:
            _end_lane(state, attempt, lane, end)
        if not lane.direct:
            settle(state, lane)


def _pass_on(state: State, attempt: Attempt, lane: Lane, row: Row) -> None:
    """Give the client a row that nobody else reads, and its worker the credit for it."""
    request = attempt.group.request
    units, size = row_cost(row)
    row.slot = request.slot
    if request.first_output_s is None:
        _note_first(state, request)
    if not request.sender.offer(row):
        lane.taken_units += units
        lane.taken_bytes += size
        watch_client(state, request)
        return
    _show(state, request, row)
    lane.delivered += row.units
    totals = attempt.meter.took(units, size)
    over = row.end is not None or row.segment_end
    if totals is not None and not (over and len(attempt.open_lanes) == 1):
        state.orders.grant(attempt.replica.link, Grant(attempt.slot, NO_SOURCE, *totals))
        _count_ids(state, request, lane)


def _note_first(state: State, request: OpenRequest) -> None:
    request.first_output_s = state.now_s
    state.note(request, Kind.FIRST_OUTPUT, seconds=state.now_s - request.opened_s)


def _count_ids(state: State, request: OpenRequest, lane: Lane) -> None:
    """Count the ids of a lane that nobody else reads; now and then is enough."""
    log = lane.log
    if log is not None and log.ids is not None:
        request.journal_bytes += ID_BYTES * (len(log.ids) - log.ids_counted)
        log.ids_counted = len(log.ids)
        if request.journal_bytes > state.settings.journal_bytes_max:
            _overrun(state, request, lane)


def _begins(state: State, attempt: Attempt) -> bool:
    """Whether an attempt that does not stream begins to, with its first output."""
    if attempt.state is not AttemptState.SUBMITTED:
        return False
    attempt.move(AttemptState.STREAMING)
    attempt.group.refusals, attempt.group.refused_s = 0, None
    state.note_attempt(attempt, Kind.STREAMING, seconds=state.now_s - attempt.submitted_s)
    request = attempt.group.request
    request.started = True
    accept_inputs(attempt)
    state.touch(request)
    return True


def _take_partial(state: State, replica: Replica, attempt: Attempt, row: Row) -> bool:
    """Give the client an output of an attempt that is being stopped, if it asked for such."""
    request, lane = attempt.group.request, attempt.lanes.get(row.lane)
    wanted = request.partials and attempt.state is AttemptState.STOPPING
    if not wanted or lane is None or not lane.visible:
        return False
    end = row.end
    if lane.segmented:
        _in_segment(lane, row)
    if lane.cursor.check(row) is not Step.ACCEPT:
        row.end = end
        return False
    if row.body is not None and row.body.handle is not None:
        _hold(state, request, replica, lane, row)
    if request.first_output_s is None:
        _note_first(state, request)
    row.slot = request.slot
    lane.delivered += row.units
    state.orders.client_rows(request.client.link).append(row)
    end_late_lane(state, attempt, row.lane, end)
    return True


def _out_of_order(state: State, attempt: Attempt, lane: Lane | None, row: Row) -> None:
    """Drop a row that came before; anything else that is not the next one ends the attempt."""
    if lane is None:
        break_off(state, attempt, f"lane {row.lane:#x} was not asked for")
    elif lane.cursor.check(row) is Step.DROP:
        state.counts.rows_repeated += 1
        totals = attempt.meter.took(*row_cost(row))
        if totals is not None:
            state.orders.grant(attempt.replica.link, Grant(attempt.slot, NO_SOURCE, *totals))
    else:
        what = f"position {row.pos} came where {lane.cursor.next} was due"
        break_off(state, attempt, what)


def _hold(state: State, request: OpenRequest, replica: Replica, lane: Lane, row: Row) -> None:
    """Note that a replica keeps something for a request, which it is told now and then."""
    if lane.visible and row.body is not None and row.body.handle is not None:
        request.shown[row.body.handle.handle_id] = (lane, row.pos)
        if len(request.shown) > SHOWN_MAX:
            del request.shown[next(iter(request.shown))]
    request.holders[replica] = lane.visible or request.holders.get(replica, False)
    if request.renewal_timer is None:
        request.renewal_timer = state.arm(state.settings.lease_s / 3, Due.RENEWAL, request)


def _route(state: State, request: OpenRequest, lane: Lane, row: Row) -> None:
    """Take a row that stages read, and perhaps the client too; the client's copy goes first."""
    if not request.worked_for:
        state.counts.rows_late += 1
        return
    units, size = row_cost(row)
    lane.taken_units += units
    lane.taken_bytes += size
    if lane.visible:
        row.slot = request.slot
        if request.first_output_s is None:
            _note_first(state, request)
        if request.sender.offer(row):
            _show(state, request, row)
            lane.delivered += row.units
            lane.passed_units += units
            lane.passed_bytes += size
        else:
            watch_client(state, request)
            if lane.gated:
                return
    elif lane.mirrored:
        row.slot = request.slot
        row.visible = False
        state.orders.client_rows(request.client.link).append(row)
    _feed_on(state, request, lane, row)


def _feed_on(state: State, request: OpenRequest, lane: Lane, row: Row) -> None:
    """Keep a row for those who read it, and send it to those who run."""
    if not (lane.unfed or lane.keepers or lane.feeds or lane.by_segment):
        return
    if row.pos == lane.start and lane.unfed:
        state.touch(request)  # Who reads it as a stream can begin.
    request.journal_bytes += lane.keep(row)
    for feed in lane.feeds:
        if feed.keeps_up():
            feed.send(row, state.orders.worker_rows(feed.link))
        else:
            feed.pump(state.orders.worker_rows(feed.link))
    if not lane.keepers:
        request.journal_bytes += lane.trim()
    if len(lane.rows) - lane.packed >= PACK_ROWS:
        lane.pack()
    if request.journal_bytes > state.settings.journal_bytes_max:
        _overrun(state, request, lane)


def _overrun(state: State, request: OpenRequest, lane: Lane) -> None:
    """Keep for no other attempt what this journal has no room for; fail if that is not enough."""
    if not request.unrecoverable:
        request.give_up_recovery()
    if request.journal_bytes > state.settings.journal_bytes_max:
        attempt, reason = lane.attempt, "journal_full"
        fail(state, request, attempt.error(reason) if attempt is not None else error_for(reason))


def _show(state: State, request: OpenRequest, row: Row) -> None:
    """Send the client a row for which there is credit."""
    state.orders.client_rows(request.client.link).append(row)
    if request.standby is not None:
        request.standby.sent(row)


def watch_client(state: State, request: OpenRequest, *, moved: bool = False) -> None:
    """Note whether its client has to do something, and since when it has done nothing of it.

    It has to give credit for what waits, and to confirm what it has been given where that is all.
    """
    waits = request.held or (not request.lanes_left and bool(request.standby))
    if not waits:
        request.stuck_since_s = None
    elif moved or request.stuck_since_s is None:
        request.stuck_since_s = state.now_s
    if waits and request.slow_timer is None:
        request.slow_timer = state.arm(state.settings.slow_s, Due.SLOW_CLIENT, request)


def grant_client(state: State, request: OpenRequest, grant: Grant) -> None:
    """Send the client what its new credit allows, and let the workers go on."""
    if request.standby is not None:
        _confirm(state, request, request.standby, grant)
    rows = request.sender.grant(grant.units, grant.bytes)
    if rows:
        give_rows(state, request, rows)


def _confirm(state: State, request: OpenRequest, standby: Standby, grant: Grant) -> None:
    """Forget what a gateway has for good; a request that has given all ends only then."""
    client = request.client
    units, size = grant.units - client.window_units, grant.bytes - client.window_bytes
    if standby.confirm(units, size):
        watch_client(state, request, moved=True)
        if not request.lanes_left:
            state.touch(request)


def give_rows(state: State, request: OpenRequest, rows: list[Row]) -> None:
    """Send the client rows that waited for its credit, and settle them."""
    for row in rows:
        _show(state, request, row)
        lane = request.lanes[row.lane]
        lane.delivered += row.units
        units, size = row_cost(row)
        lane.passed_units += units
        lane.passed_bytes += size
        if lane.direct:
            took(state, lane, units, size)
            continue
        if lane.gated:
            _feed_on(state, request, lane, row)
            state.touch(request)
        settle(state, lane)
    watch_client(state, request, moved=True)
    if not request.lanes_left:
        state.touch(request)


def _in_segment(lane: Lane, row: Row) -> None:
    """Put a row of one run where it stands in its lane; the end of the run is none of the lane."""
    row.pos += lane.start
    row.origin = None  # It names units of the segment, which mean nothing to anybody else.
    if row.end is not None:
        row.end, row.segment_end = None, True


def end_segments(state: State, group: Group) -> None:
    """End the lane of a group that had all segments of its input, as its last run ended."""
    request, lane = group.request, group.lanes[0]
    reason = FinishReason.STOP if lane.finish is None else lane.finish.finish_reason
    row = Row(0, lane.number, lane.cursor.next, 0, end=End(finish_reason=reason))
    lane.cursor.check(row)
    lane.finish = row.end
    group.move(Standing.OVER)
    group.release_inputs()
    leave_segments(group)
    if lane.visible:
        request.lanes_left -= 1
    _route(state, request, lane, row)
    state.touch(request)


def _end_lane(state: State, attempt: Attempt, lane: Lane, end: End) -> None:
    request = attempt.group.request
    take_usage(request, end.usage, end.timings)
    attempt.timings = end.timings
    lane.finish = end
    attempt.open_lanes.discard(lane.number)
    if lane.visible and not lane.segmented:
        request.lanes_left -= 1
    if not attempt.open_lanes:
        finish_attempt(state, attempt)
    state.touch(request)
