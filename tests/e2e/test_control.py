"""Operators steer a whole mesh: what runs is whole, and only who needs a pool notices."""

import asyncio
import random
import signal
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest

from stagemesh.api.admin.v1 import admin_service_pb2 as pb
from stagemesh.api.types.v1 import link_pb2
from tests.helpers.e2e_admin import ABORT, KEEP, WAIT, Admin, admin_of
from tests.helpers.e2e_mesh import E2eMesh, running_mesh, until
from tests.helpers.e2e_scripts import user, words
from tests.helpers.e2e_small import ECHO_AND_TALK, one_mesh
from tests.helpers.e2e_sse import Heard, hear

CHAT = "/v1/chat/completions"
TOKENS = 200


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[E2eMesh]:
    """Two replicas of each of two stages, behind two orchestrators."""
    folder = tmp_path_factory.mktemp("control")
    environment = {"XDG_CACHE_HOME": str(folder / "cache")}
    file = one_mesh(folder, ECHO_AND_TALK, replicas=2)
    more = ("--orchestrators", "2")
    with running_mesh(file, folder, *more, environment=environment) as mesh:
        yield mesh


@pytest.fixture
async def http(mesh: E2eMesh) -> AsyncIterator[httpx.AsyncClient]:
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=mesh.url, timeout=60, limits=limits) as client:
        yield client


@pytest.fixture
async def admin(mesh: E2eMesh) -> AsyncIterator[Admin]:
    """An operator, who leaves everything open."""
    async with admin_of(mesh) as admin:
        yield admin
        await admin.call("WakeUp")
        await admin.call("Resume")
        for pool in ("thinker", "talker"):
            await admin.until_all("ready", pool)
    await mesh.settled()


def echo(**keys: object) -> dict[str, object]:
    return {"model": "echo", "messages": user(**keys)}


def talk(*modalities: str, **keys: object) -> dict[str, object]:
    audio = {"audio": {"voice": "x", "format": "pcm16"}} if "audio" in modalities else {}
    return {"model": "talk", "messages": user(**keys), "modalities": list(modalities), **audio}


def streams(
    http: httpx.AsyncClient, count: int, tasks: asyncio.TaskGroup, body: dict[str, object]
) -> list[Heard]:
    heard = [Heard() for _ in range(count)]
    for one in heard:
        tasks.create_task(hear(http, body, heard=one))
    return heard


async def under_way(heard: list[Heard]) -> None:
    async def begun() -> bool:
        return all(one.texts for one in heard)

    await until(begun, bool, 20)


async def times_out(http: httpx.AsyncClient, after_s: float) -> None:
    """Let a request wait for a paused pool until its own time is up."""
    headers = {"x-request-timeout": f"{after_s:g}"}
    answer = await http.post(CHAT, json=talk("text", tokens=1), headers=headers)
    assert (answer.status_code, answer.json()["error"]["code"]) == (504, "deadline_exceeded")


async def pids(admin: Admin) -> dict[str, int]:
    answer = await admin.stub.ListReplicas(pb.ListReplicasRequest(), timeout=5)
    return {one.replica_id: one.pid for one in answer.replicas}


async def test_streams_that_were_frozen_go_on_whole_and_who_comes_meanwhile_waits(
    http: httpx.AsyncClient, admin: Admin
) -> None:
    async with asyncio.TaskGroup() as tasks:
        heard = streams(http, 50, tasks, echo(tokens=TOKENS, each_ms=10))
        await under_way(heard)
        done = await admin.call("Pause", "thinker", mode=KEEP)
        assert done == {"thinker-0": "", "thinker-1": ""}
        assert await admin.states("thinker") == {"thinker-0": "paused", "thinker-1": "paused"}
        (late,) = streams(http, 1, tasks, echo(tokens=5))
        await times_out(http, 1.0)  # Longer than any output is on its way.
        frozen = [one.text() for one in heard]
        await times_out(http, 0.5)
        assert [one.text() for one in heard] == frozen
        assert not any(one.finishes for one in heard)
        assert late.texts == {}
        assert await admin.call("Resume", "thinker") == done
    for one in heard:
        one.complete(words(TOKENS))
    late.complete(words(5))


