"""Whatever happens to the orchestrator's core, in whatever order, its contract holds.

`World` checks every effect; the rules below are what clients, workers and time can do, good or bad.
Below the machine is what a gateway's client sees of losses alone: a continuous stream.
"""

# ruff: noqa: D102 -- a rule's name says what it does.

from typing import TypeVar

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from services.orchestrator.core import events as ev
from services.orchestrator.core.contracts import ResumeContract
from services.orchestrator.core.replicas import LoadReport, WorkerState
from stagemesh.link.core import Grant, Row
from stagemesh.media import (
    Body,
    Message,
    Modality,
    Request,
    split_lane,
)
from stagemesh.outcome import Terminal
from tests.helpers.core_conversations import Conversations
from tests.helpers.core_draws import (
    BROKEN,
    CARDS,
    EARLY,
    END,
    LATE,
    MODELS,
    POOLS,
    REFUSED,
    SETTINGS,
    SPOKEN,
    STOPPED,
)
from tests.helpers.core_mesh import core_mesh
from tests.helpers.core_operators import Operators
from tests.helpers.core_parties import WorldAttempt, WorldRequest, text_at
from tests.helpers.core_world import World

T = TypeVar("T")

pytestmark = pytest.mark.invariant(
    "ORCH-INV-003", "ORCH-INV-100", "ORCH-INV-101", "ORCH-INV-102", "ORCH-INV-103", "ORCH-INV-104",
    "ORCH-INV-105", "ORCH-INV-106", "ORCH-INV-107", "ORCH-INV-201", "ORCH-INV-202", "ORCH-INV-203",
    "ORCH-INV-230",
)  # fmt: skip


