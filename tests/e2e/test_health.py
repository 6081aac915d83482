"""Who is in rotation and who is not, and what is ready: by progress, and by what is asked for."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import grpc
import httpx
import psutil
import pytest
from grpc_health.v1 import health_pb2

from stagemesh.cli.ports import free_ports
from tests.helpers.e2e_mesh import CLI, ROOT, E2eMesh, running_mesh, until
from tests.helpers.e2e_scripts import user, words
from tests.helpers.e2e_small import ECHO_AND_TALK, ECHO_TALK_RELAY, one_mesh
from tests.helpers.e2e_sse import Heard, hear

STALL_S: Final = 2.0
TALKERS: Final = ("talker-0", "talker-1")
TALK: Final[dict[str, Any]] = {
    "model": "talk",
    "modalities": ["text", "audio"],
    "audio": {"voice": "any", "format": "pcm16"},
}


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[E2eMesh]:
    """Two replicas of each stage, whose engines may be silent for two seconds only."""
    folder = tmp_path_factory.mktemp("health")
    environment = {"XDG_CACHE_HOME": str(folder / "cache"), "STAGEMESH_STALL_S": str(STALL_S)}
    file = one_mesh(folder, ECHO_AND_TALK, replicas=2)
    with running_mesh(file, folder, environment=environment) as mesh:
        yield mesh


@pytest.fixture
async def http(mesh: E2eMesh) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=mesh.url, timeout=60) as client:
        yield client


async def health(mesh: E2eMesh, *names: str) -> dict[str, bool]:
    """Ask the orchestrator's gRPC health for these names."""
    async with grpc.aio.insecure_channel(mesh.grpc) as channel:
        check = channel.unary_unary(
            "/grpc.health.v1.Health/Check",
            request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
            response_deserializer=health_pb2.HealthCheckResponse.FromString,
        )
        answers = [await check(health_pb2.HealthCheckRequest(service=name)) for name in names]
    serving = health_pb2.HealthCheckResponse.SERVING
    return {name: one.status == serving for name, one in zip(names, answers, strict=True)}


async def listed(http: httpx.AsyncClient) -> dict[str, bool]:
    """Give what `/v1/models` says of each model."""
    data = (await http.get("/v1/models")).json()["data"]
    return {model["id"]: model["ready"] for model in data}


async def states(mesh: E2eMesh, *names: str) -> list[str]:
    """Give the states of processes."""
    found = {one["replica_id"]: one["state"] for one in await mesh.status()}
    return [found[name] for name in names]


@asynccontextmanager
async def standing_still(mesh: E2eMesh, *names: str) -> AsyncIterator[list[int]]:
    """Let processes stand still for as long as the block lasts."""
    pids = [mesh.kill(name, signal.SIGSTOP) for name in names]
    try:
        yield pids
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


async def test_an_engine_that_is_wedged_is_left_alone_and_its_work_is_done_elsewhere(
    mesh: E2eMesh, http: httpx.AsyncClient
) -> None:
    """One request hangs its engine, which answers no abort either; what it had goes elsewhere."""
    pair = ("thinker-0", "thinker-1")
    async with asyncio.TaskGroup() as tasks:
        body = {"model": "echo", "messages": user(tokens=9, hang_at=3, ignore_abort=True)}
        wedge = tasks.create_task(hear(http, body))
        counts = await until(lambda: mesh.inflight(*pair), lambda now: sum(now) == 1, 5)
        wedged, other = pair if counts == [1, 0] else pair[::-1]
        moving = Heard()
        body = {"model": "echo", "messages": user(tokens=900, each_ms=10)}
        tasks.create_task(hear(http, body, heard=moving))
        await until(lambda: mesh.inflight(other), lambda now: now == [1], 5)
        silent = user(tokens=5, first_ms=4_000, ignore_abort=True)
        body = {"model": "echo", "messages": silent}
        beside = [tasks.create_task(hear(http, body)) for _ in range(4)]
        await until(lambda: mesh.inflight(wedged, other), lambda now: now == [3, 3], 5)
        begun_s = time.monotonic()
        await until(lambda: mesh.inflight(other), lambda now: now == [6], 2 * STALL_S)
        assert time.monotonic() - begun_s < STALL_S + 1
        both = ["stalled", "ready"]
        await until(lambda: states(mesh, wedged, other), lambda now: now == both, 1)
        asked = await hear(http, {"model": "echo", "messages": user(tokens=3)})
        asked.complete(words(3))
        assert asked.first_s < 1
    for task in beside:
        task.result().complete(words(5))
    moving.complete(words(900))
    ended = wedge.result()
    # It hung two engines at the same point: that is its own doing, and not worth another try.
    assert (ended.text(), ended.error["code"]) == (words(3), "engine_error")
    assert ended.error["stage"] == "thinker"
    # Nobody but an operator ends an engine that hangs; its replica is left alone until then.
    await until(lambda: states(mesh, wedged), lambda now: now == ["stalled"], 3 * STALL_S)
    for name in pair:
        before = await mesh.one(name)
        mesh.kill(name)
        await mesh.back(name, before)
    await mesh.settled()


