"""The unary calls for gRPC clients, without a server."""

from typing import Any

import pytest

from services.orchestrator.core.events import RequestAbortAsked
from services.orchestrator.core.views import RequestView
from services.orchestrator.servicer import (
    Calls,
    Conversations,
    Generation,
    OrchestratorServicer,
)
from stagemesh.api.orchestrator.v1 import orchestrator_service_pb2
from stagemesh.api.types.v1 import link_pb2
from tests.helpers.orchestrator_mesh import MESH
from tests.helpers.scripted_core import ScriptedCore, drive

NOBODY: Any = None
"""A context, a store or a reader that is never touched."""


class Shown:
    """A core's views of two requests."""

    def request_view(self, request_id: str) -> RequestView | None:
        """Show `running` and `done`."""
        states = {"running": "RUNNING", "done": "DONE"}
        if request_id not in states:
            return None
        return RequestView(request_id=request_id, model="echo", state=states[request_id], age_s=1.0)


class Port:
    """The client port, with a core that notes what it is told."""

    def __init__(self) -> None:
        self.core = ScriptedCore()
        driver = drive(self.core)
        calls = Calls(driver)
        self.servicer = OrchestratorServicer(
            Generation(MESH, calls, NOBODY, NOBODY),
            Conversations(MESH, calls, NOBODY, NOBODY),
            driver,
            Shown(),
            lambda: [link_pb2.PublishedPipeline(model="echo", ready=True)],
        )

    async def abort(self, request_id: str) -> bool:
        """Abort by id; give the answer."""
        request = orchestrator_service_pb2.AbortRequest(request_id=request_id)
        return (await self.servicer.Abort(request, NOBODY)).aborted


async def test_a_running_request_is_aborted_by_its_id() -> None:
    port = Port()

    assert await port.abort("running")
    assert port.core.events == [RequestAbortAsked(request_id="running", cause="client_asked")]


@pytest.mark.parametrize("request_id", ["done", "nobody"])
async def test_what_is_not_running_is_not_aborted(request_id: str) -> None:
    port = Port()

    assert not await port.abort(request_id)
    assert port.core.events == []


async def test_a_request_is_shown_by_its_id() -> None:
    request = orchestrator_service_pb2.GetRequestRequest(request_id="done")
    shown = await Port().servicer.GetRequest(request, NOBODY)

    assert (shown.request_id, shown.state) == ("done", "DONE")


async def test_models_are_those_that_this_process_publishes_now() -> None:
    request = orchestrator_service_pb2.ListModelsRequest()
    answer = await Port().servicer.ListModels(request, NOBODY)

    assert [(model.model, model.ready) for model in answer.models] == [("echo", True)]
