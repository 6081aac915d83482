import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Iterator

import grpc
import httpx
import psutil
import pytest

from stagemesh.api.orchestrator.v1 import orchestrator_service_pb2, orchestrator_service_pb2_grpc
from tests.helpers.e2e_mesh import E2eMesh, running_mesh, shared_memory, until
from tests.helpers.e2e_scripts import script, user, words
from tests.helpers.e2e_small import ECHO_AND_TALK, one_mesh
from tests.helpers.e2e_sse import Heard, hear

CHAT = "/v1/chat/completions"
TOKENS = 500


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[E2eMesh]:
    """Two of everything in front, one of each worker."""
    folder = tmp_path_factory.mktemp("services")
    environment = {"XDG_CACHE_HOME": str(folder / "cache")}
    file = one_mesh(folder, ECHO_AND_TALK, replicas=1)
    size = ("--gateways", "2", "--orchestrators", "2")
    with running_mesh(file, folder, *size, environment=environment) as mesh:
        yield mesh


@pytest.fixture
async def http(mesh: E2eMesh) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=mesh.url, timeout=60) as client:
        yield client


async def started(
    client: httpx.AsyncClient, count: int, tasks: asyncio.TaskGroup, **keys: float
) -> list[Heard]:
    """Start streams, and wait until each has said something."""
    heard = [Heard() for _ in range(count)]
    for one in heard:
        tasks.create_task(hear(client, {"model": "echo", "messages": user(**keys)}, heard=one))

    async def begun() -> bool:
        return all(one.texts for one in heard)

    await until(begun, bool, 10)
    return heard


async def test_streams_of_a_killed_orchestrator_go_on_and_it_comes_back(
    mesh: E2eMesh, http: httpx.AsyncClient
) -> None:
    before = await mesh.one("orchestrator-1")
    async with asyncio.TaskGroup() as tasks:
        heard = await started(http, 20, tasks, tokens=TOKENS, each_ms=10)
        shares = await mesh.inflight("orchestrator-0", "orchestrator-1")
        assert shares == [10, 10]
        mesh.kill("orchestrator-1")

        async def moved() -> list[int]:
            return await mesh.inflight("orchestrator-0")

        await until(moved, lambda counts: counts == [20], 2)
        for _ in range(5):  # The other orchestrator takes what comes.
            (await hear(http, {"model": "echo", "messages": user(tokens=3)})).complete(words(3))
    for one in heard:
        one.complete(words(TOKENS))
    await mesh.back("orchestrator-1", before)
    assert not psutil.pid_exists(before["pid"])
    assert shared_memory(f"orchestrator-1-{before['incarnation']}") == set()
    await mesh.settled(4)
    async with asyncio.TaskGroup() as tasks:
        heard = await started(http, 10, tasks, tokens=100, each_ms=5)
        assert await mesh.inflight("orchestrator-0", "orchestrator-1") == [5, 5]
    for one in heard:
        one.complete(words(100))


async def ready(client: httpx.AsyncClient) -> int:
    """Give what a gateway says of itself."""
    return (await client.get("/ready")).status_code


async def steps_within(mesh: E2eMesh, span_s: float) -> float:
    """Count the steps that the worker's engine makes in a short while."""
    steps = "stagemesh_worker_engine_steps_total"
    before = (await mesh.metrics("thinker-0"))[steps]
    await asyncio.sleep(span_s)
    return (await mesh.metrics("thinker-0"))[steps] - before


async def test_without_any_orchestrator_the_gateway_says_503_and_goes_on_when_one_is_back(
    mesh: E2eMesh, http: httpx.AsyncClient
) -> None:
    names = ("orchestrator-0", "orchestrator-1")
    before = {name: await mesh.one(name) for name in names}
    whole = asyncio.create_task(
        http.post(CHAT, json={"model": "echo", "messages": user(tokens=TOKENS, each_ms=5)})
    )

    async def inflight() -> int:
        return sum(await mesh.inflight(*names))

    await until(inflight, lambda count: count == 1, 5)
    for name in names:
        mesh.kill(name)
    await until(lambda: ready(http), lambda status: status == 503, 1)
    answer = await http.post(CHAT, json={"model": "echo", "messages": user(tokens=3)})
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "no_orchestrator")
    assert int(answer.headers["retry-after"]) >= 1
    assert (await http.get("/health")).status_code == 200
    for name in names:
        await mesh.back(name, before[name])
    assert (await whole).json()["choices"][0]["message"]["content"] == words(TOKENS)
    await until(lambda: ready(http), lambda status: status == 200, 10)
    (await hear(http, {"model": "echo", "messages": user(tokens=3)})).complete(words(3))
    await mesh.settled(4)


