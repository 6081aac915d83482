"""How requests end of which the client hears nothing more from here."""

from services.orchestrator.core.detaching import detach
from services.orchestrator.core.effects import HandBackRequest
from services.orchestrator.core.ending import forget, leave_client, set_aside, stop_groups
from services.orchestrator.core.history import Kind
from services.orchestrator.core.moves import RequestState
from services.orchestrator.core.request import OpenRequest
from services.orchestrator.core.state import State
from services.orchestrator.core.timers import Due
from stagemesh.outcome import Outcome, Terminal, error_for

__all__ = ["drop", "hand_back", "orphan"]


def orphan(state: State, request: OpenRequest) -> None:
    """Keep a request whose gateway is lost for a while: it starts nothing and gives nothing.

    What a detachable one has running goes on, and what comes of it is kept, if its client gave all
    of its input. One that has its verdict already is over: a gateway that comes back must not find
    it going on.
    """
    if request.state is RequestState.STOPPING:
        drop(state, request, "The client is gone.", release=True)
        return
    request.move(RequestState.ORPHANED)
    state.note(request, Kind.ORPHANED)
    state.timers.cancel(request.end_timer)
    if not request.input_ended:
        request.standby = None  # How much of its input came, no other gateway knows.
    standby = request.standby
    wait_s = state.settings.orphan_s if standby is None else standby.detach_s
    request.end_timer = state.arm(wait_s, Due.ORPHAN, request)
    state.held.pop(request, None)
    if standby is None or request.admitted_s is None:
        state.admissions[request.plan.pipeline.name].set_apart(request)
    if standby is not None:
        detach(state, request)
        return
    for lane in request.lanes.values():
        lane.clear()
        lane.direct = False  # So that what comes is looked at, and dropped.
    request.journal_bytes = 0
    for group in request.groups:
        group.keeping = group.unfed = False
        group.ticket = None
        state.timers.cancel(group.timer)
        state.timers.cancel(group.join_timer)


def hand_back(state: State, request: OpenRequest) -> None:
    """Give a request back to its gateway; what it holds at workers is the next owner's."""
    state.counts.hand_backs += 1
    state.orders.to_client(
        HandBackRequest(link=request.client.link, slot=request.slot, request_id=request.request_id)
    )
    request.client.requests.pop(request.slot, None)
    terminal = Terminal(
        outcome=Outcome.CANCELLED, error=error_for("link_lost", "It was handed back.")
    )
    _leave(state, request, terminal, release=False)


def drop(
    state: State,
    request: OpenRequest,
    why: str,
    *,
    release: bool,
    reason: str = "link_lost",
    tell: bool = False,
) -> None:
    """End a request silently; its payloads are released unless another owner may have them.

    With `tell` its client hears that it is gone from here.
    """
    terminal = Terminal(outcome=Outcome.CANCELLED, error=error_for(reason, why))
    leave_client(state, request, terminal, tell=tell)
    _leave(state, request, terminal, release=release)


def _leave(state: State, request: OpenRequest, terminal: Terminal, *, release: bool) -> None:
    stop_groups(state, request, "given up")
    for group in request.groups:
        for attempt in group.attempts:
            set_aside(state, attempt, "given up")
    request.move(RequestState.DONE)
    forget(state, request, terminal, release=release)
