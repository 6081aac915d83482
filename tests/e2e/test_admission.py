import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import openai
import pytest

from tests.helpers.e2e_mesh import E2eMesh, running_mesh, until
from tests.helpers.e2e_scripts import user, words
from tests.helpers.e2e_small import NARROW, one_mesh
from tests.helpers.e2e_sse import Heard, hear

CHAT = "/v1/chat/completions"
OPEN = "stagemesh_orchestrator_requests_open"


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[E2eMesh]:
    folder = tmp_path_factory.mktemp("narrow")
    environment = {"XDG_CACHE_HOME": str(folder / "cache")}
    file = one_mesh(folder, NARROW, replicas=1)
    with running_mesh(file, folder, environment=environment) as mesh:
        yield mesh


@pytest.fixture
async def http(mesh: E2eMesh) -> AsyncIterator[httpx.AsyncClient]:
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=mesh.url, timeout=60, limits=limits) as client:
        yield client


async def opened(mesh: E2eMesh, count: int) -> None:
    async def now() -> float:
        return (await mesh.metrics("orchestrator-0")).get(OPEN, 0.0)

    await until(now, lambda open_now: open_now == count, 5)


async def test_beyond_its_limits_a_pipeline_refuses_at_once_and_takes_the_next_when_one_goes(
    mesh: E2eMesh, http: httpx.AsyncClient
) -> None:
    body = {"model": "narrow", "messages": user(tokens=150, each_ms=10)}
    heard = [Heard() for _ in range(3)]
    async with asyncio.TaskGroup() as tasks:
        for one in heard:
            tasks.create_task(hear(http, body, heard=one))
        await opened(mesh, 3)
        assert await mesh.inflight("thinker-0") == [2]
        begun_s = time.monotonic()
        refused = await http.post(CHAT, json=body)
        assert time.monotonic() - begun_s < 0.5
        error = refused.json()["error"]
        assert (refused.status_code, error["code"]) == (429, "queue_full")
        assert error["type"] == "overloaded_error"
        assert int(refused.headers["retry-after"]) >= 1
        assert refused.headers["x-stagemesh-not-admitted"] == "1"
        # The pool has room for others all the while.
        (await hear(http, {"model": "wide", "messages": user(tokens=3)})).complete(words(3))
    for one in heard:
        one.complete(words(150))
    (await hear(http, {"model": "narrow", "messages": user(tokens=3)})).complete(words(3))
    await mesh.settled()


async def test_of_a_burst_as_many_are_taken_as_there_is_room_for_and_the_rest_is_told_at_once(
    mesh: E2eMesh, http: httpx.AsyncClient
) -> None:
    """A hundred at once, some for several choices, where two may run and one may wait."""
    bodies = [
        {"model": "narrow", "messages": user(tokens=100, each_ms=20), "n": 4 if at % 5 == 0 else 1}
        for at in range(100)
    ]
    begun_s = time.monotonic()
    refused_s: list[float] = []

    async def ask(body: dict[str, Any]) -> httpx.Response:
        answer = await http.post(CHAT, json=body)
        if answer.status_code == 429:
            refused_s.append(time.monotonic() - begun_s)
        return answer

    answers = await asyncio.gather(*map(ask, bodies))
    taken = [answer for answer in answers if answer.status_code == 200]
    assert len(taken) == 3
    for answer in answers:
        if answer not in taken:
            assert (answer.status_code, answer.json()["error"]["code"]) == (429, "queue_full")
            assert int(answer.headers["retry-after"]) >= 1
            assert answer.headers["x-stagemesh-not-admitted"] == "1"
    # Long before the first of those that were taken is done.
    assert max(refused_s) < 2
    (await hear(http, {"model": "narrow", "messages": user(tokens=3)})).complete(words(3))
    await mesh.settled()


async def test_the_sdk_gets_in_by_itself_when_it_may_try_again(mesh: E2eMesh) -> None:
    async with mesh.openai(max_retries=4) as client:
        answers = await asyncio.gather(
            *(
                client.chat.completions.create(model="narrow", messages=user(tokens=20, each_ms=10))
                for _ in range(6)
            )
        )
    assert [answer.choices[0].message.content for answer in answers] == [words(20)] * 6
    async with mesh.openai(max_retries=0) as client:
        with pytest.raises(openai.RateLimitError):
            await asyncio.gather(
                *(
                    client.chat.completions.create(
                        model="narrow", messages=user(tokens=20, each_ms=10)
                    )
                    for _ in range(6)
                )
            )
    await mesh.settled()


async def test_who_waits_and_leaves_makes_room(mesh: E2eMesh, http: httpx.AsyncClient) -> None:
    body = {"model": "narrow", "messages": user(tokens=100, each_ms=10)}
    running = [asyncio.create_task(hear(http, body)) for _ in range(2)]
    await opened(mesh, 2)
    reader, writer = await asyncio.open_connection("127.0.0.1", mesh.http_port)
    del reader
    data = b'{"model":"narrow","messages":[{"role":"user","content":"x"}]}'
    writer.write(
        b"POST %b HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n%b"
        % (CHAT.encode(), len(data), data)
    )
    await opened(mesh, 3)
    writer.close()
    await opened(mesh, 2)
    waits = await http.post(CHAT, json={"model": "narrow", "messages": user(tokens=3)})
    assert waits.json()["choices"][0]["message"]["content"] == words(3)
    for one in await asyncio.gather(*running):
        one.complete(words(100))
    await mesh.settled()


async def test_more_requests_than_engine_slots_wait_their_turn_and_all_are_served(
    mesh: E2eMesh, http: httpx.AsyncClient
) -> None:
    body = {"model": "wide", "messages": user(tokens=10, each_ms=1)}
    for one in await asyncio.gather(*(hear(http, body) for _ in range(200))):
        one.complete(words(10))
    await mesh.settled()


async def test_more_choices_than_engine_slots_are_served_too(
    mesh: E2eMesh, http: httpx.AsyncClient
) -> None:
    body = {"model": "wide", "messages": user(tokens=10, each_ms=1), "n": 16}
    heard = await hear(http, body)
    assert [heard.text(choice) for choice in range(16)] == [words(10)] * 16
    assert heard.dones == 1
    await mesh.settled()


async def test_who_waits_too_long_is_told_that_the_time_is_up(
    mesh: E2eMesh, http: httpx.AsyncClient
) -> None:
    """All slots are taken for longer than the pipeline's own deadline."""
    long = {"model": "wide", "messages": user(tokens=1_000, each_ms=10)}
    late = {"model": "wide", "messages": user(tokens=3)}
    async with asyncio.TaskGroup() as tasks:
        holding = [tasks.create_task(hear(http, long)) for _ in range(4)]
        await opened(mesh, 4)
        begun_s = time.monotonic()
        hasty = await http.post(CHAT, json=late, headers={"x-request-timeout": "0.3"})
        assert 0.25 < time.monotonic() - begun_s < 1
        assert (hasty.status_code, hasty.json()["error"]["code"]) == (504, "deadline_exceeded")
    for task in holding:
        one = task.result()
        assert (one.error["code"], one.error["stage"]) == ("deadline_exceeded", "thinker")
        assert words(1_000).startswith(one.text())
    await mesh.settled()
