import asyncio
import json
import os
import signal
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import grpc
import httpx
import psutil
import pytest

from stagemesh.api.orchestrator.v1 import orchestrator_service_pb2, orchestrator_service_pb2_grpc
from tests.helpers.e2e_mesh import E2eMesh, running_mesh, shared_memory, until
from tests.helpers.e2e_scripts import UNIT_SAMPLES, pcm, script, user, words
from tests.helpers.e2e_small import ECHO, ECHO_AND_TALK, one_mesh
from tests.helpers.e2e_sse import Heard, hear

TOKENS = 400
STANDING = 800
"""Tokens that take longer than a process stands still."""


@pytest.fixture(scope="module")
def single(tmp_path_factory: pytest.TempPathFactory) -> Iterator[E2eMesh]:
    """One replica for all."""
    folder = tmp_path_factory.mktemp("single")
    environment = {"XDG_CACHE_HOME": str(folder / "cache")}
    file = one_mesh(folder, ECHO, replicas=1)
    with running_mesh(file, folder, environment=environment) as mesh:
        yield mesh


@pytest.fixture(scope="module")
def double(tmp_path_factory: pytest.TempPathFactory) -> Iterator[E2eMesh]:
    """Two replicas of each of two stages."""
    folder = tmp_path_factory.mktemp("double")
    environment = {"XDG_CACHE_HOME": str(folder / "cache")}
    file = one_mesh(folder, ECHO_AND_TALK, replicas=2)
    with running_mesh(file, folder, environment=environment) as mesh:
        yield mesh


@pytest.fixture
async def to_single(single: E2eMesh) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=single.url, timeout=60) as client:
        yield client


@pytest.fixture
async def to_double(double: E2eMesh) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=double.url, timeout=60) as client:
        yield client


def streams(
    client: httpx.AsyncClient, count: int, tasks: asyncio.TaskGroup, **keys: Any
) -> list[Heard]:
    """Start streams; each fills what it is heard as."""
    heard = [Heard() for _ in range(count)]
    for one in heard:
        body = {"model": "echo", "messages": user(**keys)}
        tasks.create_task(hear(client, body, heard=one))
    return heard


async def under_way(heard: list[Heard]) -> None:
    """Wait until every stream has said something."""

    async def begun() -> bool:
        return all(one.texts for one in heard)

    await until(begun, bool, 10)


async def test_streams_of_a_killed_worker_go_on_when_it_is_back(
    single: E2eMesh, to_single: httpx.AsyncClient
) -> None:
    before = await single.one("thinker-0")
    async with asyncio.TaskGroup() as tasks:
        heard = streams(to_single, 30, tasks, tokens=TOKENS, each_ms=20)
        await under_way(heard)
        single.kill("thinker-0")
        # Whoever comes meanwhile waits for it too.
        answer = await hear(to_single, {"model": "echo", "messages": user(tokens=5)})
    answer.complete(words(5))
    for one in heard:
        one.complete(words(TOKENS))
    await single.back("thinker-0", before)
    assert not psutil.pid_exists(before["pid"])
    assert shared_memory(before["incarnation"]) == set()
    await single.settled()


async def test_a_native_call_on_a_killed_worker_goes_on(single: E2eMesh) -> None:
    before = await single.one("thinker-0")
    request = orchestrator_service_pb2.GenerateRequest()
    request.request.model = "echo"
    request.request.messages.add(role="user").parts.add(text=script(tokens=TOKENS, each_ms=20))
    text = ""
    async with grpc.aio.insecure_channel(single.grpc) as channel:
        stub = orchestrator_service_pb2_grpc.OrchestratorServiceStub(channel)
        async for response in stub.Generate(request, timeout=30):
            text += "".join(output.text for output in response.outputs)
            if text and single.pids()["thinker-0"] == before["pid"]:
                single.kill("thinker-0")
                await single.back("thinker-0", before)
    assert text == words(TOKENS)
    await single.settled()


async def test_with_two_replicas_the_streams_of_a_killed_one_go_on_at_the_other(
    double: E2eMesh, to_double: httpx.AsyncClient
) -> None:
    before = await double.one("thinker-1")
    async with asyncio.TaskGroup() as tasks:
        heard = streams(to_double, 30, tasks, tokens=TOKENS, each_ms=10)
        await under_way(heard)
        shares = await double.inflight("thinker-0", "thinker-1")
        assert sum(shares) == 30
        assert min(shares) >= 10, "least_loaded spreads them"
        double.kill("thinker-1")

        async def moved() -> list[int]:
            return await double.inflight("thinker-0")

        await until(moved, lambda counts: counts == [30], 2)
        # New requests go on without a pause: the other replica takes them all.
        for _ in range(10):
            answer = await hear(to_double, {"model": "echo", "messages": user(tokens=3)})
            answer.complete(words(3))
    for one in heard:
        one.complete(words(TOKENS))
    await double.back("thinker-1", before)
    assert shared_memory(before["incarnation"]) == set()
    await double.settled()


