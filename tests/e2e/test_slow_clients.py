"""Clients that read 1 KiB/s: they hold back themselves, as long as they may, and nobody else."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from statistics import median
from typing import Final

import grpc
import httpx
import pytest

from stagemesh.api.orchestrator.v1 import orchestrator_service_pb2, orchestrator_service_pb2_grpc
from stagemesh.api.types.v1 import outcome_pb2
from tests.helpers.e2e_mesh import E2eMesh, running_mesh, until
from tests.helpers.e2e_scripts import UNIT_SAMPLES, pcm, script, user, words
from tests.helpers.e2e_small import ECHO_AND_TALK, one_mesh
from tests.helpers.e2e_sse import Heard, hear
from tests.helpers.slow_lines import SlowLine

SLOW_S: Final = 8.0
TOKENS: Final = 3_000
"""A minute of sound: more than all windows on its way, less than its talker may hold back."""
GROWTH_MIB: Final = 24
ENDED: Final = "stagemesh_orchestrator_requests_finished_total{SLOW_CONSUMER,talk,FAILED}"


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[E2eMesh]:
    folder = tmp_path_factory.mktemp("slow")
    environment = {"XDG_CACHE_HOME": str(folder / "cache"), "STAGEMESH_SLOW_S": str(SLOW_S)}
    file = one_mesh(folder, ECHO_AND_TALK, replicas=1)
    with running_mesh(file, folder, environment=environment) as mesh:
        yield mesh


@pytest.fixture
async def http(mesh: E2eMesh) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=mesh.url, timeout=60) as client:
        yield client


async def by_http(line: SlowLine) -> str:
    """Ask for the sound over a slow line; give the reason of its one typed end."""
    body = {
        "model": "talk",
        "messages": user(tokens=TOKENS),
        "modalities": ["text", "audio"],
        "audio": {"voice": "any", "format": "pcm16"},
        "seed": 3,
    }
    heard = Heard()
    async with httpx.AsyncClient(base_url=f"http://{line.address}", timeout=60) as client:
        await hear(client, body, heard=heard)
    assert (heard.status, heard.dones, heard.broken) == (200, 0, ""), heard.broken
    assert words(TOKENS).startswith(heard.text())
    assert pcm(3, TOKENS * UNIT_SAMPLES).startswith(heard.sound())
    code: str = heard.error["code"]
    return code


async def by_grpc(line: SlowLine) -> str:
    """The same as a native call."""
    request = orchestrator_service_pb2.GenerateRequest()
    request.request.model, request.request.seed = "talk", 3
    request.request.messages.add(role="user").parts.add(text=script(tokens=TOKENS))
    text, sound, terminals = "", b"", list[orchestrator_service_pb2.RequestTerminal]()
    async with grpc.aio.insecure_channel(line.address) as channel:
        stub = orchestrator_service_pb2_grpc.OrchestratorServiceStub(channel)
        with pytest.raises(grpc.aio.AioRpcError) as ended:
            async for response in stub.Generate(request, timeout=60):
                text += "".join(output.text for output in response.outputs)
                sound += b"".join(output.body.inline for output in response.outputs)
                terminals += [response.terminal] if response.HasField("terminal") else []
    assert words(TOKENS).startswith(text)
    assert pcm(3, TOKENS * UNIT_SAMPLES).startswith(sound)
    assert ended.value.code() is grpc.StatusCode.ABORTED
    (terminal,) = terminals
    assert terminal.outcome == outcome_pb2.OUTCOME_FAILED
    return terminal.error.reason


async def latency_ms(http: httpx.AsyncClient) -> float:
    """Give how long others take, who ask for a few tokens."""
    taken = []
    for _ in range(30):
        begun_s = time.monotonic()
        (await hear(http, {"model": "echo", "messages": user(tokens=20)})).complete(words(20))
        taken.append(1000 * (time.monotonic() - begun_s))
    return median(taken)


@pytest.mark.parametrize("ask", [by_http, by_grpc])
async def test_a_client_at_1_kib_per_s_holds_back_itself_and_ends_typed_after_slow_s(
    mesh: E2eMesh,
    http: httpx.AsyncClient,
    ask: Callable[[SlowLine], Coroutine[None, None, str]],
    record_property: Callable[[str, object], None],
) -> None:
    target = mesh.http if ask is by_http else mesh.grpc

    async def ends() -> float:
        return (await mesh.metrics("orchestrator-0")).get(ENDED, 0.0)

    async def outputs() -> float:
        return (await mesh.metrics("orchestrator-0"))["stagemesh_orchestrator_outputs_total"]

    before, usual_ms, sizes = await ends(), await latency_ms(http), mesh.rss_mib()
    made_before = await outputs()
    async with SlowLine(target) as line, asyncio.TaskGroup() as tasks:
        begun_s = time.monotonic()
        asked = tasks.create_task(ask(line))
        made = await until(outputs, lambda now: now > made_before, SLOW_S)
        while (now := await outputs()) != made:  # Credit stops it, in the end.
            made = now
            await asyncio.sleep(0.1)
        assert made - made_before < TOKENS, "nothing held the stages back"
        slowed_ms = await latency_ms(http)
        growth = {name: size - sizes[name] for name, size in mesh.rss_mib().items()}
        await until(ends, lambda now: now == before + 1, 2 * SLOW_S)
        assert SLOW_S - 0.5 < time.monotonic() - begun_s < SLOW_S + 5
        line.hasten()
    assert asked.result() == "slow_consumer"
    record_property("latency_ms", (round(usual_ms, 1), round(slowed_ms, 1)))
    record_property("growth_mib", {name: round(size, 1) for name, size in growth.items()})
    assert slowed_ms < 3 * usual_ms + 20
    assert max(growth.values()) < GROWTH_MIB, growth
    await mesh.settled()


async def test_a_slow_client_that_goes_on_reading_gets_its_whole_answer(mesh: E2eMesh) -> None:
    """At 4 KiB/s a window lasts half of `slow_s`, though all of them together last far longer."""
    heard = Heard()
    body = {"model": "echo", "messages": user(tokens=TOKENS)}
    async with (
        SlowLine(mesh.http, every_s=0.25) as line,
        httpx.AsyncClient(base_url=f"http://{line.address}", timeout=60) as client,
        asyncio.TaskGroup() as tasks,
    ):
        tasks.create_task(hear(client, body, heard=heard))
        await asyncio.sleep(1.5 * SLOW_S)
        assert not heard.errors
        line.hasten()
    heard.complete(words(TOKENS))
    await mesh.settled()


async def test_an_answer_that_outgrows_the_journal_ends_typed_and_no_other_notices(
    mesh: E2eMesh, http: httpx.AsyncClient
) -> None:
    """Its talker never begins, so all that the thinker says is kept for it."""
    body = {
        "model": "talk",
        "messages": user(
            thinker={"tokens": 600_000, "batch": 1_000, "each_ms": 4},
            talker={"reject": "OVERLOADED"},
        ),
        "modalities": ["text", "audio"],
        "audio": {"voice": "any", "format": "pcm16"},
    }
    sizes = mesh.rss_mib()
    asked = asyncio.create_task(hear(http, body))
    (await hear(http, {"model": "echo", "messages": user(tokens=50)})).complete(words(50))
    heard = await asked
    assert (heard.error["code"], heard.error["stage"]) == ("journal_full", "thinker")
    assert words(600_000).startswith(heard.text())
    growth = {name: size - sizes[name] for name, size in mesh.rss_mib().items()}
    assert max(growth.values()) < 2 * GROWTH_MIB, growth
    await mesh.settled()