async def test_a_request_without_an_orchestrator_ends_typed_after_a_while(
    mesh: E2eMesh, http: httpx.AsyncClient
) -> None:
    """They stand still: the launcher brings nobody back. `peer_lost_s` is 6, `redrive_s` 10."""
    names = ("orchestrator-0", "orchestrator-1")
    body = {"model": "echo", "messages": user(tokens=100_000, each_ms=5)}
    async with asyncio.TaskGroup() as tasks:
        (heard,) = await started(http, 1, tasks, tokens=100_000, each_ms=5)
        whole = tasks.create_task(http.post(CHAT, json=body))
        begun_s = time.monotonic()
        pids = [mesh.kill(name, signal.SIGSTOP) for name in names]
        try:
            # `orphan_s` after the loss the worker gives up what nobody else has taken over.
            await until(lambda: steps_within(mesh, 0.2), lambda made: made == 0, 10)
            answer = await whole
            assert 14 < time.monotonic() - begun_s < 20
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)
    assert (answer.status_code, answer.json()["error"]["code"]) == (502, "link_lost")
    assert (heard.error["code"], heard.error["type"]) == ("link_lost", "server_error")
    assert (heard.dones, heard.finishes, heard.broken) == (0, [], "")
    assert words(100_000).startswith(heard.text())
    await until(lambda: ready(http), lambda status: status == 200, 10)
    (await hear(http, {"model": "echo", "messages": user(tokens=3)})).complete(words(3))
    await mesh.settled(8)


async def test_a_native_call_whose_orchestrator_dies_is_unavailable(mesh: E2eMesh) -> None:
    before = await mesh.one("orchestrator-0")
    request = orchestrator_service_pb2.GenerateRequest()
    request.request.model = "echo"
    request.request.messages.add(role="user").parts.add(text=script(tokens=TOKENS, each_ms=10))
    async with grpc.aio.insecure_channel(mesh.grpc) as channel:
        stub = orchestrator_service_pb2_grpc.OrchestratorServiceStub(channel)
        responses = aiter(stub.Generate(request, timeout=30))
        await anext(responses)
        mesh.kill("orchestrator-0")
        with pytest.raises(grpc.aio.AioRpcError) as ended:
            _ = [response async for response in responses]
        assert ended.value.code() == grpc.StatusCode.UNAVAILABLE
        await mesh.back("orchestrator-0", before)
        answers = [r async for r in stub.Generate(request, timeout=30, wait_for_ready=True)]
    assert "".join(o.text for r in answers for o in r.outputs) == words(TOKENS)
    await mesh.settled(4)


async def test_a_killed_gateway_leaves_no_work_behind_and_comes_back(
    mesh: E2eMesh, http: httpx.AsyncClient
) -> None:
    before = next(one for one in mesh.processes() if one["replica_id"] == "gateway-0")
    second = next(one for one in mesh.processes() if one["replica_id"] == "gateway-1")
    async with (
        httpx.AsyncClient(base_url=f"http://{second['address']}", timeout=60) as other,
        asyncio.TaskGroup() as tasks,
    ):
        heard = await started(http, 10, tasks, tokens=100_000, each_ms=5)
        untouched = await started(other, 10, tasks, tokens=TOKENS, each_ms=10)
        mesh.kill("gateway-0")

        async def inflight() -> int:
            return sum(await mesh.inflight("thinker-0"))

        # `orphan_s` is 2: until then another owner could adopt them.
        await until(inflight, lambda count: count <= 10, 4)
    for one in heard:
        assert (one.dones, one.finishes) == (0, [])
        assert one.broken or one.errors
    for one in untouched:
        one.complete(words(TOKENS))
    await mesh.back("gateway-0", before)
    (await hear(http, {"model": "echo", "messages": user(tokens=3)})).complete(words(3))
    await mesh.settled(4)
    entries = [name for name in shared_memory("gateway-0") if mesh_owns(mesh, name)]
    assert len(entries) <= 1


def mesh_owns(mesh: E2eMesh, name: str) -> bool:
    """Tell whether an entry is open in the mesh's first gateway."""
    process = psutil.Process(mesh.pids()["gateway-0"])
    return any(file.path.endswith(name) for file in process.open_files())
