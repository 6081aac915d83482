"""How requests and attempts end: each of them once."""

from typing import Final, NamedTuple

from services.orchestrator.core import interactions
from services.orchestrator.core.admission import Admission
from services.orchestrator.core.credit import close_feeds
from services.orchestrator.core.effects import (
    AbortAttempt,
    AnswerUnknown,
    DropRequest,
    EndRequest,
    ReleaseHandles,
)
from services.orchestrator.core.history import Kind
from services.orchestrator.core.intake import Turn
from services.orchestrator.core.moves import AttemptState, RequestState
from services.orchestrator.core.replicas import Replica
from services.orchestrator.core.request import Attempt, Group, OpenRequest, Standing, Verdict
from services.orchestrator.core.starting import leave_segments
from services.orchestrator.core.state import State
from services.orchestrator.core.timers import Due
from services.orchestrator.core.views import view_request
from stagemesh.link.core import Row
from stagemesh.media import Modality
from stagemesh.outcome import (
    End,
    ErrorCode,
    ErrorInfo,
    FinishReason,
    Outcome,
    Terminal,
    Timings,
    Usage,
)

__all__ = [
    "Release",
    "abort_attempt",
    "admit",
    "complete",
    "drop_group",
    "fail",
    "fail_or_reject",
    "finish_stopped",
    "forget",
    "leave_client",
    "let_go",
    "release_handles",
    "set_aside",
    "stop",
    "stop_groups",
    "take_usage",
]


class Release(NamedTuple):
    """What is to be released when a request is over."""

    request_id: str
    epoch: int
    holders: tuple[Replica, ...]


_COMPLETED: Final = Verdict(Outcome.COMPLETED, None)


def fail(state: State, request: OpenRequest, error: ErrorInfo) -> None:
    """Let a request fail, unless it is ending already."""
    stop(state, request, Verdict(Outcome.FAILED, error), "failed")


def fail_or_reject(state: State, request: OpenRequest, error: ErrorInfo) -> None:
    """Let a request fail; if nothing of it was started it counts as never taken."""
    outcome = Outcome.FAILED if request.started else Outcome.REJECTED
    stop(state, request, Verdict(outcome, error), "failed")


def stop(
    state: State, request: OpenRequest, verdict: Verdict, cause: str, *, partials: bool = False
) -> None:
    """Give a request its verdict: outputs are dropped, attempts aborted once each.

    With `partials` the client gets the outputs that were made, whatever its credit. The terminal
    follows when every attempt has let go, or after `abort_ack_s`.
    """
    if request.state is RequestState.ORPHANED and request.worked_for and request.verdict is None:
        request.verdict = verdict  # For the next gateway.
        stop_groups(state, request, cause)
    if request.state not in (RequestState.QUEUED, RequestState.RUNNING):
        return
    request.move(RequestState.STOPPING)
    request.verdict = verdict
    request.partials = partials
    why = cause if verdict.error is None else verdict.error.message
    state.note(request, Kind.STOPPING, state=verdict.outcome.name, cause=why)
    state.timers.cancel(request.end_timer)
    if partials:
        _give_held(state, request)
    stop_groups(state, request, cause)
    if request.live:
        request.end_timer = state.arm(state.settings.abort_ack_s, Due.ABORT_ACK, request)
    else:
        _finish(state, request, verdict)


def _give_held(state: State, request: OpenRequest) -> None:
    """Give the client what waits for its credit: no more than the windows of its attempts."""
    rows = request.sender.release()
    state.orders.client_rows(request.client.link).extend(rows)
    for row in rows:
        request.lanes[row.lane].delivered += row.units


def complete(state: State, request: OpenRequest) -> None:
    """End a request that has given its client everything."""
    _finish(state, request, _COMPLETED)


def finish_stopped(state: State, request: OpenRequest) -> None:
    """End a stopping request, whether or not its attempts have let go."""
    if request.verdict is not None:
        _finish(state, request, request.verdict)


def stop_groups(state: State, request: OpenRequest, cause: str) -> None:
    """End all groups of a request, and forget what they made."""
    for lane in request.lanes.values():
        lane.clear()
    request.journal_bytes = 0
    for group in request.groups:
        group.keeping = group.unfed = False
        _stop_group(state, group, cause)