async def test_a_pause_that_waits_is_answered_when_the_last_stream_has_ended(
    http: httpx.AsyncClient, admin: Admin
) -> None:
    async with asyncio.TaskGroup() as tasks:
        heard = streams(http, 5, tasks, echo(tokens=50, each_ms=10))
        await under_way(heard)
        assert set((await admin.call("Pause", "thinker", mode=WAIT)).values()) == {""}
        assert await admin.call("Resume", "thinker") == {"thinker-0": "", "thinker-1": ""}
    for one in heard:
        one.complete(words(50))


async def test_a_pause_that_aborts_ends_streams_typed_and_refuses_at_every_orchestrator(
    mesh: E2eMesh, http: httpx.AsyncClient, admin: Admin
) -> None:
    async with asyncio.TaskGroup() as tasks:
        heard = streams(http, 6, tasks, echo(tokens=2_000, each_ms=10))
        await under_way(heard)
        assert set((await admin.call("Pause", "thinker", mode=ABORT)).values()) == {""}
    for one in heard:
        assert one.error["code"] == "stopped_by_operator"
        assert words(2_000).startswith(one.text())
    async with admin_of(mesh, "orchestrator-1") as other:
        await other.until_all("paused", "thinker")
    # The gateway takes turns, so both orchestrators are asked.
    answers = await asyncio.gather(*(http.post(CHAT, json=echo(tokens=3)) for _ in range(6)))
    for refused in answers:
        assert (refused.status_code, refused.json()["error"]["code"]) == (429, "paused")
        assert int(refused.headers["retry-after"]) >= 1
        assert refused.headers["x-stagemesh-not-admitted"] == "1"


async def test_a_pool_that_sleeps_is_missed_only_by_those_who_need_it(
    http: httpx.AsyncClient, admin: Admin
) -> None:
    assert await admin.call("Sleep", "talker") == {"talker-0": "", "talker-1": ""}
    spoken = await hear(http, talk("text", "audio", tokens=3))
    assert (spoken.status, spoken.error["code"]) == (429, "asleep")
    assert int(spoken.headers["retry-after"]) >= 1
    (await hear(http, talk("text", tokens=3))).complete(words(3))
    (await hear(http, echo(tokens=3))).complete(words(3))

    assert set((await admin.call("Resume", "talker")).values()) == {"conflict"}
    await admin.call("WakeUp", "talker", tags=["weights"])
    assert (await hear(http, talk("text", "audio", tokens=3))).error["code"] == "asleep"
    await admin.call("WakeUp", "talker")
    assert set((await admin.states("talker")).values()) == {"paused"}
    assert set((await admin.call("Resume", "talker")).values()) == {""}
    again = await hear(http, talk("text", "audio", tokens=3))
    again.complete(words(3))
    assert again.sound()


async def test_no_request_slips_into_a_pool_that_goes_to_sleep(
    http: httpx.AsyncClient, admin: Admin
) -> None:
    """An engine that is given work while it sleeps ends its process, so none may be lost."""
    drawn = random.Random(7)
    offsets = [drawn.uniform(0, 0.3) for _ in range(200)]
    pids = {
        one.replica_id: one.pid
        for one in (await admin.stub.ListReplicas(pb.ListReplicasRequest())).replicas
    }
    begun_s = time.monotonic()

    async def ask(offset_s: float) -> Heard:
        await asyncio.sleep(max(0.0, begun_s + offset_s - time.monotonic()))
        return await hear(http, echo(tokens=2, each_ms=5))

    async with asyncio.TaskGroup() as tasks:
        asked = [tasks.create_task(ask(offset_s)) for offset_s in offsets]
        await asyncio.sleep(0.15)
        assert set((await admin.call("Sleep", "thinker", mode=WAIT)).values()) == {""}
        await admin.call("WakeUp", "thinker")
        await admin.call("Resume", "thinker")
    for task in asked:
        one = task.result()
        if one.status == 200:
            one.complete(words(2))
        else:
            assert (one.status, one.error["code"]) == (429, "asleep")
    assert {
        one.replica_id: one.pid
        for one in (await admin.stub.ListReplicas(pb.ListReplicasRequest())).replicas
    } == pids


