"""The orchestrator as a pure state machine.

It reads no clock, opens no socket and awaits nothing. The same events at the same times give the
same effects.
"""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from services.orchestrator.core import (
    attempts,
    control,
    hollow,
    interactions,
    leaving,
    membership,
    opening,
)
from services.orchestrator.core.effects import Effect, PublishedModel, RenewHandles
from services.orchestrator.core.ending import complete, finish_stopped, release_handles
from services.orchestrator.core.events import (
    AbortAsked,
    AttemptEnded,
    AttemptUnknown,
    ClientAttached,
    ClientLost,
    ControlAsked,
    ControlDone,
    CreditGranted,
    DrainAsked,
    Event,
    Fenced,
    FenceRaised,
    HandedBack,
    HandleLost,
    InputCreditGranted,
    InputsAppended,
    InteractAsked,
    Interacted,
    Opened,
    ReplicaAttached,
    ReplicaListed,
    ReplicaLost,
    ReplicaReported,
    RequestAbortAsked,
    RowsArrived,
    Tick,
    UndrainAsked,
)
from services.orchestrator.core.moves import RequestState
from services.orchestrator.core.outputs import grant_client, take_rows
from services.orchestrator.core.placing import placement_due, pump
from services.orchestrator.core.request import OpenRequest
from services.orchestrator.core.routing import advance, join_due
from services.orchestrator.core.settings import CoreSettings
from services.orchestrator.core.state import State
from services.orchestrator.core.streaming import take_inputs
from services.orchestrator.core.timers import Due
from services.orchestrator.core.views import (
    Counts,
    ReplicaView,
    RequestQuery,
    RequestView,
    list_requests,
    view_replica,
    view_request,
)
from stagemesh.pipeline import Mesh

__all__ = ["Orchestrator"]


