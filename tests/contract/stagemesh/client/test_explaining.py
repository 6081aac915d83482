from typing import Any

import pytest
from grpc import aio

from stagemesh.api.admin.v1 import admin_service_pb2, admin_service_pb2_grpc
from stagemesh.api.orchestrator.v1 import orchestrator_service_pb2 as pb
from stagemesh.api.types.v1 import outcome_pb2
from stagemesh.client import explain_request
from stagemesh.rpc import start_server


class Admin(admin_service_pb2_grpc.AdminServiceServicer):
    """Knows one request."""

    ListReplicas = Watch = Drain = Undrain = None  # type: ignore[assignment]
    Pause = Resume = Sleep = WakeUp = ResetCache = None  # type: ignore[assignment]
    LoadAdapter = UnloadAdapter = ListAdapters = None  # type: ignore[assignment]
    StartProfile = StopProfile = CollectiveCall = None  # type: ignore[assignment]

    async def ExplainRequest(  # noqa: N802 - the name is gRPC's.
        self, request: Any, context: Any
    ) -> admin_service_pb2.ExplainRequestResponse:
        """Tell of it."""
        del context
        if request.request_id != "req_a":
            return admin_service_pb2.ExplainRequestResponse()
        shown = pb.GetRequestResponse(
            request_id="req_a",
            label="mine",
            model="talk",
            state="DONE",
            epoch=2,
            orchestrator_id="o-1",
            age_s=1.5,
            events_dropped=3,
            terminal=pb.RequestTerminal(
                outcome=outcome_pb2.OUTCOME_FAILED,
                error=outcome_pb2.ErrorInfo(reason="replica_lost", message="It was lost."),
            ),
            stages=[pb.StageTimes(stage="thinker", attempts=2, compute_s=0.5)],
        )
        shown.events.add(kind=pb.REQUEST_EVENT_KIND_ATTEMPT_ENDED, state="LOST", incarnation=171)
        shown.events.add(kind=pb.RequestEventKind.ValueType(99))
        return admin_service_pb2.ExplainRequestResponse(request=shown)


async def test_a_story_comes_as_plain_values_and_what_is_new_by_its_number() -> None:
    server = await start_server(
        "127.0.0.1:0",
        register=lambda server: admin_service_pb2_grpc.add_AdminServiceServicer_to_server(
            Admin(), server
        ),
        services=(),
    )
    try:
        story = await explain_request(server.address, "req_a", timeout_s=5.0)
        nothing = await explain_request(server.address, "req_b", timeout_s=5.0)
    finally:
        await server.stop(0)
    assert nothing is None
    assert story is not None
    assert story.label == "mine"
    assert (story.request_id, story.model, story.state, story.epoch) == ("req_a", "talk", "DONE", 2)
    assert (story.orchestrator_id, story.outcome, story.reason) == ("o-1", "failed", "replica_lost")
    assert (story.age_s, story.dropped) == (1.5, 3)
    assert [(one.stage, one.attempts, one.compute_s) for one in story.stages] == [
        ("thinker", 2, 0.5)
    ]
    assert [(one.kind, one.state) for one in story.happenings] == [
        ("attempt_ended", "lost"),
        ("99", ""),
    ]
    assert story.happenings[0].incarnation == "00000000000000ab"


async def test_nobody_there_is_an_error_of_the_call() -> None:
    with pytest.raises(aio.AioRpcError):
        await explain_request("127.0.0.1:1", "req_a", timeout_s=0.5)