async def test_a_worker_that_comes_back_while_its_pool_is_paused_is_paused(
    mesh: E2eMesh, http: httpx.AsyncClient, admin: Admin
) -> None:
    await admin.call("Pause", "thinker", mode=KEEP)
    before = await mesh.one("thinker-0")
    mesh.kill("thinker-0")

    async def back() -> bool:
        now = await mesh.one("thinker-0")
        return bool(now["pid"] not in {None, before["pid"]} and now["state"] == "paused")

    await until(back, bool, 40)
    async with asyncio.TaskGroup() as tasks:
        (held,) = streams(http, 1, tasks, echo(tokens=3))
        await admin.call("Resume", "thinker")
    held.complete(words(3))


async def test_a_replica_that_stands_still_fails_by_itself_while_requests_go_on(
    mesh: E2eMesh, http: httpx.AsyncClient, admin: Admin
) -> None:
    async with asyncio.TaskGroup() as tasks:
        heard = streams(http, 10, tasks, talk("text", tokens=TOKENS, each_ms=10))
        await under_way(heard)
        mesh.kill("talker-0", signal.SIGSTOP)
        begun_s = time.monotonic()
        try:
            done = await admin.call("ResetCache", "talker", "thinker", timeout_s=1.0)
        finally:
            mesh.kill("talker-0", signal.SIGCONT)
        assert 0.9 < time.monotonic() - begun_s < 3
        assert done == {
            "talker-0": "deadline_exceeded",
            "talker-1": "",
            "thinker-0": "",
            "thinker-1": "",
        }
    for one in heard:
        one.complete(words(TOKENS))


async def test_a_replica_is_taken_out_and_in_again_and_no_stream_notices(
    mesh: E2eMesh, http: httpx.AsyncClient, admin: Admin
) -> None:
    async with asyncio.TaskGroup() as tasks:
        heard = streams(http, 20, tasks, echo(tokens=TOKENS, each_ms=10))
        await under_way(heard)
        said = await mesh.command("drain", "thinker-0")
        assert "thinker-0" in said
        assert (await admin.states("thinker"))["thinker-0"] == "draining"
        assert (await mesh.inflight("thinker-0")) == [0]
    for one in heard:
        one.complete(words(TOKENS))
    await mesh.command("drain", "--undo", "thinker-0")
    await admin.until_all("ready", "thinker")


async def test_an_orchestrator_is_taken_out_and_in_again_and_no_stream_notices(
    mesh: E2eMesh, http: httpx.AsyncClient, admin: Admin
) -> None:
    async with asyncio.TaskGroup() as tasks:
        heard = streams(http, 20, tasks, echo(tokens=TOKENS, each_ms=10))
        await under_way(heard)
        await mesh.command("drain", "orchestrator-0")
        assert (await mesh.one("orchestrator-0"))["state"] == "draining"
    for one in heard:
        one.complete(words(TOKENS))
    await mesh.command("drain", "--undo", "orchestrator-0")
    assert (await mesh.one("orchestrator-0"))["state"] == "ready"


async def test_who_watches_is_told_of_each_change(admin: Admin) -> None:
    call: Any = admin.stub.Watch(pb.WatchRequest(pools=["talker"]))
    try:
        async with asyncio.timeout(20):
            first = await call.read()
            assert [one.replica_id for one in first.replicas] == ["talker-0", "talker-1"]
            await admin.call("Pause", "talker", mode=ABORT)
            seen: dict[str, int] = {}
            while set(seen.values()) != {link_pb2.PROCESS_STATE_PAUSED} or len(seen) < 2:
                news = await call.read()
                seen |= {one.replica_id: one.state for one in news.replicas}
    finally:
        call.cancel()


async def test_the_command_line_pauses_and_resumes_and_says_what_failed(
    mesh: E2eMesh, admin: Admin
) -> None:
    assert "talker-1" in await mesh.command("pause", "talker", "--mode", "keep")
    assert set((await admin.states("talker")).values()) == {"paused"}
    await mesh.command("resume", "talker")
    await mesh.command("sleep", "talker")
    assert "conflict" in await mesh.command("resume", "talker", code=1)
    await mesh.command("wake", "talker")
    await mesh.command("resume", "talker")
    assert "pools[0]" in await mesh.command("resume", "singer", code=1)
