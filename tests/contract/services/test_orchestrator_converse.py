"""Streamed input over real links: of clients, and of gateways."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc import aio

from stagemesh.api.orchestrator.v1 import orchestrator_service_pb2
from stagemesh.api.types.v1 import link_pb2, outcome_pb2, request_pb2
from stagemesh.link.core import REQUEST_SOURCE, Row
from stagemesh.rpc import error_of
from tests.helpers.fake_gateway import FakeGateway
from tests.helpers.fake_worker import STOP, FakeWorker
from tests.helpers.orchestrator_mesh import CONVERSING
from tests.helpers.running_orchestrator import (
    RunningOrchestrator,
    ask,
    gateway_of,
    running_orchestrator,
)

Step = orchestrator_service_pb2.ConverseRequest
Append = orchestrator_service_pb2.Append
OPEN = Step(open=request_pb2.Request(model="listen"))
LISTEN = ask(model="listen").request


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


async def running(
    stack: AsyncExitStack, directory: Path, *workers: FakeWorker
) -> RunningOrchestrator:
    orchestrator = await stack.enter_async_context(
        running_orchestrator(workers, directory, mesh=CONVERSING)
    )
    await orchestrator.serving("listen")
    async with asyncio.timeout(10):
        while not all(one.connected for one in await orchestrator.replicas()):
            pass
    return orchestrator


async def request_id_of(call: aio.StreamStreamCall[Any, Any]) -> str:
    return str(dict(await call.initial_metadata())["x-request-id"])


async def worker(stack: AsyncExitStack, name: str = "thinker-0") -> FakeWorker:
    return await stack.enter_async_context(
        FakeWorker(name, contract=link_pb2.RESUME_CONTRACT_TOKENS)
    )


async def heard(worker: FakeWorker, count: int) -> list[Row]:
    """Wait for the next pieces that a worker is sent."""
    async with asyncio.timeout(10):
        return [await worker.inputs.get() for _ in range(count)]


async def test_pieces_reach_the_stage_one_by_one_and_outputs_come_meanwhile(
    stack: AsyncExitStack, tmp_path: Path
) -> None:
    listener = await worker(stack)
    orchestrator = await running(stack, tmp_path, listener)
    call = orchestrator.stub.Converse(timeout=20)
    await call.write(OPEN)
    await call.write(Step(append=Append(text="so")))
    job = await listener.job()
    [source] = job.submit.sources
    assert (source.lane, source.stage) == (REQUEST_SOURCE, "input")
    assert source.mode == link_pb2.EDGE_MODE_STREAM
    [first] = await heard(listener, 1)
    assert (first.lane, first.pos, first.units, first.text) == (REQUEST_SOURCE, 0, 1, "so")
    job.say("so")
    response = await call.read()
    assert isinstance(response, orchestrator_service_pb2.ConverseResponse)
    assert [output.text for output in response.outputs] == ["so"]
    await call.write(Step(segment_end=orchestrator_service_pb2.SegmentEnd()))
    await call.write(Step(close=orchestrator_service_pb2.CloseInput()))
    marks = await heard(listener, 2)
    assert [(row.segment_end, row.end is not None) for row in marks] == [
        (True, False),
        (False, True),
    ]
    job.say("", end=STOP)
    while not response.HasField("terminal"):
        answer = await call.read()
        assert isinstance(answer, orchestrator_service_pb2.ConverseResponse)
        response = answer
    assert response.terminal.outcome == outcome_pb2.OUTCOME_COMPLETED
    assert (await request_id_of(call)).startswith("req_")


async def test_a_client_is_held_back_while_nobody_takes_its_input(
    stack: AsyncExitStack, tmp_path: Path
) -> None:
    listener = await worker(stack)
    orchestrator = await running(stack, tmp_path, listener)
    call = orchestrator.stub.Converse(timeout=20)
    await call.write(OPEN)
    written = 0
    with pytest.raises(TimeoutError):
        while written < 4_000:  # 64 MB, which no buffer on the way has.
            async with asyncio.timeout(1):
                await call.write(Step(append=Append(text="x" * 16_000)))
            written += 1
    await heard(listener, 64)  # The worker's window, and it grants no more.
    assert listener.inputs.empty()
    call.cancel()
    async with asyncio.timeout(10):
        await listener.aborted.get()


async def test_cancelling_the_call_aborts_the_request(
    stack: AsyncExitStack, tmp_path: Path
) -> None:
    listener = await worker(stack)
    orchestrator = await running(stack, tmp_path, listener)
    call = orchestrator.stub.Converse(timeout=20)
    await call.write(OPEN)
    await call.write(Step(append=Append(text="so")))
    job = await listener.job()
    call.cancel()
    async with asyncio.timeout(10):
        assert await listener.aborted.get() == job.slot
    view = await orchestrator.until_done(await request_id_of(call))
    assert view.terminal.outcome == outcome_pb2.OUTCOME_CANCELLED


async def test_a_model_that_hears_nobody_says_so(stack: AsyncExitStack, tmp_path: Path) -> None:
    orchestrator = await running(stack, tmp_path, await worker(stack))
    call = orchestrator.stub.Converse(timeout=20)
    await call.write(Step(open=ask().request))
    await call.write(Step(append=Append(text="so")))
    with pytest.raises(aio.AioRpcError) as caught:
        async for _ in call:
            pass
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert error_of(caught.value).param == "append"


async def test_a_gateway_gives_input_piece_by_piece_and_gets_credit_for_it(
    stack: AsyncExitStack, tmp_path: Path
) -> None:
    listener = await worker(stack)
    orchestrator = await running(stack, tmp_path, listener)
    gateway = await gateway_of(stack, orchestrator)
    slot = gateway.open(LISTEN, streamed=True)
    for at in range(40):
        gateway.append(slot, at, f" w{at}")
    await heard(listener, 40)
    await gateway.until(lambda: bool(gateway.grants))
    [grant] = gateway.grants
    assert (grant.slot, grant.source) == (slot, REQUEST_SOURCE)
    assert 32 <= grant.units - 64 <= 40
    gateway.append(slot, 40, end=True)
    job = await listener.job()
    job.say("all", end=STOP)
    await gateway.until(lambda: gateway.terminal(slot) is not None)


async def test_input_for_a_request_that_is_over_or_unknown_is_answered_once(
    stack: AsyncExitStack, tmp_path: Path
) -> None:
    listener = await worker(stack)
    orchestrator = await running(stack, tmp_path, listener)
    gateway = await gateway_of(stack, orchestrator)
    slot = gateway.open(LISTEN, streamed=True)
    gateway.append(slot, 0, "so")
    (await listener.job()).say("so", end=STOP)
    await gateway.until(lambda: gateway.terminal(slot) is not None)
    for at in range(1, 4):
        gateway.append(slot, at, "late")
        gateway.append(99, at, "who?")
    unknown = _unknown_of(gateway)
    await gateway.until(lambda: len(unknown()) == 2)
    last = gateway.open(LISTEN, streamed=True)
    gateway.append(last, 0, "on")
    await listener.job()
    assert unknown() == [slot, 99]
    assert listener.jobs.empty()


def _unknown_of(gateway: FakeGateway) -> Callable[[], list[int]]:
    return lambda: [frame.unknown.slot for frame in gateway.frames if frame.HasField("unknown")]


async def test_a_lost_worker_is_driven_again_with_the_input_so_far(
    stack: AsyncExitStack, tmp_path: Path
) -> None:
    workers = [await worker(stack, f"thinker-{index}") for index in range(2)]
    orchestrator = await running(stack, tmp_path, *workers)
    gateway = await gateway_of(stack, orchestrator)
    slot = gateway.open(LISTEN, streamed=True)
    gateway.append(slot, 0, "so")
    gateway.append(slot, 1, "it")
    await gateway.until(lambda: any(frame.HasField("placed") for frame in gateway.frames))
    [placed] = [frame.placed for frame in gateway.frames if frame.HasField("placed")]
    first, second = workers if placed.replica_id == "thinker-0" else workers[::-1]
    (await first.job()).say("so")
    await gateway.until(lambda: gateway.texts(slot) == ["so"])
    await first.kill()
    job = await second.job()
    gateway.append(slot, 2, "goes")
    gateway.append(slot, 3, end=True)
    pieces = await heard(second, 3)
    assert [row.text for row in pieces] == ["so", "it", "goes"]
    assert job.pos == 1
    job.say("it")
    job.say("goes", end=STOP)
    await gateway.until(lambda: gateway.terminal(slot) is not None)
    assert gateway.texts(slot) == ["so", "it", "goes"]


async def test_a_new_owner_is_given_the_input_between_open_and_go(
    stack: AsyncExitStack, tmp_path: Path
) -> None:
    listener = await worker(stack)
    orchestrator = await running(stack, tmp_path, listener)
    gateway = await gateway_of(stack, orchestrator)
    slot = gateway.open(LISTEN, epoch=2, request_id="req_1", more=True, streamed=True)
    for at in range(100):  # More than the window: these were paid for.
        gateway.append(slot, at, f" w{at}")
    gateway.send(link_pb2.Frame(go=link_pb2.Go(slot=slot)))
    job = await listener.job()
    await heard(listener, 64)
    gateway.append(slot, 100, "on")
    gateway.append(slot, 101, end=True)
    job.say("all", end=STOP)
    await gateway.until(lambda: gateway.terminal(slot) is not None)
    terminal = gateway.terminal(slot)
    assert terminal is not None
    assert terminal.outcome == outcome_pb2.OUTCOME_COMPLETED
