"""Operators around an orchestrator's core: what they ask, and what workers make of it."""

# ruff: noqa: D102 -- a rule's name says what it does.

from collections.abc import Mapping

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from services.orchestrator.core import events as ev
from services.orchestrator.core.replicas import LoadReport, WorkerState
from stagemesh.control import (
    TAGS,
    WEIGHTS,
    Answer,
    Call,
    Drain,
    Gate,
    Pause,
    PauseMode,
    ResetCache,
    Resume,
    Sleep,
    Undrain,
    WakeUp,
)
from stagemesh.outcome import Outcome, Terminal, error_for
from tests.helpers.core_manners import BadManners
from tests.helpers.core_parties import Desk, WorldReplica

__all__ = ["Operators"]

FOR_POOLS = st.one_of(
    st.sampled_from(PauseMode).map(lambda mode: Pause(mode=mode)),
    st.just(Resume()),
    st.just(Resume()),
    st.sampled_from([PauseMode.ABORT, PauseMode.WAIT]).map(lambda mode: Sleep(mode=mode)),
    st.sampled_from([(), (WEIGHTS,)]).map(lambda tags: WakeUp(tags=tags)),
    st.just(ResetCache()),
)
WAITS = st.sampled_from([0.0, 1.0, 10.0])


class Operators(BadManners):
    """Rules for operators, and for workers that are asked by them."""

    @rule(call=FOR_POOLS, wait_s=WAITS, data=st.data())
    def operate(self, call: Call, wait_s: float, data: st.DataObject) -> None:
        """Ask every replica of some pools."""
        pools = data.draw(st.sets(st.sampled_from(sorted(self.world.mesh.pools)), max_size=2))
        self.ask(call, wait_s, pools=frozenset(pools))

    @precondition(lambda self: self.world.replicas)
    @rule(data=st.data(), back=st.booleans(), wait_s=WAITS)
    def take_out(self, data: st.DataObject, back: bool, wait_s: float) -> None:
        """Ask one replica to drain, or to take work again."""
        replica = self.pick(data, list(self.world.replicas.values()))
        call = Undrain() if back else Drain(drain_s=1.0)
        self.ask(call, wait_s, replica_ids=frozenset({replica.replica_id}))

    def ask(self, call: Call, wait_s: float, **targets: frozenset[str]) -> None:
        desk = self.desk()
        call_id = desk.open(wait_s)
        self.world.step(ev.ControlAsked(call_id=call_id, call=call, wait_s=wait_s, **targets))
        assert wait_s or call_id not in desk.waiting, "who does not wait is answered at once"

    @precondition(lambda self: self.desk().asks)
    @rule(data=st.data(), fails=st.booleans(), late=st.booleans())
    def carry_out(self, data: st.DataObject, fails: bool, late: bool) -> None:
        """Let a worker answer; what it has done it tells first, as the real one does."""
        desk = self.desk()
        link, control_id = self.pick(data, sorted(desk.asks))
        call = desk.asks.pop((link, control_id))
        replica = self.world.replicas.get(link)
        if replica is None:
            return
        if not fails:
            self.move_gate(replica, call)
        answer = Answer(error=error_for("engine_error") if fails else None)
        done = ev.ControlDone(link=link, control_id=control_id, answer=answer)
        self.world.step(done)
        if late:
            self.world.step(done)

    def move_gate(self, replica: WorldReplica, call: Call) -> None:
        replica.gate = _moved(replica.gate, call)
        replica.state = _state(replica.gate)
        self.world.step(
            ev.ReplicaReported(
                link=replica.link,
                state=replica.state,
                load=LoadReport(),
                gate=replica.gate,
            )
        )
        if isinstance(call, Pause | Sleep) and call.mode is PauseMode.ABORT:
            for attempt in list(replica.attempts.values()):
                attempt.request.stopped = True
                self.world.end(attempt, ABORTED)

    @precondition(lambda self: self.world.replicas)
    @rule(data=st.data())
    def open_elsewhere(self, data: st.DataObject) -> None:
        """Let another orchestrator have opened a worker."""
        replica = self.pick(data, list(self.world.replicas.values()))
        self.move_gate(replica, WakeUp())
        self.move_gate(replica, Resume())

    @rule(link=st.integers(0, 12), control_id=st.integers(1, 40))
    def answer_what_nobody_asked(self, link: int, control_id: int) -> None:
        if (link, control_id) not in self.desk().asks:
            done = ev.ControlDone(link=link, control_id=control_id, answer=Answer())
            self.world.step(done)

    @precondition(lambda self: len(self.world.log) > 150)
    @rule()
    def undrain(self) -> None:
        self.world.step(ev.UndrainAsked())

    def desk(self) -> Desk:
        """Give what this owner was asked; a new owner was asked nothing."""
        return self.world.desk


ABORTED = Terminal(outcome=Outcome.CANCELLED, error=error_for("stopped_by_operator"))


def _moved(gate: Gate, call: Call) -> Gate:
    changes: Mapping[str, object]
    match call:
        case Pause(mode=mode):
            changes = {"paused": mode}
        case Resume() if not gate.asleep:
            changes = {"paused": None}
        case Sleep(mode=mode, tags=tags):
            changes = {"paused": mode, "asleep": gate.asleep | (frozenset(tags) or TAGS)}
        case WakeUp(tags=tags):
            changes = {"asleep": gate.asleep - (frozenset(tags) or TAGS)}
        case Drain() | Undrain():
            changes = {"drained": isinstance(call, Drain)}
        case _:
            changes = {}
    return msgspec.structs.replace(gate, **changes)


def _state(gate: Gate) -> WorkerState:
    if gate.drained:
        return WorkerState.DRAINING
    if gate.asleep:
        return WorkerState.ASLEEP
    return WorkerState.READY if gate.paused is None else WorkerState.PAUSED
