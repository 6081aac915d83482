"""The link port: a gateway, an orchestrator and a worker, over real links."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from stagemesh.api.types.v1 import link_pb2, outcome_pb2, request_pb2
from tests.helpers.fake_gateway import FakeGateway
from tests.helpers.fake_worker import STOP, FakeWorker, counting
from tests.helpers.running_orchestrator import RunningOrchestrator, ask, running_orchestrator


@pytest.fixture
async def worker() -> AsyncIterator[FakeWorker]:
    async with FakeWorker() as worker:
        yield worker


@pytest.fixture
async def orchestrator(worker: FakeWorker, tmp_path: Path) -> AsyncIterator[RunningOrchestrator]:
    async with running_orchestrator([worker], tmp_path) as orchestrator:
        await orchestrator.serving("echo")
        yield orchestrator


@pytest.fixture
async def gateway(orchestrator: RunningOrchestrator) -> AsyncIterator[FakeGateway]:
    async with FakeGateway(orchestrator.gateway_link.Attach) as gateway:
        yield gateway


def request() -> request_pb2.Request:
    return ask().request


async def test_an_orchestrator_introduces_itself_with_what_it_serves(gateway: FakeGateway) -> None:
    assert gateway.link is not None
    hello = gateway.link.peer

    assert hello.service == link_pb2.SERVICE_KIND_ORCHESTRATOR
    assert (hello.id, hello.state) == ("o-0", link_pb2.PROCESS_STATE_READY)
    assert {pipeline.model: pipeline.ready for pipeline in hello.pipelines} == {
        "echo": True,
        "talk": False,
        "parrot": False,
    }
    assert (hello.limits.window_units, hello.limits.window_bytes) == (64, 1 << 20)


async def test_requests_of_one_gateway_share_its_link_and_keep_apart(
    gateway: FakeGateway, worker: FakeWorker
) -> None:
    slots = [gateway.open(request()) for _ in range(3)]
    jobs = [await worker.job() for _ in slots]
    for round_ in range(2):
        for index, job in enumerate(jobs):
            job.say(f" {index}.{round_}", end=STOP if round_ else None)
    await gateway.until(lambda: all(gateway.terminal(slot) for slot in slots))

    assert [gateway.texts(slot) for slot in slots] == [
        [f" {index}.0", f" {index}.1"] for index in range(3)
    ]
    terminals = [gateway.terminal(slot) for slot in slots]
    assert {one.outcome for one in terminals if one} == {outcome_pb2.OUTCOME_COMPLETED}


async def test_without_credit_a_request_waits_alone(
    orchestrator: RunningOrchestrator, worker: FakeWorker
) -> None:
    async with FakeGateway(orchestrator.gateway_link.Attach, window_units=8) as gateway:
        slow, other = gateway.open(request()), gateway.open(request())
        jobs = [await worker.job(), await worker.job()]
        for index in range(100):
            jobs[0].say(f" w{index}", end=STOP if index == 99 else None)
        jobs[1].say(" other", end=STOP)
        await gateway.until(lambda: gateway.terminal(other) is not None)
        sent = sum(row.units for row in gateway.rows if row.slot == slow)
        assert 8 <= sent < 100
        assert gateway.terminal(slow) is None

        gateway.grant(slow, 1_000)
        await gateway.until(lambda: gateway.terminal(slow) is not None)
        assert "".join(gateway.texts(slow)) == "".join(f" w{index}" for index in range(100))


async def test_an_abort_of_a_gateway_ends_with_one_terminal(
    gateway: FakeGateway, worker: FakeWorker
) -> None:
    slot = gateway.open(request())
    job = await worker.job()
    gateway.send(link_pb2.Frame(abort=link_pb2.Abort(slot=slot, cause="client_closed")))
    await gateway.until(lambda: gateway.terminal(slot) is not None)

    terminal = gateway.terminal(slot)
    assert terminal is not None
    assert terminal.outcome == outcome_pb2.OUTCOME_CANCELLED
    async with asyncio.timeout(5):
        assert await worker.aborted.get() == job.slot


async def test_a_gateway_that_dies_takes_its_requests_along(
    orchestrator: RunningOrchestrator, gateway: FakeGateway, worker: FakeWorker
) -> None:
    gateway.open(request())
    job = await worker.job()
    await gateway.leave()

    async with asyncio.timeout(5):
        assert await worker.aborted.get() == job.slot
    await orchestrator.until_done(job.submit.request_id)
    assert orchestrator.metric('stagemesh_orchestrator_requests_open{model="echo"}') == 0


async def test_a_request_that_says_nothing_is_refused_and_the_link_lives(
    gateway: FakeGateway, worker: FakeWorker
) -> None:
    empty = request()
    empty.messages[0].parts.add()
    slot = gateway.open(empty)
    await gateway.until(lambda: gateway.terminal(slot) is not None)
    terminal = gateway.terminal(slot)
    assert terminal is not None
    assert terminal.outcome == outcome_pb2.OUTCOME_REJECTED
    assert terminal.error.param == "messages[0].parts[1]"

    again = gateway.open(request())
    (await worker.job()).say(" w0", end=STOP)
    await gateway.until(lambda: gateway.terminal(again) is not None)


async def test_a_gateway_hears_at_once_that_a_model_cannot_be_served_any_more(
    gateway: FakeGateway, worker: FakeWorker
) -> None:
    worker.report(link_pb2.PROCESS_STATE_DRAINING)

    def told() -> bool:
        return any(
            pipeline.model == "echo" and not pipeline.ready
            for frame in gateway.frames
            if frame.HasField("ping")
            for pipeline in frame.ping.pipelines
        )

    await gateway.until(told)


async def test_what_is_no_gateway_is_sent_away(orchestrator: RunningOrchestrator) -> None:
    async with FakeGateway(
        orchestrator.gateway_link.Attach, service=link_pb2.SERVICE_KIND_STAGE_WORKER
    ) as stranger:
        await stranger.until(lambda: bool(stranger.lost_reasons))

    assert "gateways only" in stranger.lost_reasons[0]


async def test_a_frame_that_a_gateway_must_not_send_costs_its_link(
    gateway: FakeGateway,
) -> None:
    gateway.send(link_pb2.Frame(submit=link_pb2.Submit(request_id="req_1")))
    await gateway.until(lambda: bool(gateway.lost_reasons))

    assert "submit" in gateway.lost_reasons[0]


async def test_an_orchestrator_that_drains_says_so_and_finishes_what_is_open(
    orchestrator: RunningOrchestrator, gateway: FakeGateway, worker: FakeWorker
) -> None:
    slot = gateway.open(request())
    job = await worker.job()
    orchestrator.program.stop()
    await gateway.until(lambda: any(frame.HasField("go_away") for frame in gateway.frames))
    late = gateway.open(request())
    await gateway.until(lambda: gateway.terminal(late) is not None)
    job.say(" done", end=STOP)
    await gateway.until(lambda: bool(gateway.lost_reasons))

    finished, refused = gateway.terminal(slot), gateway.terminal(late)
    assert finished is not None
    assert refused is not None
    assert gateway.texts(slot) == [" done"]
    assert finished.outcome == outcome_pb2.OUTCOME_COMPLETED
    assert refused.outcome == outcome_pb2.OUTCOME_REJECTED
    assert refused.error.code == outcome_pb2.ERROR_CODE_DRAINING


async def test_what_is_still_open_at_the_end_of_a_drain_ends_typed(
    orchestrator: RunningOrchestrator, gateway: FakeGateway, worker: FakeWorker
) -> None:
    slot = gateway.open(request())
    await worker.job()
    orchestrator.program.stop()
    await gateway.until(lambda: bool(gateway.lost_reasons))

    terminal = gateway.terminal(slot)
    assert terminal is not None
    assert terminal.error.code == outcome_pb2.ERROR_CODE_DRAINING


async def test_outputs_of_many_requests_arrive_complete(tmp_path: Path) -> None:
    async with (
        FakeWorker(script=counting(60)) as worker,
        running_orchestrator([worker], tmp_path) as orchestrator,
    ):
        await orchestrator.serving("echo")
        async with FakeGateway(orchestrator.gateway_link.Attach) as gateway:
            slots = [gateway.open(request()) for _ in range(200)]
            await gateway.until(lambda: all(gateway.terminal(slot) for slot in slots))

    expected = "".join(f" w{index}" for index in range(60))
    assert {"".join(gateway.texts(slot)) for slot in slots} == {expected}