async def test_an_attempt_that_hangs_is_given_up_and_its_replica_goes_on(
    mesh: E2eMesh, http: httpx.AsyncClient
) -> None:
    """Its engine answers the abort, so that it moves again; it does not get the same work back."""
    body = {"model": "echo", "messages": user(tokens=9, hang_at=3)}
    heard = await hear(http, body)
    assert (heard.text(), heard.error["code"]) == (words(3), "engine_error")
    pair = ("thinker-0", "thinker-1")
    await until(lambda: states(mesh, *pair), lambda now: now == ["ready", "ready"], 5)
    for name in pair:
        assert (await mesh.metrics(name))["stagemesh_worker_attempts_total"] > 0
    await mesh.settled()


async def test_without_its_talkers_only_what_is_spoken_is_not_ready(
    mesh: E2eMesh, http: httpx.AsyncClient
) -> None:
    before = [await mesh.one(name) for name in TALKERS]
    assert await health(mesh, "echo", "talk") == {"echo": True, "talk": True}
    for name in TALKERS:
        mesh.kill(name)
    await until(lambda: health(mesh, "talk"), lambda now: now == {"talk": False}, 2)
    services = "stagemesh.api.orchestrator.v1.OrchestratorService"
    assert await health(mesh, "", services, "echo") == {"": True, services: True, "echo": True}
    await until(lambda: listed(http), lambda now: now == {"echo": True, "talk": False}, 2)
    assert (await http.get("/ready")).status_code == 200
    (await hear(http, {"model": "echo", "messages": user(tokens=3)})).complete(words(3))
    for one in before:
        await mesh.back(one["replica_id"], one)
    await until(lambda: listed(http), lambda now: now == {"echo": True, "talk": True}, 5)
    (await hear(http, {**TALK, "messages": user(tokens=3)})).complete(words(3))
    assert await health(mesh, "talk") == {"talk": True}
    await mesh.settled()


async def test_a_stage_that_stands_still_is_seen_and_what_is_idle_is_not_suspected(
    mesh: E2eMesh, http: httpx.AsyncClient
) -> None:
    """All replicas of a stage, longer than `peer_lost_s`; the others have nothing to do."""
    async with standing_still(mesh, *TALKERS) as pids, asyncio.TaskGroup() as tasks:
        await until(lambda: listed(http), lambda now: now == {"echo": True, "talk": False}, 9)
        assert await health(mesh, "", "echo", "talk") == {"": True, "echo": True, "talk": False}
        assert [(await http.get(path)).status_code for path in ("/health", "/ready")] == [200, 200]
        (await hear(http, {"model": "echo", "messages": user(tokens=3)})).complete(words(3))
        assert await states(mesh, "thinker-0", "thinker-1") == ["ready", "ready"]
        asked = {**TALK, "messages": user(tokens=20, each_ms=5)}
        spoken = [tasks.create_task(hear(http, asked)) for _ in range(2)]
        await until(lambda: mesh.inflight("orchestrator-0"), lambda now: now == [2], 5)
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
    for task in spoken:
        task.result().complete(words(20))
    await until(lambda: listed(http), lambda now: now == {"echo": True, "talk": True}, 10)
    assert [mesh.pids()[name] for name in TALKERS] == pids
    await mesh.settled(8)


async def test_a_pause_that_is_shorter_than_patience_costs_a_busy_worker_nothing(
    mesh: E2eMesh, http: httpx.AsyncClient
) -> None:
    redrives = "stagemesh_orchestrator_oddities{redrives}"
    before = (await mesh.metrics("orchestrator-0"))[redrives]
    heard = [Heard() for _ in range(10)]
    async with asyncio.TaskGroup() as tasks:
        body = {"model": "echo", "messages": user(tokens=300, each_ms=10)}
        for one in heard:
            tasks.create_task(hear(http, body, heard=one))
        shares = ("thinker-0", "thinker-1")
        counts = await until(lambda: mesh.inflight(*shares), lambda now: sum(now) == 10, 5)
        assert min(counts) > 0
        async with standing_still(mesh, "thinker-0"):
            await asyncio.sleep(STALL_S / 2)
            assert await mesh.inflight(*shares) == counts
    for one in heard:
        one.complete(words(300))
    assert (await mesh.metrics("orchestrator-0"))[redrives] == before
    await mesh.settled()