async def test_a_request_that_had_given_nothing_yet_is_run_again_on_another_replica(
    double: E2eMesh, to_double: httpx.AsyncClient
) -> None:
    """Nothing was delivered, so any stage may begin again, and the client does not notice."""
    before = {name: await double.one(name) for name in ("thinker-0", "thinker-1")}
    async with asyncio.TaskGroup() as tasks:
        heard = streams(to_double, 10, tasks, tokens=5, first_ms=2_000)

        async def placed() -> list[int]:
            return await double.inflight(*before)

        shares = await until(placed, lambda now: sum(now) == 10, 5)
        assert min(shares) > 0
        double.kill("thinker-0")
    for one in heard:
        one.complete(words(5))
    await double.back("thinker-0", before["thinker-0"])
    await double.settled()


async def test_a_talk_whose_talker_is_killed_goes_on_to_the_sample(
    double: E2eMesh, to_double: httpx.AsyncClient
) -> None:
    names = ("talker-0", "talker-1")
    before = {name: await double.one(name) for name in names}
    body = {
        "model": "talk",
        "messages": user(tokens=TOKENS, each_ms=10),
        "modalities": ["text", "audio"],
        "audio": {"voice": "any", "format": "pcm16"},
        "seed": 5,
    }
    heard = Heard()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(hear(to_double, body, heard=heard))
        await under_way([heard])
        counts = await double.inflight(*names)
        assert sorted(counts) == [0, 1]
        busy = names[counts.index(1)]
        double.kill(busy)
    heard.complete(words(TOKENS))
    assert heard.sound() == pcm(5, TOKENS * UNIT_SAMPLES)
    await double.settled(2)
    await double.back(busy, before[busy])


async def test_a_request_that_crashes_its_worker_twice_at_one_place_is_at_fault_itself(
    single: E2eMesh, to_single: httpx.AsyncClient
) -> None:
    before = await single.one("thinker-0")
    body = {"model": "echo", "messages": user(tokens=9, each_ms=5, crash_at=4)}
    heard = await hear(to_single, body)
    assert heard.text() == words(4)
    assert (heard.error["code"], heard.error["stage"]) == ("engine_error", "thinker")
    await single.back("thinker-0", before)
    assert shared_memory(before["incarnation"]) == set()
    # Or, where the launcher waits longer before it starts the worker again than a request does:
    whole = await to_single.post("/v1/chat/completions", json=body)
    assert whole.status_code == 502
    assert whole.json()["error"]["code"] in {"engine_error", "replica_lost"}
    await single.settled(20)


async def test_a_script_that_hangs_ends_at_its_deadline_with_the_stage_named(
    double: E2eMesh, to_double: httpx.AsyncClient
) -> None:
    body = {"model": "echo", "messages": user(tokens=9, hang_at=4)}
    begun_s = time.monotonic()
    timeout = {"x-request-timeout": "1.5"}
    answers = await asyncio.gather(
        hear(to_double, body, headers=timeout),
        to_double.post("/v1/chat/completions", json=body, headers=timeout),
    )
    assert 1.4 < time.monotonic() - begun_s < 3.5
    streamed, whole = answers
    assert (streamed.text(), streamed.error["code"]) == (words(4), "deadline_exceeded")
    assert streamed.error["stage"] == "thinker"
    assert (whole.status_code, whole.json()["error"]["code"]) == (504, "deadline_exceeded")
    await double.settled(3)
    (await hear(to_double, {"model": "echo", "messages": user(tokens=3)})).complete(words(3))


async def test_a_script_that_fails_ends_typed_before_and_after_the_first_byte(
    double: E2eMesh, to_double: httpx.AsyncClient
) -> None:
    for at in (0, 3):
        body = {"model": "echo", "messages": user(tokens=9, each_ms=3, fail_at=at)}
        heard = await hear(to_double, body)
        assert heard.text() == words(at)
        assert (heard.error["code"], heard.error["stage"]) == ("engine_error", "thinker")
        assert heard.dones == 0
        assert heard.status == (200 if at else 502)
        whole = await to_double.post("/v1/chat/completions", json=body)
        assert (whole.status_code, whole.json()["error"]["code"]) == (502, "engine_error")
    await double.settled()


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("INVALID_ARGUMENT", 400), ("RATE_LIMITED", 429), ("GUARDRAIL", 400), ("NOT_FOUND", 404),
        ("CONFLICT", 409), ("PERMISSION_DENIED", 403), ("PAYLOAD_TOO_LARGE", 413),
    ],
)  # fmt: skip
async def test_a_script_that_rejects_is_answered_with_that_code(
    double: E2eMesh, to_double: httpx.AsyncClient, code: str, status: int
) -> None:
    headers = {"x-request-timeout": "5"}
    body = {"model": "echo", "messages": user(tokens=9, reject=code)}
    answer = await to_double.post("/v1/chat/completions", json=body, headers=headers)
    assert answer.status_code == status, answer.text
    assert answer.json()["error"]["message"]
    assert ("retry-after" in answer.headers) == (status == 429)
    await double.settled()


