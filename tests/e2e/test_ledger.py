"""Requests by their id: shown, explained, listed and aborted, whichever orchestrator is asked."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest

from stagemesh.api.orchestrator.v1 import orchestrator_service_pb2 as pb
from stagemesh.api.orchestrator.v1 import orchestrator_service_pb2_grpc
from stagemesh.api.types.v1 import outcome_pb2
from tests.helpers.e2e_mesh import ROOT, E2eMesh, running_mesh, until
from tests.helpers.e2e_scripts import script, user, words
from tests.helpers.e2e_small import ECHO_AND_TALK, one_mesh

Stub = orchestrator_service_pb2_grpc.OrchestratorServiceStub


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ledger")


@pytest.fixture(scope="module")
def mesh(cache: Path) -> Iterator[E2eMesh]:
    """Two orchestrators and two replicas of each pool."""
    file = one_mesh(cache, ECHO_AND_TALK, replicas=2)
    environment = {"XDG_CACHE_HOME": str(cache / "cache")}
    with running_mesh(file, cache, "--orchestrators", "2", environment=environment) as mesh:
        yield mesh


@pytest.fixture
async def http(mesh: E2eMesh) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=mesh.url, timeout=60) as client:
        yield client


@asynccontextmanager
async def stubs(mesh: E2eMesh) -> AsyncIterator[list[Stub]]:
    """A stub for each orchestrator."""
    addresses = [one["address"] for one in mesh.processes() if one["role"] == "orchestrator"]
    channels = [grpc.aio.insecure_channel(address) for address in addresses]
    try:
        yield [Stub(channel) for channel in channels]
    finally:
        for channel in channels:
            await channel.close()


def explain(mesh: E2eMesh, cache: Path, request_id: str, *flags: str) -> str:
    command = [sys.executable, "-m", "stagemesh.cli", "explain", request_id, "--http", mesh.http]
    ran = subprocess.run(
        [*command, *flags], capture_output=True, text=True, check=True, timeout=30, cwd=ROOT,
        env={**os.environ, "XDG_CACHE_HOME": str(cache / "cache")},
    )  # fmt: skip
    return ran.stdout


async def test_a_request_that_ended_is_explained_with_every_stage(
    mesh: E2eMesh, cache: Path, http: httpx.AsyncClient
) -> None:
    body = {
        "model": "talk",
        "modalities": ["text", "audio"],
        "audio": {"voice": "a", "format": "pcm16"},
        "messages": user(tokens=5, each_ms=20),
    }
    answer = await http.post("/v1/chat/completions", json=body)
    assert answer.status_code == 200, answer.text
    request_id = answer.headers["x-request-id"]

    [story] = json.loads(explain(mesh, cache, request_id, "--json"))
    assert (story["state"], story["outcome"], story["epoch"]) == ("DONE", "completed", 1)
    times = {one["stage"]: one for one in story["stages"]}
    assert set(times) == {"thinker", "talker"}
    assert times["thinker"]["compute_s"] >= 0.08, "five tokens, 20 ms apart"
    assert times["thinker"]["total_s"] >= times["thinker"]["compute_s"]
    kinds = [one["kind"] for one in story["happenings"]]
    assert kinds[0] == "opened"
    assert kinds[-1] == "done"
    assert [one["at_s"] for one in story["happenings"]] == sorted(
        one["at_s"] for one in story["happenings"]
    )

    text = explain(mesh, cache, request_id)
    for word in (request_id, "thinker", "talker", "first output for the client", "over: completed"):
        assert word in text


async def test_what_nobody_knows_cannot_be_explained(mesh: E2eMesh, cache: Path) -> None:
    with pytest.raises(subprocess.CalledProcessError) as caught:
        await asyncio.to_thread(explain, mesh, cache, "req_nobody")
    assert "no orchestrator knows of req_nobody" in caught.value.stderr


async def test_a_request_of_the_sdk_is_aborted_at_whichever_orchestrator(
    mesh: E2eMesh, http: httpx.AsyncClient
) -> None:
    body = {"model": "echo", "stream": True, "messages": user(tokens=10_000, each_ms=5)}
    async with stubs(mesh) as (first, second):
        for stub in (first, second):
            async with http.stream("POST", "/v1/chat/completions", json=body) as answer:
                request_id = answer.headers["x-request-id"]
                lines = aiter(answer.aiter_lines())
                await anext(lines)
                told = await stub.Abort(pb.AbortRequest(request_id=request_id), timeout=5)
                assert (told.aborted, told.state) == (True, "DONE")
                assert list(told.unconfirmed_stages) == list(told.unanswered) == []
                rest = [line async for line in lines if line]
            error = json.loads(rest[-1].removeprefix("data: "))["error"]
            assert error["code"] == "aborted"
            for one in (first, second):
                shown = await one.GetRequest(pb.GetRequestRequest(request_id=request_id))
                assert shown.terminal.outcome == outcome_pb2.OUTCOME_CANCELLED
                listed = await one.ListRequests(pb.ListRequestsRequest(state="DONE", page_size=5))
                assert request_id in [line.request_id for line in listed.requests]
    await mesh.settled(3)


async def test_a_stage_that_ignores_an_abort_is_named_in_time(mesh: E2eMesh) -> None:
    request = _asked(script(tokens=3_000, each_ms=1, ignore_abort=True))
    async with stubs(mesh) as (first, second):
        call = first.Generate(request)
        request_id = str(dict(await call.initial_metadata() or ())["x-request-id"])
        responses = aiter(call)
        await anext(responses)
        told = await second.Abort(pb.AbortRequest(request_id=request_id), timeout=1.5)
        assert told.aborted
        assert list(told.unconfirmed_stages) == ["thinker"]
        with pytest.raises(grpc.aio.AioRpcError):
            async for _ in responses:
                pass
    await mesh.settled(10)


async def test_an_abort_before_the_first_output_frees_the_slot_within_a_second(
    mesh: E2eMesh,
) -> None:
    async with stubs(mesh) as (first, second):
        call = first.Generate(_asked(script(tokens=2, first_ms=30_000)))
        request_id = str(dict(await call.initial_metadata() or ())["x-request-id"])

        async def submitted() -> bool:
            shown = await second.GetRequest(pb.GetRequestRequest(request_id=request_id))
            return any(one.state == "SUBMITTED" for one in shown.attempts)

        await until(submitted, bool, 5.0)
        told = await second.Abort(pb.AbortRequest(request_id=request_id), timeout=1.5)
        assert (told.aborted, told.state) == (True, "DONE")
        shown = await first.GetRequest(pb.GetRequestRequest(request_id=request_id))
        assert pb.REQUEST_EVENT_KIND_STREAMING not in [event.kind for event in shown.events]
    await mesh.settled(2)


async def test_a_call_that_is_left_before_its_first_output_stops_the_stage(mesh: E2eMesh) -> None:
    async with stubs(mesh) as (first, _):
        call = first.Generate(_asked(script(tokens=2, first_ms=30_000)))
        await call.initial_metadata()
        call.cancel()
    await mesh.settled(2)


async def test_an_orchestrator_writes_its_last_inputs_down_when_asked(
    mesh: E2eMesh, cache: Path, http: httpx.AsyncClient
) -> None:
    body: dict[str, Any] = {"model": "echo", "messages": user("a secret ", tokens=3)}
    answer = await http.post("/v1/chat/completions", json=body)
    assert answer.json()["choices"][0]["message"]["content"] == words(3)
    path = mesh.folder / "logs" / "orchestrator-0-asked.dump"
    os.kill(mesh.pids()["orchestrator-0"], signal.SIGUSR1)

    async def written() -> bool:
        return path.exists()

    await until(written, bool, 10.0)
    assert b"a secret" not in path.read_bytes()
    command = [sys.executable, "-m", "tools.replay", str(path)]
    command += ["--mesh", str(cache / "mesh.yaml")]
    ran = await asyncio.to_thread(
        subprocess.run, command, capture_output=True, text=True, check=False, timeout=60, cwd=ROOT
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "0 things left out" in ran.stdout


async def test_the_story_of_a_request_whose_owner_died_is_told_by_the_next(
    mesh: E2eMesh, cache: Path, http: httpx.AsyncClient
) -> None:
    body = {"model": "echo", "stream": True, "messages": user(tokens=150, each_ms=20)}
    async with http.stream("POST", "/v1/chat/completions", json=body) as answer:
        request_id = answer.headers["x-request-id"]
        lines = aiter(answer.aiter_lines())
        await anext(lines)
        [before] = json.loads(explain(mesh, cache, request_id, "--json"))
        mesh.kill(before["orchestrator_id"])
        rest = [line async for line in lines if line]
    assert rest[-1] == "data: [DONE]"
    story = json.loads(explain(mesh, cache, request_id, "--json"))[0]
    assert story["epoch"] == 2
    assert story["orchestrator_id"] != before["orchestrator_id"]
    assert (story["state"], story["outcome"]) == ("DONE", "completed")
    assert "redriven" in [one["kind"] for one in story["happenings"]]


def _asked(text: str) -> pb.GenerateRequest:
    request = pb.GenerateRequest()
    request.request.model = "echo"
    request.request.messages.add(role="user").parts.add(text=text)
    return request
