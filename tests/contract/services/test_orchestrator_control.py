"""The admin port and workers, over real links: calls, gates, watchers and being taken out."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc import aio
from grpc_health.v1 import health_pb2

from stagemesh.api.admin.v1 import admin_service_pb2 as pb
from stagemesh.api.types.v1 import control_pb2, link_pb2
from stagemesh.outcome import ErrorCode
from stagemesh.rpc import error_of
from tests.helpers.fake_worker import FakeWorker, counting
from tests.helpers.running_orchestrator import RunningOrchestrator, ask, running_orchestrator

SERVICE = "stagemesh.api.orchestrator.v1.OrchestratorService"
ASLEEP, PAUSED = link_pb2.PROCESS_STATE_ASLEEP, link_pb2.PROCESS_STATE_PAUSED
READY = link_pb2.PROCESS_STATE_READY
KEEP = control_pb2.PAUSE_MODE_KEEP
FAST_S = 0.5
"""Far more than an answer takes that nobody waits for, and far less than a call's own time."""


@pytest.fixture
async def workers() -> AsyncIterator[list[FakeWorker]]:
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(FakeWorker(f"thinker-{n}", script=counting(3)))
            for n in range(4)
        ]


@pytest.fixture
async def orchestrator(
    workers: list[FakeWorker], tmp_path: Path
) -> AsyncIterator[RunningOrchestrator]:
    async with running_orchestrator(workers, tmp_path) as orchestrator:
        async with asyncio.timeout(10):
            while not all(one.connected for one in await orchestrator.replicas()):
                pass
        yield orchestrator


async def whole(call: Any) -> list[Any]:
    """Read a call to its end; raises what it ended with."""
    return [response async for response in call]


async def until_states(orchestrator: RunningOrchestrator, *states: int) -> None:
    """Wait until the replicas are in these states, by being told."""
    watch: Any = orchestrator.operators.Watch(pb.WatchRequest(pools=["thinker"]))
    seen: dict[str, int] = {}
    try:
        async with asyncio.timeout(10):
            while [seen[name] for name in sorted(seen)] != list(states):
                news = await watch.read()
                seen |= {one.replica_id: one.state for one in news.replicas}
    finally:
        watch.cancel()


async def test_a_replica_that_is_silent_costs_the_others_nothing(
    workers: list[FakeWorker], orchestrator: RunningOrchestrator
) -> None:
    request = pb.ResetCacheRequest(pools=["thinker"], timeout_s=2.0)
    call = asyncio.ensure_future(orchestrator.operators.ResetCache(request))
    for worker in workers[1:]:
        await worker.carry_out()
    # Requests go on while the call waits.
    outputs = await whole(orchestrator.stub.Generate(ask()))
    assert outputs[-1].HasField("terminal")
    assert not call.done()
    answer = await call
    assert [one.error.code for one in answer.results] == [ErrorCode.DEADLINE, 0, 0, 0]
    assert all(one.took_s < FAST_S for one in answer.results[1:])
    await workers[0].carry_out()  # Far too late: it is dropped.
    assert await whole(orchestrator.stub.Generate(ask()))


async def test_a_pool_that_is_not_there_is_named_and_nobody_is_asked(
    workers: list[FakeWorker], orchestrator: RunningOrchestrator
) -> None:
    with pytest.raises(aio.AioRpcError) as caught:
        await orchestrator.operators.Sleep(pb.SleepRequest(pools=["thinker", "x"]))
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert error_of(caught.value).param == "pools[1]"
    assert all(worker.controls.empty() for worker in workers)


async def test_a_sleeping_pool_refuses_at_once_and_says_when_to_try_again(
    workers: list[FakeWorker], orchestrator: RunningOrchestrator
) -> None:
    gate = control_pb2.Gate(paused=True, mode=KEEP, asleep=["weights"])
    for worker in workers:
        worker.report(ASLEEP, gate)
    await until_states(orchestrator, *[ASLEEP] * 4)
    with pytest.raises(aio.AioRpcError) as caught:
        await whole(orchestrator.stub.Generate(ask()))
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert error_of(caught.value).code is ErrorCode.ASLEEP
    trailers = dict(caught.value.trailing_metadata() or ())
    assert (trailers["retry-after"], trailers["x-stagemesh-not-admitted"]) == ("1", "1")
    assert (await orchestrator.replicas())[0].gate == gate


async def test_who_waits_for_a_paused_pool_waits_no_longer_than_his_own_time(
    workers: list[FakeWorker], orchestrator: RunningOrchestrator
) -> None:
    gate = control_pb2.Gate(paused=True, mode=KEEP)
    for worker in workers:
        worker.report(PAUSED, gate)
    await until_states(orchestrator, *[PAUSED] * 4)
    patient = orchestrator.stub.Generate(ask())
    with pytest.raises(aio.AioRpcError) as caught:
        await whole(orchestrator.stub.Generate(ask(), timeout=0.5))
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    workers[2].report(READY)
    assert (await whole(patient))[-1].HasField("terminal")


async def test_a_worker_is_told_again_what_an_operator_wants_of_its_pool(
    workers: list[FakeWorker], orchestrator: RunningOrchestrator
) -> None:
    request = pb.PauseRequest(pools=["thinker"], mode=KEEP)
    call = asyncio.ensure_future(orchestrator.operators.Pause(request))
    for worker in workers:
        worker.report(PAUSED, control_pb2.Gate(paused=True, mode=KEEP))
        assert (await worker.carry_out()).pause.mode == KEEP
    await call
    # A new incarnation knows nothing of it.
    workers[0].state, workers[0].gate = READY, control_pb2.Gate()
    for link in list(workers[0].links):
        link.close("a new life")
    again = await workers[0].carry_out()
    assert again.pause.mode == KEEP


async def test_an_orchestrator_that_is_taken_out_says_so_and_can_be_taken_in_again(
    orchestrator: RunningOrchestrator,
) -> None:
    async def status() -> int:
        answer = await orchestrator.health.Check(health_pb2.HealthCheckRequest(service=SERVICE))
        return int(answer.status)

    assert await status() == health_pb2.HealthCheckResponse.SERVING
    drained = await orchestrator.operators.Drain(pb.DrainRequest(orchestrator=True))
    assert drained.requests_open == 0
    assert await status() == health_pb2.HealthCheckResponse.NOT_SERVING
    with pytest.raises(aio.AioRpcError) as caught:
        await whole(orchestrator.stub.Generate(ask()))
    assert error_of(caught.value).code is ErrorCode.DRAINING
    await orchestrator.operators.Undrain(pb.UndrainRequest(orchestrator=True))
    assert await status() == health_pb2.HealthCheckResponse.SERVING
    assert await whole(orchestrator.stub.Generate(ask()))