def drop_group(state: State, group: Group, cause: str) -> None:
    """End a group that nobody needs; what it still holds is told to stop."""
    _stop_group(state, group, cause)
    if group.unfed:
        group.unfed = False
        for lane in group.kept_sources:
            lane.unfed -= 1
    group.release_inputs()
    leave_segments(group)


def abort_attempt(state: State, attempt: Attempt, cause: str) -> None:
    """Tell the worker of a running attempt to stop it."""
    if not attempt.running:
        return
    attempt.move(AttemptState.STOPPING)
    link, partials = attempt.replica.link, attempt.group.request.partials
    state.orders.to_worker(
        AbortAttempt(link=link, slot=attempt.slot, cause=cause, partials=partials)
    )
    close_feeds(state, attempt)


def set_aside(state: State, attempt: Attempt, cause: str) -> None:
    """Tell a worker to stop an attempt that is of no use; nobody waits for its answer."""
    if attempt.running:
        link = attempt.replica.link
        state.orders.to_worker(AbortAttempt(link=link, slot=attempt.slot, cause=cause))
        let_go(state, attempt, AttemptState.LOST, by_worker=False, cause=cause)
    elif attempt.state is AttemptState.STOPPING:
        let_go(state, attempt, AttemptState.CANCELLED, by_worker=False, cause="not confirmed")
    elif attempt.state is AttemptState.PENDING:
        attempt.move(AttemptState.CANCELLED)


def let_go(
    state: State,
    attempt: Attempt,
    to: AttemptState,
    *,
    by_worker: bool = True,
    cause: str = "",
) -> None:
    """End an attempt that was submitted; `cause` is for people.

    Its engine slot is free at once if the worker said so, else when the worker will.
    """
    replica = attempt.replica
    attempt.move(to)
    lived_s = state.now_s - attempt.submitted_s
    state.note_attempt(attempt, Kind.ATTEMPT_ENDED, cause=cause, seconds=lived_s)
    del replica.attempts[attempt.slot]
    if not by_worker:
        replica.leftovers[attempt.slot] = attempt.open_lanes
    state.roomy[replica.pool] = None
    close_feeds(state, attempt)
    request = attempt.group.request
    request.live -= 1
    state.touch(request)


def admit(state: State, admission: Admission) -> None:
    """Let in whoever may run now."""
    while (request := admission.next_admitted()) is not None:
        if request.state is RequestState.QUEUED:
            request.move(RequestState.RUNNING)
            request.admitted_s = state.now_s
            state.note(request, Kind.ADMITTED, seconds=state.now_s - request.opened_s)
        if request.intake is not None:
            request.intake.turn = Turn.TAKEN
        state.touch(request)


def release_handles(state: State, release: Release) -> None:
    """Let workers drop what they keep for a request."""
    for replica in release.holders:
        if not replica.lost:
            state.orders.to_worker(
                ReleaseHandles(
                    link=replica.link, request_id=release.request_id, epoch=release.epoch
                )
            )


def take_usage(request: OpenRequest, usage: Usage, timings: Timings) -> None:
    """Note what a worker says of a prompt, the first time that one is told, and of its work."""
    request.compute_s += timings.compute_s
    known = request.prompt
    first = usage.prompt_tokens and not known.prompt_tokens
    request.prompt = Usage(
        prompt_tokens=usage.prompt_tokens if first else known.prompt_tokens,
        cached_tokens=usage.cached_tokens if first else known.cached_tokens,
        audio_input_samples=known.audio_input_samples or usage.audio_input_samples,
    )


def _stop_group(state: State, group: Group, cause: str) -> None:
    group.ticket = None
    state.timers.cancel(group.timer)
    state.timers.cancel(group.join_timer)
    group.move(Standing.OVER)
    interactions.close(state, group)
    for attempt in group.attempts:
        if attempt.state is AttemptState.PENDING:
            attempt.move(AttemptState.CANCELLED)
        else:
            abort_attempt(state, attempt, cause)


def _finish(state: State, request: OpenRequest, verdict: Verdict) -> None:
    request.move(RequestState.DONE)
    usage_complete = not request.live
    for group in request.groups:
        state.timers.cancel(group.join_timer)
        group.move(Standing.OVER)
        for attempt in group.attempts:
            attempt.unanswered = attempt.state is AttemptState.STOPPING
            set_aside(state, attempt, "over")
    if request.partials:
        _close_lanes(state, request)
    terminal = Terminal(
        outcome=verdict.outcome,
        error=verdict.error,
        usage=_usage(request, complete=usage_complete),
        timings=_timings(request, state.now_s),
    )
    del request.client.requests[request.slot]
    state.orders.to_client(
        EndRequest(
            link=request.client.link,
            slot=request.slot,
            request_id=request.request_id,
            terminal=terminal,
        )
    )
    forget(state, request, terminal)


