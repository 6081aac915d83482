"""The unary calls for gRPC clients, without a server."""

import asyncio
from typing import Any

import msgspec
import pytest

from services.orchestrator.core.events import RequestAbortAsked
from services.orchestrator.core.views import RequestView
from services.orchestrator.driver import Endings
from services.orchestrator.servicer import (
    Calls,
    Conversations,
    Generation,
    OrchestratorServicer,
    Requests,
)
from stagemesh.api.orchestrator.v1 import orchestrator_service_pb2 as pb
from stagemesh.api.orchestrator.v1 import peer_service_pb2
from stagemesh.api.types.v1 import link_pb2, outcome_pb2
from stagemesh.errors import MeshError
from stagemesh.outcome import COMPLETED, Outcome, Terminal, error_for
from tests.helpers.orchestrator_mesh import MESH
from tests.helpers.scripted_core import ScriptedCore, drive
from tests.helpers.shown_requests import NO_PEERS, FewPeers, ShownRequests

NOBODY: Any = None
"""A context, a store or a reader that is never touched."""

DONE = RequestView(
    request_id="done",
    model="echo",
    state="DONE",
    age_s=1.0,
    tenant="default",
    epoch=1,
    terminal=COMPLETED,
)


class Peer:
    """Another orchestrator that has `done` under a higher epoch, and a request of its own."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    async def EndRequest(  # noqa: N802
        self,
        question: peer_service_pb2.EndRequestRequest,
    ) -> peer_service_pb2.EndRequestResponse:
        """End it."""
        self.asked.append(question)
        if question.request_id != "done":
            return peer_service_pb2.EndRequestResponse(answer=pb.AbortResponse())
        return peer_service_pb2.EndRequestResponse(
            epoch=2, answer=pb.AbortResponse(aborted=True, state="DONE")
        )

    async def ShowRequest(  # noqa: N802
        self,
        question: peer_service_pb2.ShowRequestRequest,
    ) -> peer_service_pb2.ShowRequestResponse:
        """Show it."""
        self.asked.append(question)
        if question.request_id != "done":
            return peer_service_pb2.ShowRequestResponse()
        shown = pb.GetRequestResponse(request_id="done", state="RUNNING", epoch=2)
        return peer_service_pb2.ShowRequestResponse(request=shown)

    async def ShowRequests(  # noqa: N802
        self,
        question: peer_service_pb2.ShowRequestsRequest,
    ) -> peer_service_pb2.ShowRequestsResponse:
        """List its own."""
        self.asked.append(question)
        line = pb.RequestSummary(
            request_id="other", orchestrator_id="o-1", opened_ago_s=0.0, number=5
        )
        return peer_service_pb2.ShowRequestsResponse(
            requests=[line], orchestrator_id="o-1", incarnation=9
        )


class Slow:
    """Another orchestrator that takes its time."""

    def __init__(self) -> None:
        self.begun, self.go_on, self.ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def EndRequest(  # noqa: N802
        self,
        question: peer_service_pb2.EndRequestRequest,
    ) -> peer_service_pb2.EndRequestResponse:
        """End it, later."""
        del question
        self.begun.set()
        await self.go_on.wait()
        self.ended.set()
        return peer_service_pb2.EndRequestResponse(answer=pb.AbortResponse())


class Port:
    """The client port, with a core that notes what it is told."""

    def __init__(self, *views: RequestView, peers: FewPeers = NO_PEERS) -> None:
        self.core = ScriptedCore()
        driver = drive(self.core)
        calls = Calls(driver)
        requests = Requests(
            driver, ShownRequests(*views), Endings(), orchestrator_id="o-0", incarnation=3
        )
        self.servicer = OrchestratorServicer(
            Generation(MESH, calls, NOBODY, NOBODY),
            Conversations(MESH, calls, NOBODY, NOBODY),
            requests,
            peers,
            lambda: [link_pb2.PublishedPipeline(model="echo", ready=True)],
        )

    async def abort(self, request_id: str, *, partials: bool = False) -> pb.AbortResponse:
        """Abort by id."""
        request = pb.AbortRequest(request_id=request_id, partials=partials)
        return await self.servicer.Abort(request, NOBODY)


async def test_a_request_that_nobody_has_is_aborted_before_it_comes() -> None:
    port = Port()
    answer = await port.abort("nobody", partials=True)

    assert (answer.aborted, answer.state) == (False, "")
    assert port.core.events == [
        RequestAbortAsked(
            request_id="nobody", cause="client_asked", tenant="default", partials=True
        )
    ]


async def test_one_that_is_over_keeps_its_end() -> None:
    answer = await Port(DONE).abort("done")
    assert not answer.aborted
    assert answer.terminal.outcome == outcome_pb2.OUTCOME_COMPLETED


async def test_every_peer_is_told_of_an_abort_and_the_last_owner_answers() -> None:
    peer = Peer()
    answer = await Port(DONE, peers=FewPeers(peer, unanswered=("o-2",))).abort("done")

    assert answer.aborted
    assert not answer.HasField("terminal")
    assert list(answer.unanswered) == ["o-2"]
    [question] = peer.asked
    assert (question.request_id, question.tenant) == ("done", "default")


async def test_who_leaves_before_the_answer_has_asked_all_the_same() -> None:
    peer = Slow()
    port = Port(peers=FewPeers(peer))
    asking = asyncio.create_task(port.abort("nobody"))
    await peer.begun.wait()
    asking.cancel()
    await asyncio.wait([asking])
    assert asking.cancelled()
    peer.go_on.set()
    async with asyncio.timeout(5):
        await peer.ended.wait()


async def test_a_state_that_is_none_is_refused_by_name() -> None:
    with pytest.raises(MeshError) as caught:
        await Port().servicer.ListRequests(pb.ListRequestsRequest(state="RUNING"), NOBODY)
    assert caught.value.info.param == "state"


async def test_a_request_is_shown_by_its_last_owner() -> None:
    port = Port(DONE, peers=FewPeers(Peer()))
    shown = await port.servicer.GetRequest(pb.GetRequestRequest(request_id="done"), NOBODY)
    assert (shown.epoch, shown.state) == (2, "RUNNING")


async def test_a_request_that_no_peer_knows_is_shown_from_here() -> None:
    view = msgspec.structs.replace(DONE, request_id="mine")
    port = Port(view, peers=FewPeers(Peer()))
    shown = await port.servicer.GetRequest(pb.GetRequestRequest(request_id="mine"), NOBODY)
    assert (shown.request_id, shown.state, shown.orchestrator_id) == ("mine", "DONE", "o-0")


@pytest.mark.parametrize("request_id", ["", "x" * 129])
async def test_what_cannot_be_an_id_is_refused_by_name(request_id: str) -> None:
    port = Port()
    with pytest.raises(MeshError) as caught:
        await port.abort(request_id)
    assert caught.value.info.param == "request_id"
    with pytest.raises(MeshError) as caught:
        await port.servicer.GetRequest(pb.GetRequestRequest(request_id=request_id), NOBODY)
    assert caught.value.info.param == "request_id"
    assert port.core.events == []


async def test_a_list_is_put_together_from_all_and_says_who_is_missing() -> None:
    failed = Terminal(outcome=Outcome.FAILED, error=error_for("engine_error"))
    port = Port(
        msgspec.structs.replace(DONE, terminal=failed),
        peers=FewPeers(Peer(), unanswered=("o-2",)),
    )
    answer = await port.servicer.ListRequests(pb.ListRequestsRequest(), NOBODY)

    assert [line.request_id for line in answer.requests] == ["other", "done"]
    assert answer.requests[1].terminal.outcome == outcome_pb2.OUTCOME_FAILED
    assert list(answer.unanswered) == ["o-2"]
    assert answer.next_page_token == ""


async def test_a_page_s_token_goes_to_every_peer_as_marks() -> None:
    peer = Peer()
    port = Port(DONE, peers=FewPeers(peer))
    first = await port.servicer.ListRequests(pb.ListRequestsRequest(page_size=1), NOBODY)
    assert [line.request_id for line in first.requests] == ["other"]
    token = first.next_page_token
    await port.servicer.ListRequests(pb.ListRequestsRequest(page_token=token), NOBODY)
    question = peer.asked[-1]
    assert [(mark.incarnation, mark.before) for mark in question.marks] == [(9, 5)]


async def test_models_are_those_that_this_process_publishes_now() -> None:
    answer = await Port().servicer.ListModels(pb.ListModelsRequest(), NOBODY)
    assert [(model.model, model.ready) for model in answer.models] == [("echo", True)]
