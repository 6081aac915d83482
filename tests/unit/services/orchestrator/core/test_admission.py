"""Admission."""

import msgspec
import pytest

from services.orchestrator.core.admission import Admission
from services.orchestrator.core.plan import compile_plan
from services.orchestrator.core.request import Client, OpenRequest
from stagemesh.errors import MeshError
from stagemesh.media import Modality
from stagemesh.outcome import ErrorCode
from stagemesh.pipeline import Limits
from tests.helpers.core_mesh import core_mesh

ECHO = core_mesh().pipelines["echo"]  # Two may run, one may wait, with 1,000 bytes in all.


def admission(orchestrators: int = 1) -> Admission:
    return Admission(ECHO, orchestrators=orchestrators, retry_after_s=1.5, weights={})


def bounded(**limits: int) -> Admission:
    pipeline = msgspec.structs.replace(ECHO, limits=Limits(**limits))
    return Admission(pipeline, orchestrators=1, retry_after_s=1.5, weights={"big": 2.0})


def request(
    number: int,
    input_bytes: int = 0,
    *,
    tenant: str = "default",
    priority: int = 0,
    epoch: int = 1,
) -> OpenRequest:
    plan = compile_plan(ECHO, modalities=frozenset(), choices=1, inputs=frozenset({Modality.TEXT}))
    return OpenRequest(
        number=number,
        request_id=f"r{number}",
        epoch=epoch,
        client=Client(1, 64, 1024),
        slot=number,
        plan=plan,
        body=None,
        input_bytes=input_bytes,
        opened_s=0.0,
        deadline_s=9.0,
        tenant=tenant,
        priority=priority,
    )


def test_as_many_run_as_may_and_the_oldest_that_waits_is_next() -> None:
    door = admission()
    requests = [request(number) for number in range(3)]
    for each in requests:
        door.check("default", 0)
        door.enter(each)
    assert [door.next_admitted() for _ in range(3)] == [requests[0], requests[1], None]
    assert (door.running, door.waiting) == (2, 1)
    door.leave(requests[1])
    assert door.next_admitted() is requests[2]


def test_full_means_refused_at_once_with_a_time_to_come_back() -> None:
    door = admission()
    for number in range(3):
        door.enter(request(number))
        door.next_admitted()
    with pytest.raises(MeshError) as caught:
        door.check("default", 0)
    info = caught.value.info
    assert (info.code, info.reason) == (ErrorCode.OVERLOADED, "queue_full")
    assert info.retry_after_s == 1.5
    assert info.retryable


def test_a_place_in_the_queue_is_given_up_too() -> None:
    door = admission()
    requests = [request(number) for number in range(3)]
    for each in requests:
        door.enter(each)
    assert door.all_waiting() == requests
    door.leave(requests[1])
    assert door.all_waiting() == [requests[0], requests[2]]
    assert door.running == 0


def test_bytes_are_bounded_in_all_and_one_by_one() -> None:
    door = admission()
    with pytest.raises(MeshError) as caught:
        door.check("default", 1001)
    assert caught.value.info.code is ErrorCode.PAYLOAD_TOO_LARGE
    large = request(1, 900)
    door.enter(large)
    with pytest.raises(MeshError) as caught:
        door.check("default", 101)
    assert caught.value.info.code is ErrorCode.OVERLOADED
    door.check("default", 100)
    door.leave(large)
    assert door.input_bytes == 0


def test_the_limits_are_shared_by_the_orchestrators() -> None:
    door = admission(orchestrators=2)
    requests = [request(number) for number in range(2)]
    for each in requests:
        door.enter(each)
    assert door.next_admitted() is requests[0]
    assert door.next_admitted() is None


def again(number: int, input_bytes: int = 0) -> OpenRequest:
    made = request(number, input_bytes)
    made.work_epoch = 2
    return made


def test_what_another_owner_had_goes_first_and_up_to_twice_as_far() -> None:
    door = admission()
    new = [request(number) for number in range(3)]
    for each in new:
        door.check("default", 0)
        door.enter(each)
    assert [door.next_admitted() for _ in range(2)] == new[:2]
    old = [again(number) for number in range(10, 13)]
    for each in old:
        door.check("default", 0, again=True)
        door.enter(each)
    assert {door.next_admitted() for _ in range(2)} <= set(old)
    assert door.next_admitted() is None, "four run: twice as many as may"
    with pytest.raises(MeshError):
        door.check("default", 0, again=True)


def test_memory_too_may_be_had_twice_and_one_request_only_once() -> None:
    door = admission()
    door.enter(again(1, 900))
    door.check("default", 900, again=True)
    with pytest.raises(MeshError):
        door.check("default", 900)
    with pytest.raises(MeshError) as caught:
        door.check("default", 1001, again=True)
    assert caught.value.info.code is ErrorCode.PAYLOAD_TOO_LARGE


def test_a_request_that_leaves_twice_leaves_once() -> None:
    door = admission()
    one, other = request(1, 10), request(2, 20)
    for each in (one, other):
        door.enter(each)
    door.next_admitted()
    door.set_apart(other)
    assert (door.running, door.waiting) == (1, 0)
    door.leave(one)
    door.leave(other)
    assert (door.running, door.waiting, door.input_bytes) == (0, 0, 0)