def _close_lanes(state: State, request: OpenRequest) -> None:
    """End the lanes whose first part the client was given."""
    rows = state.orders.client_rows(request.client.link)
    end = End(finish_reason=FinishReason.ABORT)
    for lane in request.lanes.values():
        if lane.visible and not lane.cursor.ended:
            rows.append(Row(request.slot, lane.number, lane.cursor.next, 0, end=end))


def leave_client(
    state: State, request: OpenRequest, terminal: Terminal, *, tell: bool = False
) -> None:
    """Take a request from its client without an end; with `tell`, it hears that it is gone."""
    link, slot = request.client.link, request.slot
    if request.client.requests.pop(slot, None) is not None and tell:
        state.orders.to_client(AnswerUnknown(link=link, slot=slot))
    state.orders.to_client(
        DropRequest(link=link, slot=slot, request_id=request.request_id, terminal=terminal)
    )


def forget(state: State, request: OpenRequest, terminal: Terminal, *, release: bool = True) -> None:
    """Drop every trace of a request but its tombstone and its last view.

    Its payloads are released, unless another owner may have them already.
    """
    for timer in (
        request.deadline_timer, request.end_timer, request.slow_timer, request.renewal_timer,
    ):  # fmt: skip
        state.timers.cancel(timer)
    del state.requests[request.request_id]
    state.touched.pop(request, None)
    why = "" if terminal.error is None else terminal.error.message
    state.note(request, Kind.DONE, state=terminal.outcome.name, cause=why)
    aborted = terminal.error is not None and terminal.error.code is ErrorCode.ABORTED
    state.bury(request, aborted=aborted)
    state.remember(view_request(request, state.now_s, terminal))
    state.held.pop(request, None)
    if release:
        fetching = request.partials or terminal.outcome is Outcome.COMPLETED
        _release(state, request, fetching=fetching)
    admission = state.admissions[request.plan.pipeline.name]
    admission.leave(request)
    admit(state, admission)
    _take_apart(request)


def _take_apart(request: OpenRequest) -> None:
    """Let the parts of a request that is over know each other no more: all of it is freed at once.

    Otherwise it waited for the garbage collector, which stops the process for tens of milliseconds
    when it looks through what a burst of requests left.
    """
    for lane in request.lanes.values():
        lane.attempt = lane.intake = None
    for group in request.groups:
        group.attempts = ()
    request.groups = ()
    request.intake = None


def _release(state: State, request: OpenRequest, *, fetching: bool) -> None:
    """Let workers drop what they keep; a client that was given all of it may still be fetching."""
    later = tuple(replica for replica, shown in request.holders.items() if shown and fetching)
    now = tuple(replica for replica in request.holders if replica not in later)
    release_handles(state, Release(request.request_id, request.work_epoch, now))
    if later:
        release = Release(request.request_id, request.work_epoch, later)
        state.arm(state.settings.release_grace_s, Due.RELEASE, release)


def _usage(request: OpenRequest, *, complete: bool) -> Usage:
    given = dict.fromkeys(Modality, 0)
    for lane in request.lanes.values():
        if lane.visible:
            given[lane.modality] += lane.delivered
    return Usage(
        prompt_tokens=request.prompt.prompt_tokens,
        cached_tokens=request.prompt.cached_tokens,
        completion_tokens=given[Modality.TEXT],
        audio_input_samples=request.prompt.audio_input_samples,
        audio_output_samples=given[Modality.AUDIO],
        images=given[Modality.IMAGE],
        complete=complete,
    )


def _timings(request: OpenRequest, now_s: float) -> Timings:
    admitted_s = now_s if request.admitted_s is None else request.admitted_s
    first_s = request.first_output_s
    return Timings(
        queue_s=admitted_s - request.opened_s,
        first_output_s=0.0 if first_s is None else first_s - request.opened_s,
        compute_s=request.compute_s,
        total_s=now_s - request.opened_s,
    )
