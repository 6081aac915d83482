"""Detachable requests: one whose gateway is lost waits for the next, which goes on with it.

Who works on it works on meanwhile, as far as credit goes; nothing is started. Its work goes on
under the epoch with which it came here: no other orchestrator has had it since, and workers need
not know which gateway it is for.
"""

from services.orchestrator.core import holding
from services.orchestrator.core.credit import settle
from services.orchestrator.core.ending import admit, leave_client, stop
from services.orchestrator.core.events import Opened
from services.orchestrator.core.history import Kind
from services.orchestrator.core.moves import RequestState
from services.orchestrator.core.outputs import give_rows
from services.orchestrator.core.placing import placement_due
from services.orchestrator.core.plan import Plan
from services.orchestrator.core.request import Client, OpenRequest, Standing
from services.orchestrator.core.standby import ParkedSender, Standby
from services.orchestrator.core.state import State
from stagemesh.link.core import Journal, Row, Sender
from stagemesh.outcome import Outcome, Terminal, error_for

__all__ = ["begins", "detach", "reattach", "unconfirmed"]


def detach(state: State, request: OpenRequest) -> None:
    """Let a request wait for a gateway: what comes for its client is kept as far as credit goes."""
    request.sender = ParkedSender(request.sender.release())
    request.stuck_since_s = None
    state.timers.cancel(request.slow_timer)
    request.slow_timer = None
    for group in request.groups:
        group.ticket = group.refused_s = None
        for timer in (group.timer, group.join_timer):
            state.timers.cancel(timer)
        group.timer = group.join_timer = None
    _hide(request)


def unconfirmed(older: OpenRequest, event: Opened) -> list[Row] | None:
    """Give what a gateway that opens a request again has not got; None if it cannot go on here.

    It goes on with a request that no other orchestrator has had, that has no verdict, and whose
    input was all given: how much of it came is known to nobody but the gateway that gave it.
    """
    standby = older.standby
    mine = event.owner_since and event.owner_since <= older.epoch < event.epoch
    if standby is None or not mine or not older.input_ended:
        return None
    if older.state not in (RequestState.QUEUED, RequestState.RUNNING, RequestState.ORPHANED):
        return None
    sent_to = {lane.number: lane.delivered for lane in older.lanes.values() if lane.visible}
    return standby.behind(event.journal.lanes, sent_to)


def reattach(
    state: State, request: OpenRequest, event: Opened, client: Client, rows: list[Row]
) -> None:
    """Give a request to another gateway, which is sent what it has not got."""
    why = "Another gateway took it over."
    terminal = Terminal(outcome=Outcome.CANCELLED, error=error_for("link_lost", why))
    leave_client(state, request, terminal, tell=True)
    _hide(request)
    request.client, request.slot, request.epoch = client, event.slot, event.epoch
    request.body = event.body  # Its large parts lie at this gateway now.
    client.requests[event.slot] = request
    state.note(request, Kind.OPENED, cause=why)
    state.counts.reattached += 1
    if request.state is RequestState.ORPHANED:
        _go_on(state, request)
    _send_again(state, request, Standby(event.detach_s, taken_over=True), rows)
    verdict, request.verdict = request.verdict, None
    if verdict is not None:
        stop(state, request, verdict, "failed")
    state.touch(request)


def begins(plan: Plan, journal: Journal) -> bool:
    """Whether an owner without a request's own journal can go on from positions alone.

    It can if everything was given, or nothing, and the input came whole.
    """
    ended = {lane.lane for lane in journal.lanes if lane.end is not None}
    nothing = not any(lane.next or lane.end for lane in journal.lanes)
    return ended >= plan.visible or (nothing and not plan.streamed)


def _hide(request: OpenRequest) -> None:
    """Send no gateway any more what stages alone read: the next does not have what came before."""
    for lane in request.lanes.values():
        lane.mirrored = False


def _send_again(state: State, request: OpenRequest, standby: Standby, rows: list[Row]) -> None:
    """Send what was sent and not confirmed, whatever the credit; then what waits, by it."""
    waiting = request.sender.release()
    client = request.client
    request.standby = standby
    request.sender = Sender(client.window_units, client.window_bytes)
    for row in rows:
        row.slot = request.slot
        request.sender.overrun(row)
        standby.sent(row)
    state.orders.client_rows(client.link).extend(rows)
    given: list[Row] = []
    for row in waiting:
        row.slot = request.slot
        given += request.sender.offer(row)
    give_rows(state, request, given)


def _go_on(state: State, request: OpenRequest) -> None:
    """Let an orphan stand where it stood before its gateway was lost."""
    state.timers.cancel(request.end_timer)
    request.end_timer = None
    admission = state.admissions[request.plan.pipeline.name]
    if request.admitted_s is None:
        request.move(RequestState.QUEUED)
        admission.wait_again(request)
        holding.hold(state, request)
        admit(state, admission)
        return
    request.move(RequestState.RUNNING)
    for group in request.groups:
        if group.standing is Standing.PENDING:
            state.timers.cancel(group.timer)
            group.pending_s = state.now_s
            placement_due(state, group)
    for lane in request.lanes.values():
        if not lane.direct:
            settle(state, lane)