def test_a_tenant_at_its_limit_waits_and_lets_others_run() -> None:
    door = bounded(running_max=3, waiting_max=4, tenant_running_max=1)
    mine = [request(number, tenant="a") for number in (1, 2)]
    other = request(3, tenant="b")
    for each in (*mine, other):
        door.check(each.tenant, 0)
        door.enter(each)
    assert [door.next_admitted() for _ in range(3)] == [mine[0], other, None]
    door.leave(other)
    assert door.next_admitted() is None
    door.leave(mine[0])
    assert door.next_admitted() is mine[1]


def test_a_tenant_whose_queue_is_full_is_refused_and_others_are_not() -> None:
    door = bounded(running_max=1, waiting_max=4, tenant_waiting_max=1)
    for number in (1, 2):
        door.check("a", 0)
        door.enter(request(number, tenant="a"))
        door.next_admitted()
    with pytest.raises(MeshError, match="of this tenant"):
        door.check("a", 0)
    door.check("b", 0)


def test_a_tenant_that_may_run_is_let_in_beside_a_full_queue_of_one_that_may_not() -> None:
    door = bounded(running_max=2, waiting_max=1, tenant_running_max=1)
    for number in (1, 2):
        door.check("a", 0)
        door.enter(request(number, tenant="a"))
        door.next_admitted()
    with pytest.raises(MeshError):
        door.check("a", 0)
    other = request(3, tenant="b")
    door.check("b", 0)
    door.enter(other)
    assert door.next_admitted() is other


def test_a_tenant_that_may_run_but_not_wait_is_refused_where_all_places_are_taken() -> None:
    door = bounded(running_max=1, waiting_max=4, tenant_running_max=1, tenant_waiting_max=0)
    door.enter(request(1, tenant="a"))
    door.next_admitted()
    with pytest.raises(MeshError, match="of this tenant"):
        door.check("b", 0)


def test_bytes_are_bounded_for_each_tenant() -> None:
    door = bounded(input_bytes_max=1000, tenant_input_bytes_max=400)
    door.enter(request(1, 300, tenant="a"))
    with pytest.raises(MeshError, match="of this tenant"):
        door.check("a", 101)
    door.check("b", 400)
    with pytest.raises(MeshError, match="at most 400 bytes"):
        door.check("b", 401)


def test_tenants_take_turns_by_weight_and_the_more_urgent_of_a_tenant_goes_first() -> None:
    door = bounded(running_max=1, waiting_max=100)
    for number in range(6):
        door.enter(request(number, tenant="big"))
        door.enter(request(number + 10, tenant="small", priority=number // 4))
    served = []
    while (next_one := door.next_admitted()) is not None:
        served.append(next_one.number)
        door.leave(next_one)
    assert served[:9] == [0, 14, 1, 15, 2, 3, 10, 4, 5]
    assert (door.tenants, door.waiting, door.running) == (0, 0, 0)


def test_a_tenant_that_another_owner_served_goes_up_to_twice_its_limit() -> None:
    door = bounded(running_max=10, tenant_running_max=1)
    new = request(1)
    door.enter(new)
    assert door.next_admitted() is new
    for number in (2, 3):
        door.enter(again(number))
    taken = door.next_admitted()
    assert taken is not None
    assert taken.number == 2
    assert door.next_admitted() is None, "two run: twice as many as one tenant may"


def test_a_request_that_was_set_apart_may_be_the_last_of_its_tenant_to_leave() -> None:
    door = admission()
    one, other = request(1), request(2)
    for each in (one, other):
        door.enter(each)
    door.set_apart(one)
    door.leave(other)
    assert door.tenants == 1
    door.leave(one)
    assert door.tenants == 0


def test_a_conversation_that_waits_for_its_client_lets_others_run_and_comes_first_after() -> None:
    door = admission()
    requests = [request(number) for number in range(4)]
    for each in requests:
        door.enter(each)
    assert [door.next_admitted() for _ in range(3)] == [requests[0], requests[1], None]
    door.park(requests[0])
    assert (door.running, door.waiting, door.idle) == (1, 2, 1)
    assert door.next_admitted() is requests[2]
    door.rejoin(requests[0])
    assert (door.running, door.waiting, door.idle) == (2, 2, 0)
    assert door.next_admitted() is None
    door.leave(requests[1])
    assert door.next_admitted() is requests[0]
    for each in (requests[0], *requests[2:]):
        door.leave(each)
    assert (door.running, door.waiting, door.idle, door.tenants) == (0, 0, 0, 0)


def test_there_are_no_more_places_for_conversations_than_for_requests() -> None:
    door = admission()
    for number in range(3):
        each = request(number)
        door.check("default", 0)
        door.enter(each)
        door.next_admitted()
        door.park(each)
    with pytest.raises(MeshError) as caught:
        door.check("default", 0)
    assert caught.value.info.reason == "queue_full"


def test_what_is_kept_of_an_input_counts_while_it_is_kept() -> None:
    door = admission()
    one, other = request(1, 100), request(2)
    door.enter(one)
    door.enter(other)
    assert door.resize(one, 700)
    assert not door.resize(other, 301)
    assert door.input_bytes == 1001
    assert door.resize(one, 100)
    door.leave(one)
    door.leave(other)
    assert door.input_bytes == 0


def test_room_for_those_who_come_again_is_gone_with_the_last_of_them() -> None:
    door = bounded(input_bytes_max=100)
    first, again = request(1, 40), request(2, 40, epoch=2)
    for each in (first, again):
        door.enter(each)
    assert door.resize(first, 120)
    door.leave(again)
    assert not door.resize(first, 120)
    assert door.resize(first, 100)
