"""One real orchestrator in the process of the test, and the channels that lead to it."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from grpc_health.v1 import health_pb2, health_pb2_grpc

from services.orchestrator.app import Program
from services.orchestrator.settings import Settings
from stagemesh.api.admin.v1 import admin_service_pb2, admin_service_pb2_grpc
from stagemesh.api.orchestrator.v1 import (
    gateway_link_service_pb2_grpc,
    orchestrator_service_pb2,
    orchestrator_service_pb2_grpc,
)
from stagemesh.api.types.v1 import request_pb2
from stagemesh.pipeline import Mesh
from stagemesh.rpc import open_channel
from stagemesh.telemetry import Metrics
from tests.helpers.fake_gateway import FakeGateway
from tests.helpers.fake_worker import FakeWorker
from tests.helpers.loopback import free_address
from tests.helpers.orchestrator_mesh import MESH

__all__ = ["RunningOrchestrator", "ask", "gateway_of", "running_orchestrator", "running_peers"]


def ask(text: str = "hello", *, model: str = "echo") -> orchestrator_service_pb2.GenerateRequest:
    """Make a request of one user message."""
    message = request_pb2.Message(role="user", parts=[request_pb2.Part(text=text)])
    return orchestrator_service_pb2.GenerateRequest(
        request=request_pb2.Request(model=model, messages=[message])
    )


class RunningOrchestrator:
    """What a test needs of an orchestrator: its ports, its end, and what it shows."""

    def __init__(self, program: Program, settings: Settings, metrics: Metrics) -> None:
        self.program = program
        self.settings = settings
        self.metrics = metrics
        self.channel = open_channel(settings.grpc)
        self.links = open_channel(settings.link)
        self.admin = open_channel(settings.admin)
        self.stub = orchestrator_service_pb2_grpc.OrchestratorServiceStub(self.channel)
        self.gateway_link = gateway_link_service_pb2_grpc.GatewayLinkServiceStub(self.links)
        self.operators = admin_service_pb2_grpc.AdminServiceStub(self.admin)
        self.health: Any = health_pb2_grpc.HealthStub(self.channel)  # Its types know no method.

    async def close(self) -> None:
        """Close the channels."""
        for channel in (self.channel, self.links, self.admin):
            await channel.close()

    async def serving(self, name: str) -> None:
        """Wait until health says that `name` is ready."""
        watch = self.health.Watch(health_pb2.HealthCheckRequest(service=name))
        try:
            async with asyncio.timeout(10):
                async for response in watch:
                    if response.status == health_pb2.HealthCheckResponse.SERVING:
                        return
        finally:
            watch.cancel()
        raise AssertionError(f"{name} is not served")

    async def until_done(self, request_id: str) -> orchestrator_service_pb2.GetRequestResponse:
        """Wait until a request has ended, and show it."""
        query = orchestrator_service_pb2.GetRequestRequest(request_id=request_id)
        async with asyncio.timeout(10):
            while True:
                view = await self.stub.GetRequest(query)
                if view.HasField("terminal"):
                    return view

    async def replicas(self) -> list[admin_service_pb2.Replica]:
        """List what operators see."""
        answer = await self.operators.ListReplicas(admin_service_pb2.ListReplicasRequest())
        return list(answer.replicas)

    def metric(self, line_start: str) -> float:
        """Give the value of the one metric line that starts like this; 0 if there is none."""
        text = self.metrics.render()[0].decode()
        lines = [line for line in text.splitlines() if line.startswith(line_start)]
        assert len(lines) < 2, lines
        return float(lines[0].rpartition(" ")[2]) if lines else 0.0


async def gateway_of(stack: AsyncExitStack, orchestrator: RunningOrchestrator) -> FakeGateway:
    """Link a gateway to an orchestrator, for as long as a stack lasts."""
    return await stack.enter_async_context(FakeGateway(orchestrator.gateway_link.Attach))


@asynccontextmanager
async def running_orchestrator(
    workers: Sequence[FakeWorker],
    directory: Path,
    *,
    mesh: Mesh = MESH,
    discovery: str = "",
    drain_s: float = 2.0,
    orchestrators: int = 1,
    name: str = "o-0",
    link: str = "",
    dump_directory: str = "",
) -> AsyncIterator[RunningOrchestrator]:
    """Run an orchestrator over these workers, and drain it at the end."""
    settings = Settings(
        mesh=Path("unused.yaml"),
        id=name,
        discovery=discovery or static(workers),
        grpc=free_address(),
        link=link or free_address(),
        admin=free_address(),
        drain_s=drain_s,
        orchestrators=orchestrators,
        payload_directory=directory,
        dump_directory=dump_directory,
    )
    metrics = Metrics(process=False)
    program = Program(settings, mesh, registry=metrics)
    running = asyncio.create_task(program.run())
    try:
        async with asyncio.timeout(10):
            await program.ready.wait()
        orchestrator = RunningOrchestrator(program, settings, metrics)
        try:
            yield orchestrator
        finally:
            await orchestrator.close()
    finally:
        program.stop()
        await running


@asynccontextmanager
async def running_peers(
    workers: Sequence[FakeWorker], directory: Path, *, missing: bool = False
) -> AsyncIterator[tuple[RunningOrchestrator, RunningOrchestrator]]:
    """Run two orchestrators that know each other; with `missing`, a third that is not there."""
    links = [free_address() for _ in range(2)]
    known = [f"o-{at}@{link}" for at, link in enumerate(links)]
    known += [f"o-2@{free_address()}"] if missing else []
    discovery = static(workers, known)
    async with (
        running_orchestrator(
            workers, directory, discovery=discovery, name="o-0", link=links[0], orchestrators=2
        ) as first,
        running_orchestrator(
            workers, directory, discovery=discovery, name="o-1", link=links[1], orchestrators=2
        ) as second,
    ):
        yield first, second


def static(
    workers: Sequence[FakeWorker], orchestrators: Sequence[str] = ("o-0@127.0.0.1:1",)
) -> str:
    """Spell where workers and orchestrators are, as `--discovery` takes it."""
    groups: dict[str, list[str]] = {"orchestrators": [*orchestrators]}
    for worker in workers:
        groups.setdefault(f"pool/{worker.pool}", []).append(f"{worker.replica_id}@{worker.address}")
    return "static:" + ";".join(f"{name}={','.join(one)}" for name, one in groups.items())
