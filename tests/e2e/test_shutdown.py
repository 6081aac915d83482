import asyncio
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import httpx
import psutil
import pytest

from stagemesh.api.orchestrator.v1 import orchestrator_service_pb2, orchestrator_service_pb2_grpc
from stagemesh.api.types.v1 import outcome_pb2
from tests.helpers.e2e_mesh import E2eMesh, running_mesh, shared_memory, until
from tests.helpers.e2e_scripts import script, user, words
from tests.helpers.e2e_small import ECHO_AND_TALK, one_mesh
from tests.helpers.e2e_sse import Heard, hear

STOP_S = 15.0


@pytest.fixture
def mesh(tmp_path: Path) -> Iterator[E2eMesh]:
    environment = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    file = one_mesh(tmp_path, ECHO_AND_TALK, replicas=1)
    with running_mesh(file, tmp_path, environment=environment) as mesh:
        yield mesh


@pytest.fixture(scope="module", autouse=True)
def stuck(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[E2eMesh, float, set[int]]]:
    """A mesh whose talker stands still while it stops: that takes long, so it begins first."""
    folder = tmp_path_factory.mktemp("stuck")
    environment = {"XDG_CACHE_HOME": str(folder / "cache")}
    file = one_mesh(folder, ECHO_AND_TALK, replicas=1)
    with running_mesh(file, folder, environment=environment) as mesh:
        pids = set(mesh.pids().values())
        mesh.kill("talker-0", signal.SIGSTOP)
        mesh.process.send_signal(signal.SIGTERM)
        yield mesh, time.monotonic(), pids


async def gone(mesh: E2eMesh, pids: set[int], marks: set[str], begun_s: float) -> None:
    """Check that the mesh ends in time, well, and without a trace."""
    code = await asyncio.to_thread(mesh.process.wait, STOP_S + 5)
    assert time.monotonic() - begun_s < STOP_S
    assert code == 0, mesh.said
    assert "while the mesh stopped" not in mesh.said
    assert not [pid for pid in pids if psutil.pid_exists(pid)]
    assert shared_memory(*marks) == set()
    for port in (mesh.http_port, mesh.grpc_port):
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port)


@pytest.mark.invariant("ORCH-INV-300")
async def test_short_requests_finish_and_long_ones_end_typed_when_the_mesh_is_told_to_stop(
    mesh: E2eMesh,
) -> None:
    records = await mesh.status()
    marks = {one["incarnation"] for one in records if one["incarnation"]}
    children = psutil.Process(mesh.process.pid).children(recursive=True)
    pids = {child.pid for child in children}
    assert {one["pid"] for one in records} <= pids

    async with httpx.AsyncClient(base_url=mesh.url, timeout=60) as http:
        short = [Heard() for _ in range(20)]
        long = [Heard() for _ in range(20)]
        spoken = Heard()
        async with asyncio.TaskGroup() as tasks:
            for one in short:
                body = {"model": "echo", "messages": user(tokens=150, each_ms=20)}
                tasks.create_task(hear(http, body, heard=one))
            for one in long:
                body = {"model": "echo", "messages": user(tokens=100_000, each_ms=20)}
                tasks.create_task(hear(http, body, heard=one))
            talk = {
                "model": "talk", "modalities": ["text", "audio"], "audio": {"format": "pcm16"},
                "messages": user(tokens=100_000, each_ms=20),
            }  # fmt: skip
            tasks.create_task(hear(http, talk, heard=spoken))
            whole = tasks.create_task(
                http.post(
                    "/v1/chat/completions",
                    json={"model": "echo", "messages": user(tokens=100_000, each_ms=20)},
                )
            )
            native = tasks.create_task(_native(mesh))

            async def begun() -> bool:
                return all(one.texts for one in (*short, *long, spoken))

            await until(begun, bool, 10)
            begun_s = time.monotonic()
            mesh.process.send_signal(signal.SIGTERM)

    for one in short:
        one.complete(words(150))
    for one in (*long, spoken):
        assert one.error["code"] == "draining", one.error
        assert (one.dones, one.broken) == (0, "")
        assert words(len(one.texts[0]) + 64).startswith(one.text())
    answer = whole.result()
    assert (answer.status_code, answer.json()["error"]["code"]) == (502, "draining")
    terminal = native.result()
    assert terminal.error.code == outcome_pb2.ERROR_CODE_DRAINING
    assert terminal.error.retryable
    await gone(mesh, pids, marks, begun_s)


async def _native(mesh: E2eMesh) -> orchestrator_service_pb2.RequestTerminal:
    """Run a call that is too long; give its terminal."""
    request = orchestrator_service_pb2.GenerateRequest()
    request.request.model = "echo"
    request.request.messages.add(role="user").parts.add(text=script(tokens=100_000, each_ms=20))
    terminal = orchestrator_service_pb2.RequestTerminal()
    async with grpc.aio.insecure_channel(mesh.grpc) as channel:
        stub = orchestrator_service_pb2_grpc.OrchestratorServiceStub(channel)
        with pytest.raises(grpc.aio.AioRpcError):
            async for response in stub.Generate(request, timeout=60):
                if response.HasField("terminal"):
                    terminal = response.terminal
    return terminal


async def test_while_it_drains_new_requests_are_turned_away_for_another_to_take(
    mesh: E2eMesh,
) -> None:
    marks = {one["incarnation"] for one in await mesh.status() if one["incarnation"]}
    pids = set(mesh.pids().values())
    async with httpx.AsyncClient(base_url=mesh.url, timeout=60) as http:
        heard = Heard()
        body = {"model": "echo", "messages": user(tokens=100, each_ms=20)}
        # A connection that is open when the mesh is told: new ones are refused at once.
        assert (await http.get("/ready")).status_code == 200
        asked = asyncio.create_task(hear(http, body, heard=heard))

        async def begun() -> bool:
            return bool(heard.texts)

        await until(begun, bool, 10)
        begun_s = time.monotonic()
        mesh.process.send_signal(signal.SIGTERM)

        async def refused() -> bool:
            try:
                answer = await http.post(
                    "/v1/chat/completions", json={"model": "echo", "messages": user(tokens=1)}
                )
            except httpx.TransportError:
                return True
            if answer.status_code == 200:
                return False
            assert (answer.status_code, answer.json()["error"]["code"]) == (429, "draining")
            return True

        await until(refused, bool, 2)
        await asked
        heard.complete(words(100))
    await gone(mesh, pids, marks, begun_s)


async def test_a_mesh_whose_worker_stands_still_stops_all_the_same(
    stuck: tuple[E2eMesh, float, set[int]],
) -> None:
    """A worker that hears nothing is killed; that is no clean end, and is said."""
    mesh, begun_s, pids = stuck
    code = await asyncio.to_thread(mesh.process.wait, STOP_S + 5)
    assert time.monotonic() - begun_s < 3 * STOP_S
    assert code == 1
    assert "talker-0 was killed by signal 9 while the mesh stopped" in mesh.said
    assert not [pid for pid in pids if psutil.pid_exists(pid)]