class CoreModel(Operators, Conversations):
    """Drives the core with any order of events."""

    @initialize(
        data=st.data(),
        units=st.integers(1, 6),
        size=st.integers(4, 40),
        full=st.sampled_from([4, 3, 2, 0]),
        apart=st.booleans(),
    )
    def start(self, data: st.DataObject, *, units: int, size: int, full: int, apart: bool) -> None:
        cards = {pool: self.pick(data, CARDS) for pool in sorted(set(POOLS))}
        self.world = World(core_mesh(apart=apart), SETTINGS, cards)
        self.world.attach_client(units, size, mirrors=data.draw(st.booleans()))
        for pool in sorted(set(POOLS)) if full else ():
            self.attach_replica(pool, 0, full, units, size)

    # Clients

    @rule(units=st.integers(1, 6), size=st.integers(4, 40), mirrors=st.booleans())
    def attach_client(self, units: int, size: int, mirrors: bool) -> None:
        self.world.attach_client(units, size, mirrors=mirrors)

    @precondition(lambda self: self.world.clients)
    @rule(
        data=st.data(),
        model=st.sampled_from(sorted(MODELS)),
        choices=st.integers(1, 3),
        tenant=st.sampled_from(["default", "heavy"]),
        deadline_s=st.sampled_from([0.0, 0.0, 5.0, float("inf")]),
    )
    def open_request(
        self, data: st.DataObject, *, model: str, choices: int, tenant: str, deadline_s: float
    ) -> None:
        inputs, gives, fans_out = MODELS[model]
        request = Request(
            model=model,
            messages=(Message(role="user", parts=self.pick(data, inputs)),),
            modalities=self.pick(data, gives),
            choices=choices if fans_out else 1,
            tenant=tenant,
            priority=choices,
        )
        self.world.open_request(self.pick(data, sorted(self.world.clients)), request, deadline_s)

    @precondition(lambda self: self.world.clients)
    @rule(
        data=st.data(),
        model=st.sampled_from(["nothing", *sorted(MODELS)]),
        choices=st.integers(0, 3),
        only=st.sampled_from([(), (Modality.TEXT,), (Modality.AUDIO,)]),
        deadline_s=st.sampled_from([0.0, -1.0, 0.001]),
    )
    def open_any_request(
        self,
        data: st.DataObject,
        *,
        model: str,
        choices: int,
        only: tuple[Modality, ...],
        deadline_s: float,
    ) -> None:
        request = Request(
            model=model,
            messages=(Message(role="user", parts=SPOKEN),),
            modalities=only,
            choices=choices,
        )
        self.world.open_request(self.pick(data, sorted(self.world.clients)), request, deadline_s)

    @rule(data=st.data(), rounds=st.integers(1, 12))
    def work(self, data: st.DataObject, rounds: int) -> None:
        """Let everybody do what is right for a while."""
        self.go_on(data, rounds)

    @rule(data=st.data())
    def work_long(self, data: st.DataObject) -> None:
        self.go_on(data, 25)

    def go_on(self, data: st.DataObject, rounds: int) -> None:
        """Let clients and workers take what they were sent, and workers give outputs."""
        for _ in range(rounds):
            for request in self.world.open:
                self.take(request, 1000, 1000)
            for attempt in self.world.attempts:
                for lane in sorted(attempt.inputs):
                    self.world.take_inputs(attempt, lane, 2, 8)
            speakers = [attempt for attempt in self.speakers() if not attempt.aborted]
            if speakers:
                attempt = self.pick(data, speakers)
                self.speak(attempt, data, units=2, ends=data.draw(st.booleans()))

    @precondition(lambda self: self.world.open)
    @rule(data=st.data(), units=st.integers(0, 6), size=st.integers(0, 40))
    def take_outputs(self, data: st.DataObject, units: int, size: int) -> None:
        self.take(self.pick(data, self.world.open), units, size)

    def take(self, request: WorldRequest, units: int, size: int) -> None:
        """Let a client grant credit, for no more than it was sent."""
        window, first = request.window, self.world.clients[request.link]
        totals = (
            first.units + min(units, request.taken_units),
            first.bytes + min(size, request.taken_bytes),
        )
        window.grant(*totals)
        grant = Grant(request.slot, 0, *totals)
        self.world.step(ev.CreditGranted(link=request.link, grants=[grant]))

    @precondition(lambda self: self.world.open)
    @rule(data=st.data(), partials=st.booleans())
    def abort(self, data: st.DataObject, partials: bool) -> None:
        self.world.abort(self.pick(data, self.world.open), partials=partials)

    @precondition(lambda self: self.world.by_id)
    @rule(data=st.data(), partials=st.booleans())
    def abort_by_id(self, data: st.DataObject, partials: bool) -> None:
        request = self.pick(data, list(self.world.by_id.values()))
        self.world.abort_by_id(request, partials=partials)

    @precondition(lambda self: len(self.world.clients) > 1)
    @rule(data=st.data())
    def lose_client(self, data: st.DataObject) -> None:
        self.world.lose_client(self.pick(data, sorted(self.world.clients)))

    @precondition(lambda self: self.world.open)
    @rule(data=st.data())
    def lose_handle_at_client(self, data: st.DataObject) -> None:
        request = self.pick(data, self.world.open)
        if request.mirrors:
            return  # It takes its journal back, which `GatewayJournal` cannot.
        self.world.step(ev.HandleLost(link=request.link, slot=request.slot, handle_id="h"))

    @precondition(lambda self: self.world.orphans and self.gates())
    @rule(data=st.data())
    def open_again(self, data: st.DataObject) -> None:
        """Let a gateway give a request whose owner it lost to whom it finds, perhaps the same."""
        request = self.pick(data, self.world.orphans)
        self.world.open_again(request, self.pick(data, self.gates()))

    @precondition(lambda self: self.world.requests and self.world.clients)
    @rule()
    def replace_owner(self) -> None:
        self.world.replace_owner()

    @precondition(lambda self: any(request.mirrors for request in self.world.open))
    @rule(data=st.data(), by_worker=st.booleans())
    def move_elsewhere(self, data: st.DataObject, by_worker: bool) -> None:
        """Let a gateway give a request to an owner that is not this one, and fence it here."""
        world = self.world
        request = self.pick(data, [request for request in world.open if request.mirrors])
        request.lost = request.stopped = True
        epoch = request.epoch + 1
        workers = sorted(world.replicas) if by_worker else []
        if workers:
            link = self.pick(data, workers)
            world.step(ev.Fenced(link=link, request_id=request.request_id, epoch=epoch))
        else:
            world.step(ev.FenceRaised(link=request.link, slot=request.slot, epoch=epoch))

    @precondition(lambda self: any(request.mirrors for request in self.world.open))
    @rule(data=st.data())
    def fence_of_the_past(self, data: st.DataObject) -> None:
        request = self.pick(data, [request for request in self.world.open if request.mirrors])
        self.world.step(ev.FenceRaised(link=request.link, slot=request.slot, epoch=request.epoch))

    def gates(self) -> list[int]:
        """Links of gateways."""
        return [link for link, client in self.world.clients.items() if client.mirrors]

    # Workers

    @rule(
        pool=st.sampled_from(POOLS),
        twin=st.integers(0, 2),
        slots=st.integers(1, 4),
        units=st.integers(1, 4),
        size=st.integers(4, 40),
    )
    def attach_replica(self, pool: str, twin: int, slots: int, units: int, size: int) -> None:
        card = msgspec.structs.replace(self.world.cards[pool], slots=slots)
        self.world.attach_replica(pool, f"{pool}-{twin}", card, units, size)

    @precondition(lambda self: self.speakers())
    @rule(
        data=st.data(),
        units=st.integers(1, 3),
        ends=st.booleans(),
        kind=st.sampled_from(["body", "body", "handle"]),
    )
    def give_output(self, data: st.DataObject, units: int, ends: bool, kind: str) -> None:
        self.speak(self.pick(data, self.speakers()), data, units=units, ends=ends, kind=kind)

    def speak(
        self,
        attempt: WorldAttempt,
        data: st.DataObject,
        *,
        units: int,
        ends: bool,
        kind: str = "body",
    ) -> None:
        """Let a worker give an output of one of its open lanes."""
        lane = self.pick(data, sorted(attempt.next.keys() - attempt.ended))
        if attempt.contract is ResumeContract.PER_INPUT:
            units = 1  # So that what is made again is cut as it was before.
        row = self.made(attempt, lane, attempt.next[lane], units, kind)
        row.end = END if ends else None
        self.world.give(attempt, row)

    def made(self, attempt: WorldAttempt, lane: int, pos: int, units: int, kind: str) -> Row:
        """Make what a worker gives at a position."""
        row = Row(attempt.slot, lane, pos, units)
        if split_lane(lane).modality is Modality.TEXT:
            row.text = text_at(lane, pos, units, plain=attempt.request.plain)
            row.ids = list(range(pos, pos + units)) if attempt.ids else None
        elif kind == "body":
            row.body = Body(inline=b"xy")
        else:
            row.body = Body(handle=attempt.handle)
        if attempt.contract is ResumeContract.PER_INPUT:
            row.origin = (pos // 2, pos // 2 + 1)  # Two units of every unit that it reads.
        return row

    @precondition(lambda self: self.world.attempts)
    @rule(data=st.data())
    def end_a_lane(self, data: st.DataObject) -> None:
        attempt = self.pick(data, self.world.attempts)
        lane = self.pick(data, sorted(attempt.next.keys() - attempt.ended))
        self.world.give(attempt, Row(attempt.slot, lane, attempt.next[lane], 0, end=END))

    @precondition(lambda self: self.world.attempts)
    @rule(data=st.data(), terminal=st.sampled_from([BROKEN, STOPPED, STOPPED, EARLY, LATE]))
    def end_attempt(self, data: st.DataObject, terminal: Terminal) -> None:
        self.world.end(self.pick(data, self.world.attempts), terminal)

    @precondition(lambda self: any(a.silent for a in self.world.attempts))
    @rule(data=st.data())
    def refuse(self, data: st.DataObject) -> None:
        silent = [attempt for attempt in self.world.attempts if attempt.silent]
        self.world.end(self.pick(data, silent), REFUSED)

    @precondition(lambda self: self.world.attempts)
    @rule(data=st.data())
    def hand_back(self, data: st.DataObject) -> None:
        self.world.hand_back(self.pick(data, self.world.attempts))

    @precondition(lambda self: self.world.attempts)
    @rule(data=st.data())
    def forget(self, data: st.DataObject) -> None:
        attempt = self.pick(data, self.world.attempts)
        self.world.let_go(attempt)
        self.world.step(ev.AttemptUnknown(link=attempt.link, slot=attempt.slot))

    @precondition(lambda self: any(a.inputs for a in self.world.attempts))
    @rule(data=st.data(), units=st.integers(0, 4), size=st.integers(0, 40))
    def take_inputs(self, data: st.DataObject, units: int, size: int) -> None:
        attempt = self.pick(data, [a for a in self.world.attempts if a.inputs])
        lane = self.pick(data, sorted(attempt.inputs))
        self.world.take_inputs(attempt, lane, units, size)

    @precondition(lambda self: self.world.attempts)
    @rule(data=st.data())
    def lose_handle_at_worker(self, data: st.DataObject) -> None:
        attempt = self.pick(data, self.world.attempts)
        handle_id = f"h{attempt.request.request_id}"
        self.world.step(ev.HandleLost(link=attempt.link, slot=attempt.slot, handle_id=handle_id))

    @precondition(lambda self: self.world.replicas)
    @rule(data=st.data(), state=st.sampled_from(list(WorkerState)), steps=st.integers(0, 5))
    def report(self, data: st.DataObject, state: WorkerState, steps: int) -> None:
        replica = self.pick(data, list(self.world.replicas.values()))
        replica.state = state
        load = LoadReport(running=steps, steps=steps)
        self.world.step(ev.ReplicaReported(link=replica.link, state=state, load=load))

    @rule(pool=st.sampled_from(POOLS), twin=st.integers(0, 2), listed=st.booleans())
    def list_replica(self, pool: str, twin: int, listed: bool) -> None:
        replica_id = f"{pool}-{twin}"
        (self.world.unlisted.discard if listed else self.world.unlisted.add)(replica_id)
        for replica in self.world.replicas.values():
            if replica.replica_id == replica_id:
                replica.listed = listed
        self.world.step(ev.ReplicaListed(replica_id=replica_id, listed=listed))

    @precondition(lambda self: self.world.replicas)
    @rule(data=st.data())
    def lose_replica(self, data: st.DataObject) -> None:
        self.world.lose_replica(self.pick(data, sorted(self.world.replicas)))

    # Time

    @rule(seconds=st.sampled_from([0.01, 0.02, 0.05, 0.1, 0.5, 1.0, 3.0, 10.0]))
    def wait(self, seconds: float) -> None:
        self.world.now_s += seconds
        self.world.step(ev.Tick())

    @precondition(lambda self: len(self.world.log) > 150)
    @rule(drain_s=st.sampled_from([0.0, 1.0]))
    def drain(self, drain_s: float) -> None:
        self.world.step(ev.DrainAsked(drain_s=drain_s))

    @invariant()
    def an_open_request_has_a_wakeup(self) -> None:
        core = self.world.core
        assert core.requests_open >= len(self.world.open)
        assert not core.requests_open or core.next_wakeup_s is not None

    @invariant()
    def views_agree_with_the_world(self) -> None:
        core, world = self.world.core, self.world
        for view in core.replica_views():
            replica = world.replicas[view.link]
            assert view.in_flight == len(replica.attempts) <= replica.slots
        for request in world.open:
            seen = core.request_view(request.request_id)
            assert seen is not None
            assert seen.terminal is None

    def teardown(self) -> None:
        world = self.world
        world.run_dry()
        assert not world.open, "every request ends"
        assert not world.desk.waiting, "every call of an operator is answered"
        kept = {what: count for what, count in world.core.footprint().items() if count}
        assert not kept, "nothing is kept of requests that are over"
        assert world.replayed() == [effects for _, _, effects in world.log]

    def speakers(self) -> list[WorldAttempt]:
        """Attempts whose worker has credit for another output."""
        return [attempt for attempt in self.world.attempts if attempt.window.open]


TestOrchestratorCore = CoreModel.TestCase
TestOrchestratorCore.settings = settings(stateful_step_count=60)
