"""Whatever happens, a detachable request goes on at the next gateway where the client left off.

`DetachedWorld` checks every effect: nothing is skipped, doubled or contradicted over gateways, no
work begins while there is none, and a success comes only when all of it was confirmed.
"""

# ruff: noqa: D102 -- a rule's name says what it does.

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from services.orchestrator.core.settings import CoreSettings
from stagemesh.media import Message, Request
from stagemesh.outcome import Outcome
from tests.helpers.core_detached import DETACH_S, DetachedWorld
from tests.helpers.core_draws import CARDS, END, MODELS, POOLS, SETTINGS, STOPPED, WRITTEN
from tests.helpers.core_mesh import core_mesh
from tests.helpers.core_parties import WorldRequest
from tests.property.test_orchestrator_core import CoreModel

pytestmark = pytest.mark.invariant("ORCH-INV-210", "ORCH-INV-211", "ORCH-INV-212")


class DetachModel(CoreModel):
    """Drives the core with any order of events, gateways that take over among them."""

    world: DetachedWorld

    @initialize(data=st.data(), units=st.integers(1, 6), size=st.integers(4, 40))
    def start(self, data: st.DataObject, *, units: int, size: int) -> None:
        """Begin with a gateway, and a replica of every pool."""
        cards = {pool: self.pick(data, CARDS) for pool in sorted(set(POOLS))}
        self.world = DetachedWorld(core_mesh(), SETTINGS, cards)
        self.world.attach_client(units, size, mirrors=True)
        for pool in sorted(set(POOLS)):
            self.attach_replica(pool, 0, 4, units, size)

    def take(self, request: WorldRequest, units: int, size: int) -> None:
        """Let a client grant credit, or a gateway that shares a store commit what it has."""
        if request.detach_s:
            self.world.commit(request, len(request.sent))
        else:
            super().take(request, units, size)

    @precondition(lambda self: self.gates())
    @rule(data=st.data(), model=st.sampled_from(sorted(MODELS)))
    def open_detachable(self, data: st.DataObject, model: str) -> None:
        inputs, gives, _ = MODELS[model]
        request = Request(
            model=model,
            messages=(Message(role="user", parts=self.pick(data, inputs)),),
            modalities=self.pick(data, gives),
        )
        link = self.pick(data, self.gates())
        self.world.open_request(link, request, 0.0, detach_s=DETACH_S)

    @precondition(lambda self: any(one.sent for one in self.world.open))
    @rule(data=st.data(), count=st.integers(1, 4), tell=st.booleans())
    def commit(self, data: st.DataObject, count: int, tell: bool) -> None:
        sent = [one for one in self.world.open if one.sent]
        self.world.commit(self.pick(data, sent), count, tell=tell)

    @precondition(lambda self: self.gates())
    @rule(data=st.data())
    def lose_gateway(self, data: st.DataObject) -> None:
        self.world.lose_client(self.pick(data, self.gates()))
        self.world.attach_client(4, 32, mirrors=True)

    @precondition(lambda self: self.world.adrift and self.gates())
    @rule(data=st.data())
    def take_over(self, data: st.DataObject) -> None:
        request = self.pick(data, self.world.adrift)
        self.world.take_over(request, self.pick(data, self.gates()))

    @precondition(lambda self: any(one.detach_s for one in self.world.open))
    @rule(
        data=st.data(),
        said=st.tuples(st.integers(0, 3), st.integers(0, 3)),
        committed=st.integers(0, 3),
        tell=st.booleans(),
        dies=st.booleans(),
    )
    def change_gateways(
        self,
        data: st.DataObject,
        said: tuple[int, int],
        committed: int,
        *,
        tell: bool,
        dies: bool,
    ) -> None:
        """Let a request get on, its gateway commit some of that, and another one take it over."""
        world = self.world
        request = self.pick(data, [one for one in world.open if one.detach_s])
        self.get_on(data, request, said[0])
        if request.terminal is None:
            world.commit(request, min(committed, len(request.sent)), tell=tell)
        if dies and request.terminal is None:
            world.lose_client(request.link)
        link = world.attach_client(4, 32, mirrors=True)
        self.get_on(data, request, said[1])
        if request in world.adrift:
            world.take_over(request, link)
            self.get_on(data, request, said[0] + 1)

    def get_on(self, data: st.DataObject, request: WorldRequest, count: int) -> None:
        """Let some outputs of a request come."""
        for _ in range(count):
            able = [one for one in self.speakers() if one.request is request and not one.aborted]
            if able:
                attempt = able[data.draw(st.integers(0, len(able) - 1))]
                self.speak(attempt, data, units=1, ends=data.draw(st.booleans()))


