"""The path of every output: checked, given to the client, kept for and fed to other stages.

This is the hot path: the common row (text that the client alone reads, with credit) takes the
shortest way through `take_rows`.
"""

from services.orchestrator.core.attempts import break_off, finish_attempt, late_row
from services.orchestrator.core.credit import accept_inputs, hold_back, settle
from services.orchestrator.core.ending import fail, take_usage
from services.orchestrator.core.flow import Lane
from services.orchestrator.core.moves import AttemptState
from services.orchestrator.core.replicas import Replica
from services.orchestrator.core.request import Attempt, OpenRequest
from services.orchestrator.core.state import State
from services.orchestrator.core.timers import Due
from stagemesh.link.core import NO_SOURCE, Grant, Row, Step, row_cost
from stagemesh.outcome import End, error_for

__all__ = ["take_rows"]


def take_rows(state: State, replica: Replica, rows: list[Row]) -> None:
    """Take the outputs of one message, in order."""
    attempts = replica.attempts
    streaming, accept = AttemptState.STREAMING, Step.ACCEPT
    for row in rows:
        attempt = attempts.get(row.slot)
        if attempt is None or (attempt.state is not streaming and not _begins(state, attempt)):
            late_row(state, replica, attempt, row)
            continue
        lane = attempt.lanes.get(row.lane)
        if lane is None or lane.cursor.check(row) is not accept:
            _out_of_order(state, attempt, lane, row)
            continue
        if row.body is not None and row.body.handle is not None:
            _hold(state, attempt.group.request, replica, lane)
        end = row.end
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
        request.first_output_s = state.now_s
    if not request.sender.offer(row):
        hold_back(state, request)
        return
    state.orders.client_rows(request.client.link).append(row)
    lane.delivered += row.units
    totals = attempt.meter.took(units, size)
    if totals is not None and (row.end is None or len(attempt.open_lanes) > 1):
        state.orders.grant(attempt.replica.link, Grant(attempt.slot, NO_SOURCE, *totals))


def _begins(state: State, attempt: Attempt) -> bool:
    """Whether an attempt that does not stream begins to, with its first output."""
    if attempt.state is not AttemptState.SUBMITTED:
        return False
    attempt.move(AttemptState.STREAMING)
    request = attempt.group.request
    request.started = True
    accept_inputs(attempt)
    state.touch(request)
    return True


def _out_of_order(state: State, attempt: Attempt, lane: Lane | None, row: Row) -> None:
    """Drop a row that came before; anything else that is not the next one ends the attempt."""
    if lane is None:
        break_off(state, attempt, f"lane {row.lane:#x} was not asked for")
    elif lane.cursor.check(row) is Step.DROP:
        state.counts.rows_repeated += 1
    else:
        what = f"position {row.pos} came where {lane.cursor.next} was due"
        break_off(state, attempt, what)


def _hold(state: State, request: OpenRequest, replica: Replica, lane: Lane) -> None:
    """Note that a replica keeps something for a request, which it is told now and then."""
    request.holders[replica] = lane.visible or request.holders.get(replica, False)
    if request.renewal_timer is None:
        request.renewal_timer = state.arm(state.settings.lease_s / 3, Due.RENEWAL, request)


def _route(state: State, request: OpenRequest, lane: Lane, row: Row) -> None:
    """Take a row that stages read, and perhaps the client too; the client's copy goes first."""
    units, size = row_cost(row)
    lane.taken_units += units
    lane.taken_bytes += size
    if lane.visible:
        row.slot = request.slot
        if request.first_output_s is None:
            request.first_output_s = state.now_s
        if request.sender.offer(row):
            state.orders.client_rows(request.client.link).append(row)
            lane.delivered += row.units
            lane.passed_units += units
            lane.passed_bytes += size
        else:
            hold_back(state, request)
    feeds = lane.feeds
    if len(feeds) == 1 and not lane.unfed and feeds[0].keeps_up():
        feeds[0].send(row, units, size, state.orders.worker_rows(feeds[0].link))
    elif lane.unfed or feeds:
        request.journal_bytes += lane.keep(row)
        for feed in feeds:
            feed.pump(state.orders.worker_rows(feed.link))
        request.journal_bytes += lane.trim()
        if request.journal_bytes > state.settings.journal_bytes_max:
            _overrun(state, request, lane)


def _overrun(state: State, request: OpenRequest, lane: Lane) -> None:
    attempt = lane.attempt
    reason = "journal_full"
    fail(state, request, attempt.error(reason) if attempt is not None else error_for(reason))


def _end_lane(state: State, attempt: Attempt, lane: Lane, end: End) -> None:
    request = attempt.group.request
    take_usage(request, end.usage, end.timings)
    attempt.open_lanes.discard(lane.number)
    if lane.visible:
        request.lanes_left -= 1
    if not attempt.open_lanes:
        finish_attempt(state, attempt)
    state.touch(request)
