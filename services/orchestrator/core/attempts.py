"""What workers say of attempts, apart from their outputs."""

from typing import Final

from services.orchestrator.core import interactions
from services.orchestrator.core.credit import accept_inputs, pump_feed
from services.orchestrator.core.effects import AbortAttempt, ReleaseHandles
from services.orchestrator.core.ending import (
    abort_attempt,
    fail,
    let_go,
    set_aside,
    stop,
    take_usage,
)
from services.orchestrator.core.moves import AttemptState
from services.orchestrator.core.placing import pend_again
from services.orchestrator.core.replicas import Replica, WorkerState
from services.orchestrator.core.request import Attempt, Group, Loss, Standing, Verdict
from services.orchestrator.core.state import State
from stagemesh.link.core import Grant, Row
from stagemesh.media import Handle
from stagemesh.outcome import End, ErrorCode, ErrorInfo, Outcome, Terminal, error_for, refuses

__all__ = [
    "break_off",
    "end_attempt",
    "end_late_lane",
    "finish_attempt",
    "forget_slot",
    "grant_inputs",
    "hand_back_attempt",
    "late_row",
    "lose_attempt",
    "stall_attempt",
]

_BEGUN: Final = frozenset({AttemptState.STREAMING, AttemptState.FINISHED})

_LOSSES: Final = {Loss.WORK: "The worker gave the attempt up."}


def finish_attempt(state: State, attempt: Attempt) -> None:
    """End an attempt whose lanes have all ended."""
    if attempt.state is AttemptState.STOPPING:
        _stopped(state, attempt)
        return
    let_go(state, attempt, AttemptState.FINISHED)
    group = attempt.group
    if group.prompts and not group.running:
        interactions.close(state, group)
    if group.plan.segmented and not group.lanes[0].cursor.ended:
        _end_run(group)
    elif not (group.live() or group.idle_roles or group.standing is Standing.LOST):
        group.move(Standing.OVER)
        group.release_inputs()


def _end_run(group: Group) -> None:
    """Let a group wait for the next segment; whatever there was of losses is over with its run."""
    group.lanes[0].next_run()
    group.move(Standing.WAITING)
    group.attempts = ()
    group.resumes = group.stale = False
    group.way = group.loss = None
    group.losses = 0
    group.want_inputs()
    for lane in group.sources:
        group.request.journal_bytes += lane.trim()


def end_attempt(state: State, replica: Replica, slot: int, terminal: Terminal) -> None:
    """Take a worker's last word on an attempt whose lanes have not all ended."""
    attempt = replica.attempts.get(slot)
    if attempt is None:
        _free_leftover(state, replica, slot)
        return
    take_usage(attempt.group.request, terminal.usage, terminal.timings)
    attempt.timings = terminal.timings
    if attempt.state is AttemptState.STOPPING:
        _stopped(state, attempt)
        return
    if terminal.outcome is Outcome.CANCELLED and _unasked(terminal.error):
        _lose(state, attempt, AttemptState.CANCELLED, Loss.WORK)
        return
    error = _named(attempt, terminal)
    if terminal.outcome is Outcome.REJECTED and _may_be_refused(attempt, error):
        _refused(state, attempt, error)
        return
    cancelled = terminal.outcome is Outcome.CANCELLED
    ended = AttemptState.CANCELLED if cancelled else AttemptState.FAILED
    let_go(state, attempt, ended, cause=error.message)
    request = attempt.group.request
    if cancelled and error.code is ErrorCode.ABORTED:
        stop(state, request, Verdict(Outcome.CANCELLED, error), error.reason)
    elif terminal.outcome is Outcome.DEADLINE_EXCEEDED:
        stop(state, request, Verdict(Outcome.DEADLINE_EXCEEDED, error), "deadline")
    elif terminal.outcome is Outcome.REJECTED and request.first_output_s is None:
        stop(state, request, Verdict(Outcome.REJECTED, error), "rejected")
    else:
        fail(state, request, error)


def lose_attempt(state: State, attempt: Attempt, loss: Loss) -> None:
    """End an attempt that its worker does not have any more."""
    if attempt.state is AttemptState.STOPPING:
        _stopped(state, attempt)
    else:
        _lose(state, attempt, AttemptState.LOST, loss)


def stall_attempt(state: State, attempt: Attempt) -> None:
    """Give up an attempt whose replica stands still; its engine slot stays taken."""
    if attempt.running:
        error = attempt.error("replica_lost", "The replica has work and makes no step.")
        # It may answer aborts and so seem to move, with nothing to do and the least load.
        attempt.group.avoid.add(attempt.replica.link)
        set_aside(state, attempt, "stalled")
        attempt.group.crash(attempt.role)
        attempt.group.lose(Loss.CRASH, error)


def hand_back_attempt(state: State, replica: Replica, slot: int) -> None:
    """Take an attempt back that a worker gave up in good order.

    That costs nothing if something came of it or the worker is leaving; else it might go on so.
    """
    attempt = replica.attempts.get(slot)
    if attempt is None:
        _free_leftover(state, replica, slot)
    elif attempt.state is AttemptState.STOPPING:
        _stopped(state, attempt)
    else:
        streamed = attempt.state is AttemptState.STREAMING
        free = streamed or replica.state is not WorkerState.READY
        attempt.group.avoid.add(replica.link)
        _lose(state, attempt, AttemptState.CANCELLED, Loss.HANDED_BACK if free else Loss.WORK)


def forget_slot(state: State, replica: Replica, slot: int) -> None:
    """Take a worker's word that a slot means nothing to it."""
    attempt = replica.attempts.get(slot)
    if attempt is None:
        _free_leftover(state, replica, slot)
    else:
        lose_attempt(state, attempt, Loss.WORK)


