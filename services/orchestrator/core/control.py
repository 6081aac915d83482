"""Control calls: sent to many replicas at once, and answered together.

Each goes beside requests, with a number of its own; whoever has not answered in time, or is lost,
has failed by himself. What comes later, or was never asked for, is dropped and counted.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

import msgspec

from services.orchestrator.core.effects import AnswerControl, AskWorker, ReplicaResult
from services.orchestrator.core.events import ControlAsked, ControlDone
from services.orchestrator.core.membership import availability, changed
from services.orchestrator.core.replicas import Replica, WorkerState
from services.orchestrator.core.state import State
from services.orchestrator.core.timers import Due, Timer
from services.orchestrator.core.wills import missing, obeys, taken, undone
from stagemesh.control import Answer, Call, Drain, Undrain
from stagemesh.outcome import error_for

__all__ = ["ControlCall", "answer", "ask", "call_due", "greet", "lose"]

DRAINED_MAX: Final = 4096
"""How many replicas are remembered to be taken out."""


@dataclass(slots=True, eq=False)
class ControlCall:
    """One call, until every replica has answered or its time is up.

    `call_id` is 0 where an operator's will is done to a replica that has just come.
    """

    call_id: int
    call: Call
    begun_s: float
    open: dict[int, Replica] = field(default_factory=dict)
    """Who was asked and has not answered, by the number of the control."""
    results: list[ReplicaResult] = field(default_factory=list)
    timer: Timer | None = None


def ask(state: State, event: ControlAsked) -> None:
    """Send a call to every replica that it is for."""
    calls = {call.call_id for call in state.controls.values() if call.call_id}
    if len(calls) >= state.settings.controls_max:
        error = error_for("queue_full", "Too many control calls are open.", retry_after_s=1.0)
        state.orders.to_operator(AnswerControl(call_id=event.call_id, error=error))
        return
    _undo(state, event)
    call = ControlCall(event.call_id, event.call, state.now_s)
    # A call that nobody waits for may take as long as others do.
    worker_s = event.wait_s or state.settings.control_s
    for replica in _targets(state, event):
        _send(state, call, replica, worker_s)
    call.timer = state.arm(event.wait_s, Due.CONTROL, call)
    _finish_if_complete(state, call)


def greet(state: State, replica: Replica) -> None:
    """Do to a replica that has just come what operators want of its pool, before it gets work."""
    if replica.state is WorkerState.STARTING:
        return  # It comes again once its engine is loaded.
    drain_s = state.drained.get(replica.replica_id)
    for one in missing(replica.pool.will, replica.gate, drain_s=drain_s):
        call = ControlCall(0, one, state.now_s)
        replica.owed += 1
        _send(state, call, replica, state.settings.control_s)
        call.timer = state.arm(state.settings.control_s, Due.CONTROL, call)
    if replica.owed:
        availability(state, replica)


def answer(state: State, event: ControlDone) -> None:
    """Take what came of a call at one replica."""
    call = state.controls.get(event.control_id)
    replica = None if call is None else call.open.get(event.control_id)
    if call is None or replica is None or replica.link != event.link:
        state.counts.control_answers_late += 1
        return
    if event.answer.error is None:
        _note(state, call.call, replica)
    _close(state, call, event.control_id, event.answer)
    _finish_if_complete(state, call)


def lose(state: State, replica: Replica) -> None:
    """Let the calls fail at a replica that is gone: nobody waits for it in vain."""
    for control_id, call in list(state.controls.items()):
        if call.open.get(control_id) is replica:
            error = error_for("replica_lost", "The link to it was lost during the call.")
            _close(state, call, control_id, Answer(error=error))
            _finish_if_complete(state, call)


def call_due(state: State, call: ControlCall) -> None:
    """Let a call fail at those that have not answered."""
    call.timer = None
    for control_id in list(call.open):
        error = error_for("deadline_exceeded", "It did not answer in time.")
        _close(state, call, control_id, Answer(error=error))
    _finish(state, call)


def _targets(state: State, event: ControlAsked) -> Iterable[Replica]:
    for replica in state.replicas.values():
        named = replica.pool.name in event.pools or replica.replica_id in event.replica_ids
        if named and not replica.superseded:
            yield replica


def _send(state: State, call: ControlCall, replica: Replica, timeout_s: float) -> None:
    state.control_ids += 1
    call.open[state.control_ids] = replica
    replica.asked += 1
    state.controls[state.control_ids] = call
    state.orders.control(
        AskWorker(
            link=replica.link, control_id=state.control_ids, call=call.call, timeout_s=timeout_s
        )
    )


def _close(state: State, call: ControlCall, control_id: int, answered: Answer) -> None:
    replica = call.open.pop(control_id)
    replica.asked -= 1
    del state.controls[control_id]
    if not call.call_id:
        replica.owed -= 1
        if not replica.lost:
            availability(state, replica)
    call.results.append(
        ReplicaResult(
            pool=replica.pool.name,
            replica_id=replica.replica_id,
            incarnation=replica.incarnation,
            answer=_named(answered, replica),
            took_s=state.now_s - call.begun_s,
        )
    )


def _finish_if_complete(state: State, call: ControlCall) -> None:
    if not call.open:
        _finish(state, call)


def _finish(state: State, call: ControlCall) -> None:
    state.timers.cancel(call.timer)
    if call.call_id:
        results = sorted(call.results, key=lambda one: (one.pool, one.replica_id))
        state.orders.to_operator(AnswerControl(call_id=call.call_id, results=tuple(results)))


def _undo(state: State, event: ControlAsked) -> None:
    """Give up the wills that a call undoes."""
    for name in event.pools:
        pool = state.pools[name]
        will = undone(pool.will, event.call)
        if will != pool.will:
            pool.will = will
            changed(state, pool)
    if isinstance(event.call, Undrain):
        for replica_id in event.replica_ids:
            state.drained.pop(replica_id, None)


def _note(state: State, call: Call, replica: Replica) -> None:
    """Remember a call that was carried out, for the incarnations to come."""
    pool = replica.pool
    will = taken(pool.will, call, replica.card.control.sleep_tags)
    if will != pool.will:
        pool.will = will
        changed(state, pool)
    for other in pool.replicas:
        asked = other.asked - (other is replica)  # This call is over.
        other.obeys = not asked and obeys(will, other.gate)
    if isinstance(call, Drain):
        state.drained[replica.replica_id] = call.drain_s
        if len(state.drained) > DRAINED_MAX:
            state.drained.popitem(last=False)


def _named(answered: Answer, replica: Replica) -> Answer:
    """Say in an error where it happened."""
    error = answered.error
    if error is None:
        return answered
    place = msgspec.structs.replace(error, pool=replica.pool.name, replica_id=replica.replica_id)
    return msgspec.structs.replace(answered, error=place)
