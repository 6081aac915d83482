"""What a stage worker says while its engine loads, and when that fails."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from services.stage_worker import app
from services.stage_worker.app import Program
from services.stage_worker.engines.base import ModelCard
from services.stage_worker.servicer import STAGE_SERVICE
from services.stage_worker.settings import Settings
from stagemesh.api.stage.v1 import stage_service_pb2, stage_service_pb2_grpc
from stagemesh.api.types.v1 import link_pb2, outcome_pb2
from stagemesh.pipeline import Pool
from stagemesh.rpc import open_channel
from stagemesh.telemetry import Metrics
from tests.helpers.hand_engine import HandEngine
from tests.helpers.loopback import free_address
from tests.helpers.worker_peer import WAIT_S, attach

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


class SlowEngine(HandEngine):
    """Loads when the test says so, or fails to."""

    def __init__(self) -> None:
        super().__init__()
        self.loaded: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.closed = False
        self.heard: list[str] = []

    async def load(self, progress: Callable[[str], None]) -> ModelCard:
        """Wait for the test."""
        progress("reading weights")
        await self.loaded
        return ModelCard(model="hand", digest="d")

    async def close(self) -> None:
        """Note that it was closed."""
        self.closed = True
        await super().close()


@asynccontextmanager
async def loading(
    folder: Path, monkeypatch: pytest.MonkeyPatch, *, load_s: float = WAIT_S
) -> AsyncIterator[tuple[Program, SlowEngine, "asyncio.Task[bool]"]]:
    """Start a worker whose engine has not loaded yet."""
    engine = SlowEngine()
    monkeypatch.setattr(app, "find_engine", lambda name: lambda config: engine)
    settings = Settings(
        mesh=folder / "unread.yaml",
        pool="pool",
        replica_id="replica-0",
        listen=free_address(),
        payload_directory=folder,
        load_s=load_s,
    )
    pool = Pool(name="pool", engine="hand", model="m")
    program = Program(
        settings,
        pool,
        registry=Metrics(process=False),
        loaded=lambda: engine.heard.append("loaded"),
    )
    task = asyncio.create_task(program.run())
    async with asyncio.timeout(WAIT_S):
        await program.listening.wait()
    try:
        yield program, engine, task
    finally:
        program.stop()
        async with asyncio.timeout(WAIT_S):
            await asyncio.wait({task})


async def health(address: str, service: str) -> int:
    """Ask for the health of a service."""
    channel = open_channel(address)
    try:
        request = health_pb2.HealthCheckRequest(service=service)
        # The methods of this stub are made at run time; its types do not name them.
        stub = health_pb2_grpc.HealthStub(channel)
        answer = await stub.Check(request, timeout=WAIT_S)  # type: ignore[attr-defined]
    finally:
        await channel.close()
    return int(answer.status)


async def test_it_lives_while_it_loads_and_is_ready_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        loading(tmp_path, monkeypatch) as (worker, engine, _),
        attach(worker.address) as peer,
    ):
        assert await health(worker.address, "") == SERVING
        assert await health(worker.address, STAGE_SERVICE) == NOT_SERVING
        assert peer.attached_to is not None
        assert peer.attached_to.state == link_pb2.PROCESS_STATE_STARTING
        refused = peer.submit("too early")
        await peer.until_ended(refused)
        assert peer.terminal(refused).outcome == outcome_pb2.OUTCOME_REJECTED
        engine.loaded.set_result(None)
        await peer.until(lambda: peer.losses and peer.attached_to)
        hello = peer.attached_to
        assert hello is not None
        assert hello.state == link_pb2.PROCESS_STATE_READY
        assert (hello.worker.model_digest, hello.worker.capabilities.slots) == ("d", 4)
        assert await health(worker.address, STAGE_SERVICE) == SERVING


async def test_describe_says_what_a_link_would_hear(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with loading(tmp_path, monkeypatch) as (worker, engine, _):
        engine.loaded.set_result(None)
        async with asyncio.timeout(WAIT_S):
            await worker.ready.wait()
        channel = open_channel(worker.address)
        try:
            stub = stage_service_pb2_grpc.StageServiceStub(channel)
            told = await stub.Describe(stage_service_pb2.DescribeRequest(), timeout=WAIT_S)
        finally:
            await channel.close()
        assert told.hello.id == "replica-0"
        assert told.hello.worker.engine == "hand"
        assert told.load.slots_free == 4


async def test_a_load_is_given_up_in_good_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with loading(tmp_path, monkeypatch) as (worker, engine, task):
        worker.stop()
        async with asyncio.timeout(WAIT_S):
            assert await task is True
        assert engine.closed


async def test_an_engine_that_never_loads_ends_the_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with loading(tmp_path, monkeypatch, load_s=0.2) as (_, engine, task):
        async with asyncio.timeout(WAIT_S):
            assert await task is False
        assert engine.loaded.cancelled()
        assert engine.closed


async def test_an_engine_that_cannot_load_ends_the_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with loading(tmp_path, monkeypatch) as (worker, engine, task):
        engine.loaded.set_exception(RuntimeError("no weights"))
        async with asyncio.timeout(WAIT_S):
            assert await task is False
        assert engine.closed
        with pytest.raises(grpc.aio.AioRpcError):
            await health(worker.address, "")


async def test_whoever_wants_to_know_is_told_once_the_engine_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with loading(tmp_path, monkeypatch) as (worker, engine, _):
        assert engine.heard == []
        engine.loaded.set_result(None)
        async with asyncio.timeout(WAIT_S):
            await worker.ready.wait()
        assert engine.heard == ["loaded"]


async def test_the_garbage_collector_is_told_when_the_engine_is_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    steps: list[str] = []

    class Idle:
        """A worker that has nothing to do."""

        stop = print

        def __init__(self, *given: Any, loaded: Callable[[], None]) -> None:
            self.loaded = loaded

        async def run(self) -> bool:
            steps.append("loading")
            self.loaded()
            return True

    monkeypatch.setattr(app, "Program", Idle)
    monkeypatch.setattr(app, "freeze_heap", lambda: steps.append("frozen"))
    nothing: Any = None
    assert await app.serve(nothing, nothing)
    assert steps == ["loading", "frozen"]