class Orchestrator:
    """Decides what happens to every request; never does it."""

    def __init__(self, mesh: Mesh, settings: CoreSettings | None = None) -> None:
        self._state = State(mesh, settings or CoreSettings())
        self._take: Mapping[type[Any], Callable[[Any], None]] = {
            AbortAsked: self._abort_asked,
            AttemptEnded: self._attempt_ended,
            AttemptUnknown: self._attempt_unknown,
            ClientAttached: self._client_attached,
            ClientLost: self._client_lost,
            ControlAsked: self._control_asked,
            ControlDone: self._control_done,
            CreditGranted: self._credit_granted,
            DrainAsked: self._drain_asked,
            FenceRaised: self._fence_raised,
            Fenced: self._fenced,
            HandedBack: self._handed_back,
            HandleLost: self._handle_lost,
            InputCreditGranted: self._input_credit_granted,
            InputsAppended: self._inputs_appended,
            InteractAsked: self._interact_asked,
            Interacted: self._interacted,
            Opened: self._opened,
            ReplicaAttached: self._replica_attached,
            ReplicaListed: self._replica_listed,
            ReplicaLost: self._replica_lost,
            ReplicaReported: self._replica_reported,
            RequestAbortAsked: self._request_abort_asked,
            RowsArrived: self._rows_arrived,
            Tick: self._ticked,
            UndrainAsked: self._undrain_asked,
        }
        self._fire: Mapping[Due, Callable[[Any], None]] = {
            Due.ABORT_ACK: self._abort_ack_due,
            Due.CONTROL: self._control_due,
            Due.DEADLINE: self._deadline_due,
            Due.DRAIN: self._drain_due,
            Due.JOIN: self._join_due,
            Due.ORPHAN: self._orphan_due,
            Due.PLACEMENT: self._placement_due,
            Due.RELEASE: self._release_due,
            Due.RENEWAL: self._renewal_due,
            Due.SLOW_CLIENT: self._slow_client_due,
            Due.STALL: self._stall_due,
            Due.TOMBSTONES: self._tombstones_due,
            Due.USAGE_WAIT: self._usage_wait_due,
        }

    def step(self, event: Event, now_s: float) -> list[Effect]:
        """Take one event; return the effects to perform, in order. Time never goes back here."""
        state = self._state
        state.now_s = max(state.now_s, now_s)
        self._take[type(event)](event)
        self._settle()
        effects = state.orders.take()
        while (due := state.timers.take_due(state.now_s)) is not None:
            self._fire[due[0]](due[1])
            self._settle()
            effects += state.orders.take()
        return effects

    @property
    def next_wakeup_s(self) -> float | None:
        """When it wants a `Tick` at the latest, on the clock of `now_s`."""
        return self._state.timers.next_s

    @property
    def requests_open(self) -> int:
        """How many requests have no terminal yet."""
        return len(self._state.requests)

    @property
    def changes(self) -> int:
        """How often the replicas, or this process, have changed in what operators see."""
        return self._state.changes

    @property
    def models(self) -> tuple[PublishedModel, ...]:
        """Which models can be served, as the last `PublishModels` said, or would have."""
        return self._state.published

    @property
    def counts(self) -> Counts:
        """What has happened since the start; to be read only."""
        return self._state.counts

    def request_view(self, request_id: str) -> RequestView | None:
        """Show a request that is open, or ended not long ago; its age is that of the last step."""
        request = self._state.requests.get(request_id)
        if request is not None:
            return view_request(request, self._state.now_s)
        return self._state.recent.get(request_id)

    def request_views(self, query: RequestQuery) -> list[RequestView]:
        """Show the requests that match, those opened last first."""
        state = self._state
        query = msgspec.structs.replace(query, model=state.door.name_of(query.model))
        return list_requests(state.requests.values(), state.recent.values(), query, state.now_s)

    def replica_views(self) -> tuple[ReplicaView, ...]:
        """Show the replicas that have a link, in the order in which they attached."""
        return tuple(view_replica(replica) for replica in self._state.replicas.values())

    def footprint(self) -> dict[str, int]:
        """Tell how much is kept of requests that are open or over, by kind, apart from views."""
        state = self._state
        return {
            "requests": len(state.requests),
            "running": sum(admission.running for admission in state.admissions.values()),
            "tenants": sum(admission.tenants for admission in state.admissions.values()),
            "held": len(state.held),
            "controls": len(state.controls),
            "waiting": sum(admission.waiting for admission in state.admissions.values()),
            "idle": sum(admission.idle for admission in state.admissions.values()),
            "input_bytes": sum(admission.input_bytes for admission in state.admissions.values()),
            "client_slots": sum(len(client.requests) for client in state.clients.values()),
            "attempts": sum(len(replica.attempts) for replica in state.replicas.values()),
            "tickets": sum(len(q.valid()) for q in state.ticket_queues()),
            "tombstones": len(state.tombstones) + len(state.refusals),
            "timers": len(state.timers),
        }

    def _settle(self) -> None:
        """Do all that follows from what has changed."""
        state = self._state
        while state.touched or state.roomy:
            while state.touched:
                request = next(iter(state.touched))
                del state.touched[request]
                advance(state, request)
            if state.roomy:
                pool = next(iter(state.roomy))
                del state.roomy[pool]
                pump(state, pool)

    # Clients

    def _client_attached(self, event: ClientAttached) -> None:
        opening.attach_client(self._state, event)

    def _client_lost(self, event: ClientLost) -> None:
        opening.lose_client(self._state, event.link)

    def _opened(self, event: Opened) -> None:
        opening.open_request(self._state, event)

    def _abort_asked(self, event: AbortAsked) -> None:
        opening.abort(self._state, event)

    def _request_abort_asked(self, event: RequestAbortAsked) -> None:
        opening.abort_by_id(self._state, event)

    def _inputs_appended(self, event: InputsAppended) -> None:
        client = self._state.clients.get(event.link)
        if client is not None:
            take_inputs(self._state, client, event.rows)

    def _interact_asked(self, event: InteractAsked) -> None:
        client = self._state.clients.get(event.link)
        if client is not None:
            interactions.ask(self._state, client, event)

    def _credit_granted(self, event: CreditGranted) -> None:
        client = self._state.clients.get(event.link)
        if client is None:
            return
        for grant in event.grants:
            request = client.requests.get(grant.slot)
            if request is not None and request.state is RequestState.RUNNING:
                grant_client(self._state, request, grant)

    def _handle_lost(self, event: HandleLost) -> None:
        client = self._state.clients.get(event.link)
        replica = self._state.replicas.get(event.link)
        if client is not None and event.slot in client.requests:
            hollow.lose_for_client(self._state, client.requests[event.slot], event.handle_id)
        elif replica is not None and event.slot in replica.attempts:
            hollow.lose_for_attempt(self._state, replica.attempts[event.slot], event.handle_id)

    def _fence_raised(self, event: FenceRaised) -> None:
        opening.fenced_by_client(self._state, event)

    def _drain_asked(self, event: DrainAsked) -> None:
        opening.drain(self._state, event.drain_s)

    def _undrain_asked(self, event: UndrainAsked) -> None:
        opening.undrain(self._state)

    # Operators

    def _control_asked(self, event: ControlAsked) -> None:
        control.ask(self._state, event)

    def _control_done(self, event: ControlDone) -> None:
        control.answer(self._state, event)

    def _control_due(self, call: control.ControlCall) -> None:
        control.call_due(self._state, call)

    # Workers

    def _replica_attached(self, event: ReplicaAttached) -> None:
        membership.attach(self._state, event)
        replica = self._state.replicas.get(event.link)
        if replica is not None:
            control.greet(self._state, replica)

    def _replica_reported(self, event: ReplicaReported) -> None:
        replica = self._state.replicas.get(event.link)
        if replica is not None:
            membership.report(self._state, replica, event)

    def _replica_listed(self, event: ReplicaListed) -> None:
        membership.list_replica(self._state, event.replica_id, listed=event.listed)

    def _replica_lost(self, event: ReplicaLost) -> None:
        replica = self._state.replicas.get(event.link)
        membership.lose_replica(self._state, event.link)
        if replica is not None:
            control.lose(self._state, replica)

    def _rows_arrived(self, event: RowsArrived) -> None:
        replica = self._state.replicas.get(event.link)
        if replica is not None:
            membership.progressed(self._state, replica)
            take_rows(self._state, replica, event.rows)

    def _attempt_ended(self, event: AttemptEnded) -> None:
        replica = self._state.replicas.get(event.link)
        if replica is not None:
            membership.progressed(self._state, replica)
            attempts.end_attempt(self._state, replica, event.slot, event.terminal)

    def _attempt_unknown(self, event: AttemptUnknown) -> None:
        replica = self._state.replicas.get(event.link)
        if replica is not None:
            attempts.forget_slot(self._state, replica, event.slot)

    def _handed_back(self, event: HandedBack) -> None:
        replica = self._state.replicas.get(event.link)
        if replica is not None:
            attempts.hand_back_attempt(self._state, replica, event.slot)

    def _fenced(self, event: Fenced) -> None:
        request = self._state.requests.get(event.request_id)
        replica = self._state.replicas.get(event.link)
        if request is None or replica is None:
            return
        if event.epoch > request.epoch:
            leaving.drop(self._state, request, "It was fenced.", release=False)
        elif event.epoch == request.work_epoch and request.worked_for:
            hollow.keep_held(self._state, request, replica, event.held)

    def _interacted(self, event: Interacted) -> None:
        replica = self._state.replicas.get(event.link)
        if replica is not None:
            interactions.take_answer(self._state, replica, event)

    def _input_credit_granted(self, event: InputCreditGranted) -> None:
        replica = self._state.replicas.get(event.link)
        if replica is not None:
            attempts.grant_inputs(self._state, replica, event.grants)

    # Time

    def _ticked(self, event: Tick) -> None:
        """Nothing but time has happened."""

    def _deadline_due(self, request: OpenRequest) -> None:
        opening.deadline_due(self._state, request)

    def _orphan_due(self, request: OpenRequest) -> None:
        opening.orphan_due(self._state, request)

    def _abort_ack_due(self, request: OpenRequest) -> None:
        finish_stopped(self._state, request)

    def _usage_wait_due(self, request: OpenRequest) -> None:
        complete(self._state, request)

    def _slow_client_due(self, request: OpenRequest) -> None:
        opening.slow_client_due(self._state, request)

    def _placement_due(self, group: Any) -> None:
        placement_due(self._state, group)

    def _join_due(self, group: Any) -> None:
        join_due(self._state, group)

    def _stall_due(self, replica: Any) -> None:
        membership.stall_due(self._state, replica)

    def _drain_due(self, _: State) -> None:
        opening.drain_due(self._state)

    def _release_due(self, release: Any) -> None:
        release_handles(self._state, release)

    def _renewal_due(self, request: OpenRequest) -> None:
        state = self._state
        request.renewal_timer = state.arm(state.settings.lease_s / 3, Due.RENEWAL, request)
        for replica in request.holders:
            if not replica.lost:
                state.orders.to_worker(
                    RenewHandles(
                        link=replica.link, request_id=request.request_id, epoch=request.work_epoch
                    )
                )

    def _tombstones_due(self, _: object) -> None:
        self._state.sweep()
