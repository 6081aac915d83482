"""Clients come, open requests, abort them, and go."""

from math import inf, isfinite
from typing import Final

from services.orchestrator.core import holding
from services.orchestrator.core.choosing import prefix_of
from services.orchestrator.core.detaching import begins, reattach, unconfirmed
from services.orchestrator.core.door import request_bytes
from services.orchestrator.core.effects import (
    AnswerUnknown,
    EndRequest,
    HandBackRequest,
    SayGoAway,
)
from services.orchestrator.core.ending import admit, fail, stop
from services.orchestrator.core.events import (
    AbortAsked,
    ClientAttached,
    FenceRaised,
    Opened,
    RequestAbortAsked,
)
from services.orchestrator.core.history import Entry, Kind
from services.orchestrator.core.leaving import drop, hand_back, orphan
from services.orchestrator.core.moves import RequestState
from services.orchestrator.core.plan import Plan
from services.orchestrator.core.request import Client, OpenRequest, Standing, Verdict, Wishes
from services.orchestrator.core.standby import Standby
from services.orchestrator.core.state import State
from services.orchestrator.core.streaming import check_inputs, keep_given
from services.orchestrator.core.takeover import fence_workers, fits, take_over
from services.orchestrator.core.timers import Due
from services.orchestrator.core.views import RequestView
from stagemesh.control import ControlKind
from stagemesh.errors import MeshError, invalid, unsupported
from stagemesh.outcome import ErrorCode, ErrorInfo, Outcome, Terminal, error_for
from stagemesh.pipeline import ReplicaChoice

_NO_EPOCH: Final = 2**32 - 1
"""The epoch of a request that its gateway has no more."""

__all__ = [
    "abort",
    "abort_by_id",
    "attach_client",
    "deadline_due",
    "drain",
    "drain_due",
    "fenced_by_client",
    "lose_client",
    "open_request",
    "orphan_due",
    "slow_client_due",
    "undrain",
]


def attach_client(state: State, event: ClientAttached) -> None:
    """Take a client link in."""
    if event.link in state.clients:
        return
    state.clients[event.link] = Client(
        event.link, event.window_units, event.window_bytes, event.mirrors
    )
    if state.draining:
        state.orders.to_client(SayGoAway(link=event.link, reason="draining", drain_s=0.0))


def open_request(state: State, event: Opened) -> None:
    """Take a request, or end it at once: a request that is not taken leaves nothing behind."""
    client = state.clients.get(event.link)
    if client is None or event.slot in client.requests:
        state.counts.opens_ignored += 1
        return
    state.opens_seen += 1
    older = state.requests.get(event.request_id)
    if older is not None and (rows := unconfirmed(older, event)) is not None:
        reattach(state, older, event, client, rows)
        return
    if older is not None and event.epoch > older.epoch:
        drop(state, older, "It was opened again.", release=False, tell=True)
    try:
        plan, input_bytes = _checked(state, event)
    except MeshError as error:
        _turn_away(state, event, error.info)
        return
    if not fits(plan, event.journal):
        state.orders.to_client(
            HandBackRequest(link=event.link, slot=event.slot, request_id=event.request_id)
        )
        return
    request = _enter(state, event, client, plan, input_bytes)
    if event.epoch > 1:
        state.counts.takeovers += 1
        fence_workers(state, request, event.journal)
    if event.journal.lanes or event.journal.placed:
        take_over(request, event.journal)
    keep_given(request, event.inputs)
    holding.hold(state, request)
    admit(state, state.admissions[plan.pipeline.name])


def _enter(
    state: State, event: Opened, client: Client, plan: Plan, input_bytes: int
) -> OpenRequest:
    left_s, settings = event.deadline_left_s, state.settings
    if not isfinite(left_s) or left_s == 0:
        left_s = plan.pipeline.deadline_s
    state.requests_seen += 1
    request = OpenRequest(
        number=state.requests_seen,
        request_id=event.request_id,
        epoch=event.epoch,
        client=client,
        slot=event.slot,
        plan=plan,
        body=event.body,
        input_bytes=input_bytes,
        opened_s=state.now_s,
        deadline_s=state.now_s + left_s,
        serial=state.opens_seen,
        label=event.request.label,
        tenant=event.request.tenant,
        priority=event.request.priority,
        wishes=Wishes(event.request.params, event.request.stage_params),
        prefix=_prefix(state, event, plan),
        input_window=(settings.window_units, settings.window_bytes) if plan.streamed else None,
        standby=_standby(event),
    )
    state.note(request, Kind.OPENED)
    client.requests[event.slot] = request
    state.requests[event.request_id] = request
    request.deadline_timer = state.timers.at(request.deadline_s, Due.DEADLINE, request)
    state.admissions[plan.pipeline.name].enter(request)
    return request