async def test_a_request_for_which_there_never_is_room_is_turned_away_in_the_end(
    double: E2eMesh, to_double: httpx.AsyncClient
) -> None:
    """A refusal for lack of room is no end: it is tried again, until that takes too long."""
    body = {"model": "echo", "messages": user(tokens=9, reject=True)}
    begun_s = time.monotonic()
    patient, hasty = await asyncio.gather(
        to_double.post("/v1/chat/completions", json=body),
        to_double.post("/v1/chat/completions", json=body, headers={"x-request-timeout": "1"}),
    )
    assert time.monotonic() - begun_s < 15
    assert (patient.status_code, patient.json()["error"]["type"]) == (429, "overloaded_error")
    assert int(patient.headers["retry-after"]) >= 1
    assert patient.headers["x-stagemesh-not-admitted"] == "1"
    assert (hasty.status_code, hasty.json()["error"]["code"]) == (504, "deadline_exceeded")
    assert hasty.json()["error"]["stage"] == "thinker"
    await double.settled()


async def test_a_worker_that_stands_still_holds_up_only_its_own_and_comes_back(
    double: E2eMesh, to_double: httpx.AsyncClient
) -> None:
    """SIGSTOP for longer than `peer_lost_s`: its requests go on elsewhere, others never notice."""
    pid = double.pids()["thinker-0"]
    async with asyncio.TaskGroup() as tasks:
        heard = streams(to_double, 10, tasks, tokens=STANDING, each_ms=25)
        await under_way(heard)
        shares = await double.inflight("thinker-0", "thinker-1")
        os.kill(pid, signal.SIGSTOP)
        stopped_s = time.monotonic()
        try:

            async def moved() -> list[int]:
                return await double.inflight("thinker-1")

            assert min(shares) > 0
            await until(moved, lambda counts: counts == [10], 9)
            for _ in range(5):
                answer = await hear(to_double, {"model": "echo", "messages": user(tokens=3)})
                answer.complete(words(3))
            await asyncio.sleep(max(0.0, stopped_s + 10 - time.monotonic()))
        finally:
            os.kill(pid, signal.SIGCONT)
    for one in heard:
        one.complete(words(STANDING))

    async def again() -> dict[str, Any]:
        return await double.one("thinker-0")

    await until(again, lambda now: bool(now["state"] == "ready" and now["pid"] == pid), 10)
    await double.settled()
    async with asyncio.TaskGroup() as tasks:
        heard = streams(to_double, 6, tasks, tokens=TOKENS, each_ms=2)
        await under_way(heard)
        assert (await double.inflight("thinker-0")) == [3], "it gets work again"
    for one in heard:
        one.complete(words(TOKENS))


async def test_a_worker_that_dies_again_and_again_does_not_take_the_mesh_along(
    double: E2eMesh, to_double: httpx.AsyncClient
) -> None:
    """Every request that crashes its worker, on all replicas at once: the rest stays as it is."""
    others = {name: pid for name, pid in double.pids().items() if not name.startswith("thinker")}
    before = [await double.one(name) for name in ("thinker-0", "thinker-1")]
    body = {"model": "echo", "messages": user(tokens=5, crash_at=0)}
    answers = await asyncio.gather(
        *(to_double.post("/v1/chat/completions", json=body) for _ in range(6))
    )
    for answer in answers:
        error = answer.json()["error"]
        assert answer.status_code in {429, 502}, answer.text
        assert error["code"] in {"replica_lost", "no_replica", "engine_error", "queue_full"}, error
    now = double.pids()
    assert {name: now[name] for name in others} == others
    for one in before:
        if double.pids()[one["replica_id"]] != one["pid"]:
            await double.back(one["replica_id"], one)
    (await hear(to_double, {"model": "echo", "messages": user(tokens=3)})).complete(words(3))
    await double.settled()
    assert json.dumps(await double.leftovers()) == "{}"


def test_the_launcher_said_which_processes_died(single: E2eMesh) -> None:
    assert "thinker-0 was killed by signal 9; again in " in single.said
    assert "thinker-0 exited with 70; again in " in single.said
    assert "thinker-0 is ready again" in single.said
