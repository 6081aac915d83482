"""Orchestrators that know each other: whichever is asked, all answer."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
from grpc import aio

from services.orchestrator.peers import Peers
from stagemesh.api.orchestrator.v1 import orchestrator_service_pb2 as pb
from stagemesh.api.orchestrator.v1 import peer_service_pb2, peer_service_pb2_grpc
from stagemesh.api.types.v1 import outcome_pb2
from stagemesh.discovery import Endpoint, StaticSource
from tests.helpers.fake_gateway import FakeGateway
from tests.helpers.fake_worker import FakeWorker, counting
from tests.helpers.running_orchestrator import RunningOrchestrator, ask, running_peers

Call = aio.UnaryStreamCall[pb.GenerateRequest, pb.GenerateResponse]
Pair = tuple[RunningOrchestrator, RunningOrchestrator]


@pytest.fixture
async def worker() -> AsyncIterator[FakeWorker]:
    async with FakeWorker() as worker:
        yield worker


@pytest.fixture
async def pair(worker: FakeWorker, tmp_path: Path) -> AsyncIterator[Pair]:
    async with running_peers([worker], tmp_path) as pair:
        for one in pair:
            await one.serving("echo")
        yield pair


def ended(gateway: FakeGateway, slot: int) -> bool:
    return gateway.terminal(slot) is not None


async def begun(
    orchestrator: RunningOrchestrator,
) -> tuple[Call, str]:
    call = orchestrator.stub.Generate(ask())
    metadata = dict(await call.initial_metadata() or ())
    return call, str(metadata["x-request-id"])


async def test_a_request_is_shown_by_whichever_orchestrator_is_asked(
    pair: Pair, worker: FakeWorker
) -> None:
    first, second = pair
    call, request_id = await begun(second)
    await worker.job()
    shown = await first.stub.GetRequest(pb.GetRequestRequest(request_id=request_id))

    assert (shown.orchestrator_id, shown.state, shown.epoch) == ("o-1", "RUNNING", 1)
    kinds = [event.kind for event in shown.events]
    assert kinds[0] == pb.REQUEST_EVENT_KIND_OPENED
    assert kinds[-1] == pb.REQUEST_EVENT_KIND_SUBMITTED
    call.cancel()


async def test_an_abort_reaches_a_request_wherever_it_runs_and_is_acknowledged(
    pair: Pair, worker: FakeWorker
) -> None:
    first, second = pair
    call, request_id = await begun(second)
    job = await worker.job()
    told = await first.stub.Abort(pb.AbortRequest(request_id=request_id))

    assert (told.aborted, told.state) == (True, "DONE")
    assert told.terminal.outcome == outcome_pb2.OUTCOME_CANCELLED
    assert worker.aborted.get_nowait() == job.slot
    with pytest.raises(aio.AioRpcError):
        async for _ in call:
            pass
    again = await first.stub.Abort(pb.AbortRequest(request_id=request_id))
    assert (again.aborted, again.state) == (False, "DONE")


@pytest.mark.invariant("ORCH-INV-220")
async def test_every_peer_refuses_what_was_aborted_before_it_came(pair: Pair) -> None:
    first, second = pair
    await first.stub.Abort(pb.AbortRequest(request_id="req_early"))
    for one in (first, second):
        async with FakeGateway(one.gateway_link.Attach) as gateway:
            for epoch in (1, 3):
                slot = gateway.open(ask().request, request_id="req_early", epoch=epoch)
                await gateway.until(partial(ended, gateway, slot))
                terminal = gateway.terminal(slot)
                assert terminal is not None
                assert terminal.outcome == outcome_pb2.OUTCOME_CANCELLED


async def test_an_abort_that_finds_its_request_between_two_owners_ends_it_at_the_next(
    pair: Pair, worker: FakeWorker
) -> None:
    first, second = pair
    async with FakeGateway(second.gateway_link.Attach) as gateway:
        gateway.open(ask().request, request_id="req_moved")
        await worker.job()
    told = await first.stub.Abort(pb.AbortRequest(request_id="req_moved"))
    assert told.aborted, "its last owner keeps it for a while"
    async with FakeGateway(first.gateway_link.Attach) as gateway:
        slot = gateway.open(ask().request, request_id="req_moved", epoch=2)
        await gateway.until(lambda: gateway.terminal(slot) is not None)
        terminal = gateway.terminal(slot)
        assert terminal is not None
        assert terminal.outcome == outcome_pb2.OUTCOME_CANCELLED


async def test_a_peer_that_is_not_there_costs_no_more_than_a_second_and_is_named(
    worker: FakeWorker, tmp_path: Path
) -> None:
    async with running_peers([worker], tmp_path, missing=True) as (first, _):
        await first.serving("echo")
        async with asyncio.timeout(3):
            told = await first.stub.Abort(pb.AbortRequest(request_id="req_nobody"))
            listed = await first.stub.ListRequests(pb.ListRequestsRequest())
        assert list(told.unanswered) == ["o-2"]
        assert list(listed.unanswered) == ["o-2"]


class Noting:
    """A channel that notes how long each call may take, and gives its question back."""

    def __init__(self) -> None:
        self.timeouts: list[float | None] = []

    def unary_unary(self, *_: object, **__: object) -> Callable[..., Awaitable[object]]:
        """Give a method that answers with the question."""

        async def call(question: object, *, timeout: float | None = None) -> object:  # noqa: ASYNC109 - gRPC's
            self.timeouts.append(timeout)
            return question

        return call

    async def close(self, grace: float | None) -> None:
        """Nothing is open."""


async def test_every_peer_has_a_second_whatever_it_is_asked() -> None:
    channel, question = Noting(), peer_service_pb2.ShowRequestRequest(request_id="req_a")
    endpoints = {"orchestrators": tuple(Endpoint(id=f"o-{n}", address="-") for n in range(3))}
    peers = Peers("o-0", source=StaticSource(endpoints), open_channel=lambda _: cast(Any, channel))
    following = asyncio.create_task(peers.run())
    await asyncio.sleep(0)
    answers = await peers.ask(lambda stub: stub.ShowRequest, question)
    assert (len(answers.given), answers.unanswered) == (2, ())
    assert channel.timeouts == [1.0, 1.0]
    following.cancel()


async def test_the_requests_of_all_are_listed_the_last_first_in_pages(tmp_path: Path) -> None:
    async with (
        FakeWorker(script=counting(1)) as worker,
        running_peers([worker], tmp_path) as (first, second),
    ):
        ids: list[str] = []
        for one in (first, second, first, second):
            await one.serving("echo")
            call, request_id = await begun(one)
            async for _ in call:
                pass
            ids.append(request_id)
        pages: list[list[str]] = []
        token = ""
        while not pages or token:
            request = pb.ListRequestsRequest(page_size=3, page_token=token, state="DONE")
            page = await second.stub.ListRequests(request)
            pages.append([line.request_id for line in page.requests])
            token = page.next_page_token
        assert pages[:2] == [[*reversed(ids)][:3], ids[:1]]
        running = pb.ListRequestsRequest(state="RUNNING")
        assert not (await second.stub.ListRequests(running)).requests


async def test_what_orchestrators_ask_each_other_is_not_served_to_clients(pair: Pair) -> None:
    first, _ = pair
    question = peer_service_pb2.ShowRequestRequest(request_id="r")
    inside = peer_service_pb2_grpc.PeerServiceStub(first.links)
    assert not (await inside.ShowRequest(question)).HasField("request")
    for channel in (first.channel, first.admin):
        with pytest.raises(aio.AioRpcError) as caught:
            await peer_service_pb2_grpc.PeerServiceStub(channel).ShowRequest(question)
        assert caught.value.code().name == "UNIMPLEMENTED"


async def test_a_peer_that_is_asked_does_not_ask_on(pair: Pair, worker: FakeWorker) -> None:
    first, second = pair
    call, request_id = await begun(second)
    await worker.job()
    question = peer_service_pb2.ShowRequestRequest(request_id=request_id, tenant="default")
    asked = await peer_service_pb2_grpc.PeerServiceStub(first.links).ShowRequest(question)
    assert not asked.HasField("request"), "it answers for itself alone"
    call.cancel()


async def test_partials_come_before_the_terminal_whatever_the_credit(
    pair: Pair, worker: FakeWorker
) -> None:
    first, second = pair
    async with FakeGateway(second.gateway_link.Attach, window_units=2) as gateway:
        slot = gateway.open(ask().request, request_id="req_part")
        job = await worker.job()
        for at in range(5):
            job.say(f" w{at}")
        await gateway.until(lambda: len(gateway.texts(slot)) == 2)
        told = await first.stub.Abort(pb.AbortRequest(request_id="req_part", partials=True))
        assert told.aborted
        await gateway.until(lambda: gateway.terminal(slot) is not None)
        assert "".join(gateway.texts(slot)) == " w0 w1 w2 w3 w4"
        terminal = gateway.terminal(slot)
        assert terminal is not None
        assert terminal.usage.completion_tokens == 5
        end = gateway.rows[-1].end
        assert end is not None
        assert end.finish_reason.name == "ABORT"