def _standby(event: Opened) -> Standby | None:
    if not event.detach_s:
        return None
    return Standby(event.detach_s, taken_over=event.owner_since > 0)


def _prefix(state: State, event: Opened, plan: Plan) -> bytes:
    """Give what stands for the beginning of a request, if a pool that it may need goes by that."""
    pools = (state.pools[stage.pool] for stage in plan.pipeline.stages)
    if any(pool.choice is ReplicaChoice.PREFIX_AFFINITY for pool in pools):
        return prefix_of(event.request.messages)
    return b""


def abort(state: State, event: AbortAsked) -> None:
    """End one of a client's own requests."""
    client = state.clients.get(event.link)
    if client is None:
        return
    request = client.requests.get(event.slot)
    if request is None:
        state.orders.to_client(AnswerUnknown(link=event.link, slot=event.slot))
        return
    verdict = Verdict(Outcome.CANCELLED, _aborted(event.cause))
    stop(state, request, verdict, event.cause, partials=event.partials)


def abort_by_id(state: State, event: RequestAbortAsked) -> None:
    """End a request wherever it stands; one that comes later is refused for a while.

    Whoever asks for another tenant's request changes nothing.
    """
    request = state.requests.get(event.request_id)
    if request is None:
        state.refuse(event.request_id, event.tenant)
    elif event.tenant not in ("", request.tenant):
        return
    elif request.state is RequestState.ORPHANED and not request.worked_for:
        drop(state, request, "It was aborted.", release=True, reason="aborted")
    else:
        verdict = Verdict(Outcome.CANCELLED, _aborted(event.cause))
        stop(state, request, verdict, event.cause, partials=event.partials)
        state.bury(request, aborted=True)


def lose_client(state: State, link: int) -> None:
    """Keep what a gateway had open for a while, since it may open it again, here or elsewhere."""
    client = state.clients.pop(link, None)
    if client is None:
        return
    requests, client.requests = list(client.requests.values()), {}
    for request in requests:
        if client.mirrors:
            orphan(state, request)
        else:
            drop(state, request, "The client is gone.", release=True)


def orphan_due(state: State, request: OpenRequest) -> None:
    """End a request that no gateway has come for."""
    drop(state, request, "The client is gone.", release=True)


def fenced_by_client(state: State, event: FenceRaised) -> None:
    """End a request that its gateway has given to another owner, or has no more; or detach it."""
    client = state.clients.get(event.link)
    request = None if client is None else client.requests.get(event.slot)
    if request is not None and event.detach and request.standby is not None:
        del request.client.requests[request.slot]
        orphan(state, request)
    elif request is not None and event.epoch > request.epoch:
        drop(state, request, "It was fenced.", release=event.epoch == _NO_EPOCH)


def drain(state: State, drain_s: float) -> None:
    """Take nothing new.

    What a gateway has open it gets back, if there are other orchestrators to go on with it. Of
    everything else, what waits ends now, and what runs has `drain_s`.
    """
    state.draining = True
    state.changes += 1
    state.timers.cancel(state.drain_timer)
    state.drain_timer = state.arm(max(0.0, drain_s), Due.DRAIN, state)
    for client in state.clients.values():
        state.orders.to_client(SayGoAway(link=client.link, reason="draining", drain_s=drain_s))
    elsewhere = state.settings.orchestrators > 1
    for request in list(state.requests.values()):
        if request.state is RequestState.ORPHANED:
            drop(state, request, "The process is being stopped.", release=True)
        elif elsewhere and request.mirrored and request.state is not RequestState.STOPPING:
            hand_back(state, request)
    waiting = [r for admission in state.admissions.values() for r in admission.all_waiting()]
    for request in (*waiting, *state.held):
        stop(state, request, Verdict(Outcome.REJECTED, error_for("draining")), "draining")


def undrain(state: State) -> None:
    """Take requests again."""
    state.draining = False
    state.changes += 1
    state.timers.cancel(state.drain_timer)
    state.drain_timer = None


def drain_due(state: State) -> None:
    """End what still runs."""
    state.drain_timer = None
    for request in list(state.requests.values()):
        if request.state is RequestState.ORPHANED:
            drop(state, request, "The process is being stopped.", release=True)
        else:
            fail(state, request, error_for("draining"))


