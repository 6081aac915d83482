"""What operators ask, read; `test_admin` has every call with what may be wrong with it."""

import pytest

from services.orchestrator.core.effects import ReplicaResult
from services.orchestrator.translate import controls
from stagemesh.api.admin.v1 import admin_service_pb2 as pb
from stagemesh.control import Answer, CollectiveCall
from stagemesh.errors import MeshError
from stagemesh.outcome import ErrorCode, error_for

POOLS = ("thinker", "talker")


@pytest.mark.parametrize(
    ("named", "meant"),
    [
        ((), {"thinker", "talker"}),
        (("thinker",), {"thinker"}),
        (("talker", "talker"), {"talker"}),
    ],
)
def test_no_pool_means_all_and_one_named_twice_counts_once(
    named: tuple[str, ...], meant: set[str]
) -> None:
    assert controls.pools_of(named, POOLS) == meant


@pytest.mark.parametrize("named", [("0",), ("-1",), ("thinker", "99")])
def test_a_pool_that_the_mesh_has_not_is_named_with_those_that_it_has(
    named: tuple[str, ...],
) -> None:
    with pytest.raises(MeshError, match="there are talker, thinker") as caught:
        controls.pools_of(named, POOLS)
    assert caught.value.info.code is ErrorCode.INVALID_ARGUMENT
    assert caught.value.info.param == f"pools[{len(named) - 1}]"


@pytest.mark.parametrize(("given", "meant"), [(None, 30.0), (0.0, 0.0), (600.0, 600.0)])
def test_a_call_has_30_seconds_unless_it_says_otherwise(given: float | None, meant: float) -> None:
    assert controls.seconds_of(pb.PauseRequest(timeout_s=given), "timeout_s") == meant
    assert controls.seconds_of(pb.DrainRequest(drain_s=given), "drain_s") == meant


@pytest.mark.parametrize("given", [-1.0, -0.001, 600.1, float("inf"), float("nan")])
def test_a_time_that_cannot_be_is_refused(given: float) -> None:
    with pytest.raises(MeshError) as caught:
        controls.seconds_of(pb.DrainRequest(drain_s=given), "drain_s")
    assert caught.value.info.param == "drain_s"


def test_a_collective_call_needs_every_replica_to_allow_it() -> None:
    request = pb.CollectiveCallRequest(name="state")
    allowed = [["state", "echo"], ["state"]]
    assert controls.collective_call(request, allowed) == CollectiveCall(name="state")
    request.name = "echo"
    with pytest.raises(MeshError, match="they allow state"):
        controls.collective_call(request, allowed)
    with pytest.raises(MeshError, match="they allow none"):
        controls.collective_call(request, [["echo"], []])


def test_a_result_says_what_failed_and_what_was_given() -> None:
    failed = Answer(error=error_for("conflict", "It is asleep."))
    result = ReplicaResult(
        pool="thinker", replica_id="t-0", incarnation=5, answer=failed, took_s=0.25
    )
    message = controls.result_to_proto(result)
    assert (message.pool, message.replica_id, message.incarnation) == ("thinker", "t-0", 5)
    assert (message.error.reason, message.took_s) == ("conflict", 0.25)
    assert not message.HasField("value")