async def test_while_one_replica_is_alive_all_is_ready_and_with_none_new_work_is_told_so(
    mesh: E2eMesh, http: httpx.AsyncClient
) -> None:
    pair = ("thinker-0", "thinker-1")
    before = await mesh.one(pair[0])
    mesh.kill(pair[0])
    assert await health(mesh, "echo", "talk") == {"echo": True, "talk": True}
    assert await listed(http) == {"echo": True, "talk": True}
    (await hear(http, {"model": "echo", "messages": user(tokens=3)})).complete(words(3))
    await mesh.back(pair[0], before)
    # Nobody is there for longer than a request waits: they stand still, so nobody comes back.
    async with standing_still(mesh, *pair):
        none = {"echo": False, "talk": False}
        await until(lambda: listed(http), lambda now: now == none, 9)
        assert (await http.get("/ready")).status_code == 503
        begun_s = time.monotonic()
        body = {"model": "echo", "messages": user(tokens=3)}
        answer = await http.post("/v1/chat/completions", json=body)
        assert time.monotonic() - begun_s < 12
        error = answer.json()["error"]
        assert (answer.status_code, error["code"]) == (429, "no_replica")
        assert int(answer.headers["retry-after"]) >= 1
    both = {"echo": True, "talk": True}
    await until(lambda: listed(http), lambda now: now == both, 10)
    await mesh.settled(8)


@pytest.fixture(scope="module")
def relay(tmp_path_factory: pytest.TempPathFactory) -> Iterator[E2eMesh]:
    folder = tmp_path_factory.mktemp("relay")
    environment = {"XDG_CACHE_HOME": str(folder / "cache")}
    file = one_mesh(folder, ECHO_TALK_RELAY, replicas=1)
    with running_mesh(file, folder, environment=environment) as mesh:
        yield mesh


@pytest.mark.parametrize("stage", ["thinker", "coder", "codec"])
@pytest.mark.parametrize("at", [0, 3])
async def test_a_stage_that_fails_ends_the_request_and_stops_the_others(
    relay: E2eMesh, stage: str, at: int
) -> None:
    body = {**TALK, "model": "relay3"}
    body["messages"] = user(tokens=5_000, each_ms=5, **{stage: {"fail_at": at}})
    async with httpx.AsyncClient(base_url=relay.url, timeout=60) as http:
        begun_s = time.monotonic()
        heard = await hear(http, body)
        assert time.monotonic() - begun_s < 2
        assert (heard.error["code"], heard.error["stage"]) == ("engine_error", stage)
        await relay.settled(2)
        after = await hear(http, {**TALK, "model": "relay3", "messages": user(tokens=3)})
    after.complete(words(3))


async def test_a_model_is_ready_as_soon_as_it_says_so_and_not_before(tmp_path: Path) -> None:
    """Asked from the first moment on, with the last stage standing still while it starts."""
    http_port, grpc_port = free_ports(2)
    address = f"127.0.0.1:{http_port}"
    file = one_mesh(tmp_path, ECHO_AND_TALK, replicas=1)
    environ = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    command = [*CLI, "up", str(file), "--http", address, "--grpc", f"127.0.0.1:{grpc_port}"]
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
        env=environ, cwd=ROOT,
    )  # fmt: skip
    try:
        talker = await _starting(process.pid, "talker-0")
        talker.suspend()
        async with httpx.AsyncClient(base_url=f"http://{address}", timeout=60) as http:
            await until(lambda: _asked(http), lambda now: now == (200, True, False), 60)
            (await hear(http, {"model": "echo", "messages": user(tokens=3)})).complete(words(3))
            await asyncio.sleep(1)
            assert await _asked(http) == (200, True, False)
            talker.resume()
            await until(lambda: _asked(http), lambda now: now[2], 60)
            spoken = await hear(http, {**TALK, "messages": user(tokens=3)})
            spoken.complete(words(3))
    finally:
        process.terminate()
        await process.wait()


async def _starting(launcher: int, name: str) -> psutil.Process:
    """Wait for a process of a mesh that starts."""

    async def found() -> psutil.Process | None:
        children = psutil.Process(launcher).children()
        return next((child for child in children if name in child.cmdline()), None)

    process = await until(found, lambda child: child is not None, 30)
    assert process is not None
    return process


async def _asked(http: httpx.AsyncClient) -> tuple[int, bool, bool]:
    """Give what `/ready` says, and whether each model can be served."""
    try:
        ready = (await http.get("/ready")).status_code
        models = await listed(http)
    except httpx.TransportError:
        return 0, False, False
    return ready, models.get("echo", False), models.get("talk", False)
