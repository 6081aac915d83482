"""Streamed input: what a client appends is kept, handed to the stages that read it, and paid for.

A piece for a slot that means nothing here starts nothing: it is dropped, and answered once.
"""

from services.orchestrator.core.credit import settle
from services.orchestrator.core.effects import AnswerUnknown
from services.orchestrator.core.ending import admit, fail
from services.orchestrator.core.flow import Lane
from services.orchestrator.core.intake import Intake, Turn
from services.orchestrator.core.moves import RequestState
from services.orchestrator.core.request import Attempt, Client, OpenRequest, Standing
from services.orchestrator.core.starting import can_start
from services.orchestrator.core.state import State
from stagemesh.errors import MeshError, unsupported
from stagemesh.link.core import REQUEST_SOURCE, Row, Step, row_cost
from stagemesh.media import Modality
from stagemesh.outcome import ErrorInfo, error_for

__all__ = ["check_inputs", "hand_on", "keep_given", "rest", "take_inputs", "wants_turn"]

_TAKES = frozenset({RequestState.QUEUED, RequestState.RUNNING})
_PLACED = frozenset({Standing.WAITING, Standing.LIVE, Standing.OVER})


def take_inputs(state: State, client: Client, rows: list[Row]) -> None:
    """Take what a client appended, in order. A request that is ending wants nothing more."""
    for row in rows:
        request = client.requests.get(row.slot)
        if request is None:
            state.counts.inputs_late += 1
            if client.strangers.is_new(row.slot):
                state.orders.to_client(AnswerUnknown(link=client.link, slot=row.slot))
        elif request.state in _TAKES:
            _take(state, request, row)


def check_inputs(rows: list[Row]) -> None:
    """Check what an earlier owner was given of an input: all of it, from the first piece on.

    Raises:
        MeshError: If a piece is missing, or something follows the end.
    """
    at = 0
    for row in rows:
        if row.pos != at or (row.end is not None and row is not rows[-1]):
            raise MeshError(error_for("protocol_error", f"Input came at {row.pos}, not at {at}."))
        at += row.units


def keep_given(request: OpenRequest, rows: list[Row]) -> None:
    """Keep what an earlier owner was given: it was paid for there."""
    lane = request.lanes.get(REQUEST_SOURCE)
    if lane is None:
        return
    for row in rows:
        lane.cursor.check(row)
        _keep(lane, row)
    lane.settled_units, lane.settled_bytes = lane.taken_units, lane.taken_bytes


def wants_turn(request: OpenRequest, intake: Intake) -> bool:
    """Whether there is something to do for a conversation that has no running slot."""
    return intake.turn is Turn.IDLE and not _waits_for_client(request)


def hand_on(state: State, request: OpenRequest, intake: Intake) -> bool:
    """Give a conversation what it needs to go on; False if it has to wait for a running slot."""
    admission = state.admissions[request.plan.pipeline.name]
    # Whoever holds an engine slot hears its client without a turn: else those who have the turns
    # could wait for its slot, and it for a turn.
    lane = request.lanes[REQUEST_SOURCE]
    for feed in lane.feeds:
        feed.pump(state.orders.worker_rows(feed.link))
    lane.trim()
    settle(state, lane)
    if wants_turn(request, intake):
        intake.turn = Turn.QUEUED
        admission.rejoin(request)
        admit(state, admission)
    return intake.turn is Turn.TAKEN


def rest(state: State, request: OpenRequest, intake: Intake) -> None:
    """Let a conversation give its running slot up if it waits for its client now."""
    admission = state.admissions[request.plan.pipeline.name]
    admission.resize(request, intake.opened_bytes + request.lanes[REQUEST_SOURCE].size_bytes)
    if intake.turn is Turn.TAKEN and _waits_for_client(request):
        intake.turn = Turn.IDLE
        admission.park(request)
        admit(state, admission)


def _take(state: State, request: OpenRequest, row: Row) -> None:
    intake, error = request.intake, _fault(request, row)
    if error is not None:
        fail(state, request, error)
    if intake is None or error is not None:
        return  # The bare end of an input that there never was says nothing new.
    lane = request.lanes[REQUEST_SOURCE]
    if not intake.spend(row):
        fail(state, request, _protocol_error(f"The input at {row.pos} came without credit."))
        return
    step = lane.cursor.check(row)
    if step is Step.GAP:
        what = f"The input came at {row.pos}, not at {lane.cursor.next}."
        fail(state, request, _protocol_error(what))
    elif step is Step.DROP:
        state.counts.rows_repeated += 1
        grant = intake.took(*row_cost(row))
        if grant is not None:
            state.orders.client_grant(request.client.link, grant)
    else:
        _keep(lane, row)
        _bound(state, request, lane, intake)
        state.touch(request)


def _fault(request: OpenRequest, row: Row) -> ErrorInfo | None:
    """Say what is wrong with a piece by itself."""
    word, name = "streamed input", request.plan.pipeline.name
    if request.intake is None and (row.units or row.end is None):
        return unsupported(f"{name} takes no {word}.", param="append").info
    if not row.text and row.body is None:
        return None
    modality = Modality.TEXT if row.body is None else Modality.AUDIO
    if modality in request.plan.pipeline.inputs:
        return None
    word = modality.name.lower()
    return unsupported(
        f"{name} takes no {word}.", param="append", reason="unsupported_modality"
    ).info


def _protocol_error(message: str) -> ErrorInfo:
    return error_for("protocol_error", message)


def _keep(lane: Lane, row: Row) -> None:
    lane.keep(row)
    units, size = row_cost(row)
    lane.taken_units += units
    lane.taken_bytes += size


def _bound(state: State, request: OpenRequest, lane: Lane, intake: Intake) -> None:
    """Keep for no other attempt what the log has no room for; fail if that is not enough."""
    bound = state.settings.input_log_bytes_max
    if lane.size_bytes > bound and not request.unrecoverable:
        request.give_up_recovery()
    admission = state.admissions[request.plan.pipeline.name]
    room = admission.resize(request, intake.opened_bytes + lane.size_bytes)
    if lane.size_bytes > bound or not room:
        fail(state, request, error_for("input_log_full"))


def _waits_for_client(request: OpenRequest) -> bool:
    """Whether nothing is to be done until the client gives more."""
    if request.lanes[REQUEST_SOURCE].closed:
        return False
    return all(
        group.standing in _PLACED
        and all(map(_waits, group.live()))
        and not (group.standing is Standing.WAITING and can_start(group))
        for group in request.groups
    )


def _waits(attempt: Attempt) -> bool:
    """Whether an attempt has been sent all there is of an input that goes on."""
    return any(feed.starved for feed in attempt.feeds.values())
