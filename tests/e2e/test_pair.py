"""A prefill that hands over to a decoder, companions, and constraints, whoever dies."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest

from tests.helpers.e2e_mesh import E2eMesh, running_mesh, until
from tests.helpers.e2e_scripts import script, user, words
from tests.helpers.e2e_small import PAIR_AND_PAINT, one_mesh
from tests.helpers.e2e_sse import Heard, hear

CHAT = "/v1/chat/completions"
STATE = 300_000
"""Bytes that are handed over: by a handle, since they are too many to travel inline."""


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[E2eMesh]:
    folder = tmp_path_factory.mktemp("pair")
    environment = {"XDG_CACHE_HOME": str(folder / "cache")}
    file = one_mesh(folder, PAIR_AND_PAINT, replicas=2)
    with running_mesh(file, folder, environment=environment) as mesh:
        yield mesh


@pytest.fixture
async def http(mesh: E2eMesh) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=mesh.url, timeout=60) as client:
        yield client


def paired(*, tokens: int, each_ms: float = 0, first_ms: float = 0) -> dict[str, Any]:
    prefill = {"tokens": 50, "first_ms": first_ms, "payload_bytes": STATE}
    decode = {"tokens": tokens, "each_ms": each_ms}
    return {"model": "pair", "messages": user(prefill=prefill, decode=decode)}


async def busy(mesh: E2eMesh, pool: str) -> str:
    """Wait until a replica of a pool has an attempt; give its name."""
    names = [f"{pool}-0", f"{pool}-1"]
    counts = await until(lambda: mesh.inflight(*names), lambda now: max(now) > 0, 5)
    return names[counts.index(max(counts))]


async def said(heard: Heard, tokens: int) -> None:
    async def count() -> int:
        return heard.text().count(" w")

    await until(count, lambda now: now >= tokens, 20)


async def test_the_decoder_begins_when_the_prefill_has_handed_over(
    mesh: E2eMesh, http: httpx.AsyncClient
) -> None:
    heard = await hear(http, paired(tokens=20, first_ms=300))
    heard.complete(words(20))
    assert heard.first_s > 0.3
    await mesh.settled()


async def test_every_choice_decodes_from_one_prefill_and_minds_the_limit(
    mesh: E2eMesh, http: httpx.AsyncClient
) -> None:
    body = paired(tokens=20) | {"n": 3, "max_completion_tokens": 5}
    answer = (await http.post(CHAT, json=body)).json()
    assert [choice["message"]["content"] for choice in answer["choices"]] == [words(5)] * 3
    assert {choice["finish_reason"] for choice in answer["choices"]} == {"length"}
    await mesh.settled()


async def test_a_decoder_that_dies_is_gone_on_for_with_the_same_state(
    mesh: E2eMesh, http: httpx.AsyncClient
) -> None:
    """BR-140. What was delivered counts for the limit, which holds for both decoders together."""
    body = paired(tokens=150, each_ms=10) | {"max_completion_tokens": 120}
    async with asyncio.TaskGroup() as tasks:
        heard = Heard()
        tasks.create_task(hear(http, body, heard=heard))
        await said(heard, 30)
        name = await busy(mesh, "thinker")
        before = await mesh.one(name)
        mesh.kill(name)
    heard.complete(words(120), "length")
    await mesh.back(name, before)
    await mesh.settled(8)


async def test_a_prefill_that_dies_before_the_handover_is_made_again(
    mesh: E2eMesh, http: httpx.AsyncClient
) -> None:
    async with asyncio.TaskGroup() as tasks:
        heard = Heard()
        tasks.create_task(hear(http, paired(tokens=20, first_ms=1_000), heard=heard))
        name = await busy(mesh, "prefiller")
        before = await mesh.one(name)
        mesh.kill(name)
    heard.complete(words(20))
    await mesh.back(name, before)
    await mesh.settled(8)


async def test_a_prefill_that_dies_after_the_handover_matters_only_if_its_state_is_wanted_again(
    mesh: E2eMesh, http: httpx.AsyncClient
) -> None:
    names = [f"prefiller-{number}" for number in (0, 1)]
    async with asyncio.TaskGroup() as tasks:
        heard = Heard()
        tasks.create_task(hear(http, paired(tokens=300, each_ms=10), heard=heard))
        await said(heard, 30)
        decoder = await busy(mesh, "thinker")
        before = {name: await mesh.one(name) for name in (*names, decoder)}
        for name in names:
            mesh.kill(name)
        await said(heard, 60)
        mesh.kill(decoder)
    heard.complete(words(300))
    for name, one in before.items():
        await mesh.back(name, one)
    await mesh.settled(8)


async def test_a_silent_companion_ends_its_request_by_a_deadline_that_names_it(
    mesh: E2eMesh, http: httpx.AsyncClient
) -> None:
    """BR-046. The client has no timeout of its own, and nothing is left over."""
    silent = {"tokens": 1, "hang_at": 0}
    prompt = script(**{"encoder": {"tokens": 1}, "encoder.negative": silent, "painter": {}})
    body = {"model": "paint", "prompt": prompt}
    answer = await http.post("/v1/images/generations", json=body)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (504, "deadline_exceeded")
    assert error["message"].startswith("Companion negative:")
    await mesh.settled(8)


async def test_a_companion_that_fails_fails_its_request_once_with_its_own_code(
    mesh: E2eMesh, http: httpx.AsyncClient
) -> None:
    """BR-047."""
    for code, status in (("INVALID_ARGUMENT", 400), ("INTERNAL", 500)):
        fails = {"tokens": 2, "each_ms": 10, "fail_at": 1, "fail_code": code}
        slow = {"tokens": 100, "each_ms": 10}
        prompt = script(**{"encoder": slow, "encoder.negative": fails, "painter": {}})
        body = {"model": "paint", "prompt": prompt}
        answer = await http.post("/v1/images/generations", json=body)
        assert answer.status_code == status
        assert answer.json()["error"]["message"].startswith("Companion negative:")
        await mesh.settled()


async def test_constraints_of_a_pipeline_beat_defaults_and_callers(
    mesh: E2eMesh, http: httpx.AsyncClient
) -> None:
    async def answer(**more: Any) -> str:
        body = {"model": "strict", "messages": user(tokens=30), **more}
        text: str = (await http.post(CHAT, json=body)).json()["choices"][0]["message"]["content"]
        return text

    assert await answer() == words(7) + " "
    assert await answer(max_tokens=3, stop="w1") == words(3)
    assert await answer(stage_params={"talker": {"sampling": {"tokens_max": 99}}}) == (
        words(7) + " "
    )
    await mesh.settled()


async def test_a_pool_that_goes_round_gives_each_replica_its_turn(
    mesh: E2eMesh, http: httpx.AsyncClient
) -> None:
    body = {"model": "strict", "messages": user(tokens=3, first_ms=400)}
    async with asyncio.TaskGroup() as tasks:
        for _ in range(8):
            tasks.create_task(http.post(CHAT, json=body))
        names = ("talker-0", "talker-1")
        counts = await until(lambda: mesh.inflight(*names), lambda now: sum(now) == 8, 5)
        assert counts == [4, 4]
    await mesh.settled()