def deadline_due(state: State, request: OpenRequest) -> None:
    """End a request whose time is up; the cause names the stage that spent it."""
    if request.state is RequestState.ORPHANED:
        drop(state, request, "Its time was up.", release=True)
        return
    if request.state is RequestState.QUEUED:
        error = error_for("deadline_exceeded", "The time was up before there was room to start.")
    else:
        group = next((g for g in request.groups if g.standing is not Standing.OVER), None)
        stage = None if group is None else group.stage
        error = error_for(
            "deadline_exceeded",
            stage="" if stage is None else stage.name,
            pool="" if stage is None else stage.pool,
        )
    stop(state, request, Verdict(Outcome.DEADLINE_EXCEEDED, error), "deadline")


def slow_client_due(state: State, request: OpenRequest) -> None:
    """End a request whose client has taken nothing for `slow_s`."""
    request.slow_timer = None
    if request.stuck_since_s is None or request.state is not RequestState.RUNNING:
        return
    due_s = request.stuck_since_s + state.settings.slow_s
    if state.now_s < due_s:
        request.slow_timer = state.timers.at(due_s, Due.SLOW_CLIENT, request)
    else:
        fail(state, request, error_for("slow_consumer"))


def _checked(state: State, event: Opened) -> tuple[Plan, int]:
    """Check everything that can keep a request out; give its plan and its size."""
    stone = state.tombstones.find(event.request_id, state.now_s)
    refused = state.refuses(event.request_id, event.request.tenant)
    if refused or (stone is not None and stone.aborted):
        raise MeshError(_aborted("aborted by its id"))
    if state.draining:
        raise MeshError(error_for("draining"))
    if stone is not None and stone.epoch > event.epoch:
        raise MeshError(_aborted("it is open under a higher epoch"))
    if event.request_id in state.requests or (stone is not None and stone.epoch >= event.epoch):
        raise MeshError(error_for("conflict", "This request was opened already."))
    if event.deadline_left_s < 0:
        raise MeshError(error_for("deadline_exceeded"))
    context_tokens = {name: pool.context_tokens for name, pool in state.pools.items()}
    check_inputs(event.inputs)
    takes = {name: pool.card.params for name, pool in state.pools.items() if pool.card is not None}
    plan = state.door.enter(
        event.request, context_tokens=context_tokens, takes=takes, streamed=event.streamed
    )
    if not 0.0 <= event.detach_s < inf:
        raise invalid("detach_s must be a number of seconds.", param="detach_s")
    if event.owner_since and not begins(plan, event.journal):
        raise MeshError(error_for("link_lost", _OWNER_LOST))
    input_bytes = request_bytes(event.request)
    _check_adapter(state, plan, event.request.adapter)
    holding.check(state, plan, event.request.tenant, again=event.epoch > 1)
    state.admissions[plan.pipeline.name].check(
        event.request.tenant, input_bytes, again=event.epoch > 1
    )
    return plan, input_bytes


def _check_adapter(state: State, plan: Plan, adapter: str) -> None:
    """See whether any stage that reads the client's input can use adapters, if one is named."""
    if not adapter:
        return
    readers = [group.stage for group in plan.groups if group.stage.reads_input]
    cards = [state.pools[stage.pool].card for stage in readers]
    if not any(card is None or ControlKind.ADAPTERS in card.control.kinds for card in cards):
        raise unsupported(f"{plan.pipeline.name} takes no adapters.", param="adapter")


def _turn_away(state: State, event: Opened, error: ErrorInfo) -> None:
    terminal = Terminal(outcome=_OUTCOMES.get(error.code, Outcome.REJECTED), error=error)
    state.orders.to_client(
        EndRequest(link=event.link, slot=event.slot, request_id=event.request_id, terminal=terminal)
    )
    if event.request_id not in state.requests and event.request_id not in state.recent:
        state.remember(
            RequestView(
                request_id=event.request_id,
                model=event.request.model,
                label=event.request.label[: state.settings.door.word_chars_max],
                state=RequestState.DONE.name,
                age_s=0.0,
                terminal=terminal,
                tenant=event.request.tenant,
                epoch=event.epoch,
                serial=state.opens_seen,
                opened_s=state.now_s,
                entries=(
                    Entry(at_s=state.now_s, kind=Kind.OPENED),
                    Entry(
                        at_s=state.now_s,
                        kind=Kind.DONE,
                        state=terminal.outcome.name,
                        cause=error.message,
                    ),
                ),
            )
        )


_OWNER_LOST: Final = "The orchestrator that had the request is lost, after its gateway was."

_OUTCOMES = {
    ErrorCode.ABORTED: Outcome.CANCELLED,
    ErrorCode.LINK_LOST: Outcome.FAILED,
    ErrorCode.DEADLINE: Outcome.DEADLINE_EXCEEDED,
}


def _aborted(cause: str) -> ErrorInfo:
    return error_for("aborted", f"The request was aborted: {cause}." if cause else "")
