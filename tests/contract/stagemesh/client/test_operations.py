"""The client of an admin port's calls, against a server that answers as told."""

from typing import Any

import pytest
from grpc import aio

from stagemesh.api.admin.v1 import admin_service_pb2 as pb
from stagemesh.api.admin.v1 import admin_service_pb2_grpc
from stagemesh.client import drain, pause, resume, sleep, undrain, wake_up
from stagemesh.control import PauseMode
from stagemesh.errors import MeshError, invalid
from stagemesh.rpc import start_server
from tests.helpers.loopback import free_address

METHODS = ("Pause", "Resume", "Sleep", "WakeUp", "Drain", "Undrain")


class Admin(admin_service_pb2_grpc.AdminServiceServicer):
    """Keeps what it is asked, and answers for one replica; `singer` it does not know."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        for name in METHODS:
            setattr(self, name, self._answer(getattr(pb, f"{name}Response")))

    def _answer(self, response: Any) -> Any:
        async def call(request: Any, context: aio.ServicerContext[Any, Any]) -> Any:
            self.asked.append(request)
            if "singer" in getattr(request, "pools", ()):
                raise invalid("There is no pool 'singer'.", param="pools[0]")
            one = pb.ReplicaResult(pool="p", replica_id="t-0")
            one.error.reason, one.error.message = "conflict", "It is asleep."
            return response(results=[one])

        return call


async def test_calls_go_out_as_asked_and_results_come_as_plain_values() -> None:
    admin: Any = Admin()  # type: ignore[abstract]  # Its methods are made when it is.
    server = await start_server(
        "127.0.0.1:0",
        register=lambda server: admin_service_pb2_grpc.add_AdminServiceServicer_to_server(
            admin, server
        ),
        services=(),
    )
    at = server.address
    try:
        (found,) = await pause(at, ["p"], PauseMode.KEEP, timeout_s=2.0)
        await resume(at, ["p"], timeout_s=2.0)
        await sleep(at, ["p"], PauseMode.ABORT, ["weights"], timeout_s=2.0)
        await wake_up(at, ["p"], ["weights"], timeout_s=2.0)
        await drain(at, ["t-0"], orchestrator=False, drain_s=2.0)
        await undrain(at, [], orchestrator=True, timeout_s=2.0)
        with pytest.raises(MeshError) as caught:
            await resume(at, ["singer"], timeout_s=2.0)
    finally:
        await server.stop(0)
    assert (found.pool, found.replica_id, found.reason) == ("p", "t-0", "conflict")
    assert caught.value.info.param == "pools[0]"
    paused, _, slept, woken, drained, undrained = admin.asked[:6]
    assert (list(paused.pools), paused.mode, paused.timeout_s) == (["p"], 3, 2.0)
    assert (slept.mode, list(slept.tags), list(woken.tags)) == (1, ["weights"], ["weights"])
    assert (list(drained.replica_ids), drained.drain_s) == (["t-0"], 2.0)
    assert undrained.orchestrator


async def test_nobody_there_is_a_lost_link() -> None:
    with pytest.raises(MeshError) as caught:
        await resume(free_address(), [], timeout_s=0.0)
    assert caught.value.info.retryable
