"""Admission under any order of arrivals, ends and departures: nobody starves, bounds hold."""

# ruff: noqa: D102 -- a rule's name says what it does.

from collections import Counter

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from services.orchestrator.core.admission import Admission
from services.orchestrator.core.fairness import FairQueue
from services.orchestrator.core.plan import compile_plan
from services.orchestrator.core.request import Client, OpenRequest
from stagemesh.errors import MeshError
from stagemesh.media import Modality
from stagemesh.pipeline import Limits
from tests.helpers.core_mesh import core_mesh

pytestmark = pytest.mark.invariant("ORCH-INV-112")

TENANTS = "abcd"
WEIGHTS = st.dictionaries(st.sampled_from(TENANTS), st.sampled_from([0.5, 1.0, 2.0, 5.0]))
LIMITS = Limits(
    running_max=4,
    waiting_max=6,
    input_bytes_max=60,
    tenant_running_max=2,
    tenant_waiting_max=3,
    tenant_input_bytes_max=40,
)
PIPELINE = msgspec.structs.replace(core_mesh().pipelines["echo"], limits=LIMITS)


def everybody(tenant: str) -> bool:
    return True


@given(weights=WEIGHTS, turns=st.integers(1, 200))
def test_tenants_that_always_wait_are_served_in_the_proportion_of_their_weights(
    weights: dict[str, float], turns: int
) -> None:
    queue = FairQueue[str](weights)
    for number in range(turns * len(TENANTS)):
        tenant = TENANTS[number % len(TENANTS)]
        queue.push(tenant, priority=0, number=number, cost=1.0, item=tenant)
    served = Counter(queue.pop(everybody) for _ in range(turns))
    shares = {tenant: served[tenant] / weights.get(tenant, 1.0) for tenant in TENANTS}
    for one in TENANTS:
        for other in TENANTS:
            slack = 1 / weights.get(one, 1.0) + 1 / weights.get(other, 1.0)
            assert abs(shares[one] - shares[other]) <= slack + 1e-9


@given(
    weights=WEIGHTS,
    before=st.lists(st.sampled_from(TENANTS), max_size=60),
    others=st.lists(st.sampled_from("bcd"), max_size=60),
)
def test_nobody_waits_for_more_turns_of_another_than_its_weight_gives(
    weights: dict[str, float], before: list[str], others: list[str]
) -> None:
    queue = FairQueue[str](weights)
    crowd = [*before, *others]
    for number, tenant in enumerate(crowd):
        queue.push(tenant, priority=0, number=number, cost=1.0, item=tenant)
    for _ in before:
        queue.pop(everybody)
    was_waiting = "a" in queue.items()
    queue.push("a", priority=0, number=1000, cost=1.0, item="me" if not was_waiting else "a")
    if was_waiting:
        return
    passed: Counter[str] = Counter()
    while (item := queue.pop(everybody)) != "me":
        assert item is not None
        passed[item] += 1
    # It may have been served just before, and then starts one turn of its own later.
    for other, count in passed.items():
        assert count <= weights.get(other, 1.0) / weights.get("a", 1.0) + 2


class AdmissionModel(RuleBasedStateMachine):
    """Opens, admits and ends requests; a list of what waits is the other opinion."""

    def __init__(self) -> None:
        super().__init__()
        self.door = Admission(
            PIPELINE, orchestrators=1, retry_after_s=1.0, weights={"a": 3.0, "b": 0.5}
        )
        self.count = 0
        self.waiting: list[OpenRequest] = []
        self.running: list[OpenRequest] = []
        self.apart: list[OpenRequest] = []

    @rule(
        tenant=st.sampled_from(TENANTS),
        priority=st.integers(-1, 1),
        size=st.integers(0, 45),
        again=st.booleans(),
    )
    def open(self, *, tenant: str, priority: int, size: int, again: bool) -> None:
        try:
            self.door.check(tenant, size, again=again)
        except MeshError:
            return
        self.count += 1
        request = _request(self.count, tenant, priority, size, epoch=2 if again else 1)
        self.door.enter(request)
        self.waiting.append(request)
        self.admit()

    def admit(self) -> None:
        """Let in whoever may run, as the core does after every change."""
        while (request := self.door.next_admitted()) is not None:
            if request.epoch == 1:
                assert not [r for r in self.waiting if r.epoch > 1 and self.may_run(r)]
            assert self.may_run(request)
            mine = [r for r in self.waiting if r.tenant == request.tenant]
            alike = [r for r in mine if (r.epoch > 1) == (request.epoch > 1)]
            assert request is min(alike, key=lambda r: (-r.priority, r.number))
            self.waiting.remove(request)
            self.running.append(request)

    def may_run(self, request: OpenRequest) -> bool:
        """Whether there is room for a request to run."""
        times = 2 if request.epoch > 1 else 1
        own = sum(r.tenant == request.tenant for r in self.running)
        return len(self.running) < times * 4 and own < times * 2

    @precondition(lambda self: self.running or self.waiting or self.apart)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        request = data.draw(st.sampled_from([*self.running, *self.waiting, *self.apart]))
        for place in (self.running, self.waiting, self.apart):
            if request in place:
                place.remove(request)
        self.door.leave(request)
        self.admit()

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def set_apart(self, data: st.DataObject) -> None:
        request = data.draw(st.sampled_from(self.waiting))
        self.waiting.remove(request)
        self.apart.append(request)
        self.door.set_apart(request)

    @invariant()
    def nobody_waits_who_may_run(self) -> None:
        assert not [request for request in self.waiting if self.may_run(request)]

    @invariant()
    def counts_are_those_of_the_world_and_within_bounds(self) -> None:
        door = self.door
        assert (door.running, door.waiting) == (len(self.running), len(self.waiting))
        there = [*self.running, *self.waiting, *self.apart]
        assert door.input_bytes == sum(request.input_bytes for request in there) <= 2 * 60
        assert door.tenants <= len({request.tenant for request in there})
        assert len(self.running) <= 8
        for tenant in TENANTS:
            assert sum(r.tenant == tenant for r in self.running) <= 4
            assert sum(r.tenant == tenant for r in self.waiting) <= 6
            assert sum(r.input_bytes for r in there if r.tenant == tenant) <= 80

    def teardown(self) -> None:
        for request in (*self.waiting, *self.apart, *self.running):
            self.door.leave(request)
        assert (self.door.running, self.door.waiting, self.door.tenants) == (0, 0, 0)


def _request(
    number: int, tenant: str, priority: int, input_bytes: int, *, epoch: int
) -> OpenRequest:
    inputs = frozenset({Modality.TEXT})
    return OpenRequest(
        number=number,
        request_id=f"r{number}",
        epoch=epoch,
        client=Client(1, 64, 1024),
        slot=number,
        plan=compile_plan(PIPELINE, modalities=frozenset(), choices=1, inputs=inputs),
        body=None,
        input_bytes=input_bytes,
        opened_s=0.0,
        deadline_s=9.0,
        tenant=tenant,
        priority=priority,
    )


TestAdmission = AdmissionModel.TestCase