def break_off(state: State, attempt: Attempt, what: str) -> None:
    """End an attempt whose worker broke the protocol, and its request."""
    state.counts.protocol_errors += 1
    link, cause = attempt.replica.link, f"protocol error: {what}"
    state.orders.to_worker(AbortAttempt(link=link, slot=attempt.slot, cause=cause))
    let_go(state, attempt, AttemptState.FAILED, by_worker=False, cause=cause)
    fail(state, attempt.group.request, attempt.error("protocol_error", f"The worker's {what}."))


def late_row(state: State, replica: Replica, attempt: Attempt | None, row: Row) -> None:
    """Drop a row that nobody waits for; its ends still tell when an engine slot is free."""
    state.counts.rows_late += 1
    if row.body is not None and row.body.handle is not None:
        _drop_handle(state, replica, row.body.handle)
    if attempt is None:
        lanes = replica.leftovers.get(row.slot)
        if lanes is None:
            if replica.strangers.is_new(row.slot):
                state.orders.to_worker(
                    AbortAttempt(link=replica.link, slot=row.slot, cause="unknown here")
                )
        elif row.end is not None:
            lanes.discard(row.lane)
            if not lanes:
                _free_leftover(state, replica, row.slot)
        return
    end_late_lane(state, attempt, row.lane, row.end)


def end_late_lane(state: State, attempt: Attempt, lane: int, end: End | None) -> None:
    """Take note of the end of a lane, if this is it, of an attempt that is being stopped."""
    if end is not None:
        take_usage(attempt.group.request, end.usage, end.timings)
        attempt.timings = end.timings
        attempt.open_lanes.discard(lane)
        if not attempt.open_lanes:
            _stopped(state, attempt)


def grant_inputs(state: State, replica: Replica, grants: list[Grant]) -> None:
    """Send attempts what their workers have room for."""
    for grant in grants:
        attempt = replica.attempts.get(grant.slot)
        if attempt is None or not attempt.running:
            continue
        if not attempt.group.request.worked_for:
            continue  # An orphan's inputs are gone.
        accept_inputs(attempt)
        feed = attempt.feeds.get(grant.source)
        if feed is not None:
            feed.window.grant(grant.units, grant.bytes)
            if feed.lane.intake is not None:
                state.touch(attempt.group.request)  # It goes on when its request has its turn.
            else:
                pump_feed(state, feed, attempt.group.request)


def _lose(state: State, attempt: Attempt, to: AttemptState, loss: Loss) -> None:
    """End an attempt; what it has not given is to be made by another one."""
    error = attempt.error("replica_lost", _LOSSES.get(loss, ""))
    if loss is Loss.CRASH:
        attempt.group.crash(attempt.role)
    let_go(state, attempt, to, cause=error.message)
    attempt.group.lose(loss, error)


def _unasked(error: ErrorInfo | None) -> bool:
    """Whether a worker cancelled for reasons of its own, and not because it was told to."""
    if error is None:
        return True
    return error.code is ErrorCode.ABORTED and error.reason != "stopped_by_operator"


def _drop_handle(state: State, replica: Replica, handle: Handle) -> None:
    """Let a worker drop bytes that nobody will fetch; a lease ends what is not known here."""
    request = state.requests.get(handle.request_id)
    known = request or state.tombstones.find(handle.request_id, state.now_s)
    if known is not None:
        state.orders.to_worker(
            ReleaseHandles(
                link=replica.link,
                request_id=handle.request_id,
                epoch=known.work_epoch,
                handle_ids=(handle.handle_id,),
            )
        )


def _stopped(state: State, attempt: Attempt) -> None:
    let_go(state, attempt, AttemptState.CANCELLED)
    _maybe_pend_again(state, attempt)


def _may_be_refused(attempt: Attempt, error: ErrorInfo) -> bool:
    """Whether nothing came of the submission yet, so that it can be made elsewhere."""
    beside = [other for other in attempt.group.attempts if other.number == attempt.number]
    begun = any(other.state in _BEGUN for other in beside)
    taken = any(feed.accepted for other in beside for feed in other.feeds.values())
    submitted = attempt.state is AttemptState.SUBMITTED
    return refuses(error.code) and submitted and not begun and not taken


def _refused(state: State, attempt: Attempt, error: ErrorInfo) -> None:
    group = attempt.group
    state.counts.refusals += 1
    group.refusal = error
    group.avoid.add(attempt.replica.link)
    group.want_inputs()
    let_go(state, attempt, AttemptState.REFUSED, cause=error.message)
    for other in group.attempts:
        if other.number == attempt.number:
            abort_attempt(state, other, "a companion was refused")
    _maybe_pend_again(state, attempt)


def _maybe_pend_again(state: State, attempt: Attempt) -> None:
    """Let a refused group try again once all of its submission has let go."""
    group = attempt.group
    beside = [other for other in group.attempts if other.number == attempt.number]
    refused = any(other.state is AttemptState.REFUSED for other in beside)
    goes_on = group.standing in (Standing.LIVE, Standing.PENDING)
    wants = goes_on and group.request.worked_for
    if refused and wants and not any(other in beside for other in group.live()):
        pend_again(state, group)


def _free_leftover(state: State, replica: Replica, slot: int) -> None:
    if replica.leftovers.pop(slot, None) is not None:
        state.roomy[replica.pool] = None


def _named(attempt: Attempt, terminal: Terminal) -> ErrorInfo:
    """Give the cause of an attempt's end, with the names of its place filled in."""
    error = terminal.error
    if terminal.outcome is Outcome.COMPLETED:
        return attempt.error("protocol_error", "The worker ended an attempt with open lanes.")
    late = terminal.outcome is Outcome.DEADLINE_EXCEEDED
    return attempt.placed(error or error_for("deadline_exceeded" if late else "engine_error"))