TestOrchestratorDetach = DetachModel.TestCase
TestOrchestratorDetach.settings = settings(stateful_step_count=60)

ROOMY = CoreSettings(window_units=4, window_bytes=32, orchestrators=2)


class Relay:
    """One request, and the gateways that have it one after another."""

    def __init__(self, data: st.DataObject, request: Request, units: int, size: int) -> None:
        self.model = DetachModel()
        self.data = data
        cards = {pool: CARDS[data.draw(st.integers(0, len(CARDS) - 1))] for pool in POOLS}
        self.world = self.model.world = DetachedWorld(core_mesh(), ROOMY, cards)
        self.link = self.world.attach_client(units, size, mirrors=True)
        for pool in sorted(set(POOLS)):
            self.model.attach_replica(pool, 0, 4, units, size)
        self.request = self.world.open_request(self.link, request, 0.0, detach_s=DETACH_S)

    def speak(self) -> None:
        """Let some worker give an output."""
        self.hear()
        self.model.get_on(self.data, self.request, 1)

    def hear(self) -> None:
        """Let all workers take what they were sent."""
        for attempt in self.world.attempts:
            for lane in sorted(attempt.inputs):
                self.world.take_inputs(attempt, lane, 2, 8)

    def commit(self) -> None:
        """Let the gateway commit some of what it was sent, and perhaps say so in time."""
        if self.request in self.world.open:
            count = self.data.draw(st.integers(0, len(self.request.sent)))
            self.world.commit(self.request, count, tell=self.data.draw(st.booleans()))

    def die(self) -> None:
        """Kill the gateway."""
        if self.link in self.world.clients:
            self.world.lose_client(self.link)

    def take_over(self) -> None:
        """Let another gateway have it."""
        if self.request in self.world.adrift:
            self.link = self.world.attach_client(4, 32, mirrors=True)
            self.world.take_over(self.request, self.link)

    def finish(self) -> None:
        """Let all workers say a last word, one stage after another, and the gateway commit it."""
        for _ in range(12):
            self.hear()
            for attempt in list(self.world.attempts):
                if attempt.aborted:
                    self.world.end(attempt, STOPPED)
                    continue
                for lane in sorted(attempt.next.keys() - attempt.ended):
                    if not attempt.window.open:
                        break
                    row = self.model.made(attempt, lane, attempt.next[lane], 1, "body")
                    row.end = END
                    self.world.give(attempt, row)
            if self.request.terminal is None:
                self.world.commit(self.request, len(self.request.sent))


@given(
    data=st.data(),
    model=st.sampled_from(sorted(name for name in MODELS if WRITTEN in MODELS[name][0])),
    units=st.integers(1, 6),
    size=st.integers(4, 40),
    steps=st.lists(st.sampled_from(["speak", "speak", "commit", "die", "take_over"]), max_size=30),
)
def test_it_completes_whatever_becomes_of_its_gateways(
    data: st.DataObject, *, model: str, units: int, size: int, steps: list[str]
) -> None:
    request = Request(model=model, messages=(Message(role="user", parts=WRITTEN),))
    relay = Relay(data, request, units, size)
    for step in steps:
        getattr(relay, step)()
    relay.take_over()
    relay.finish()
    assert relay.request.terminal is not None
    assert relay.request.terminal.outcome is Outcome.COMPLETED
