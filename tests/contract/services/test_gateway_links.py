"""Links of the gateway: which orchestrator gets a request, and what becomes of it when one goes."""

import asyncio
import json
from pathlib import Path
from typing import Any

from services.gateway.client import ClientPolicy
from services.gateway.core.redrive import RedrivePolicy
from stagemesh.outcome import Outcome, Terminal
from tests.helpers.fake_orchestrator import FakeOrchestrator, FakeRequest, orchestrator_at
from tests.helpers.loopback import free_address
from tests.helpers.running_gateway import RunningGateway, running_gateway

HELLO: Any = [{"role": "user", "content": "Hi"}]


async def _wait(asked: FakeRequest) -> None:
    await asked.aborted.wait()
    asked.terminal(Terminal(outcome=Outcome.CANCELLED))


async def _status(mesh: RunningGateway, model: str = "echo") -> tuple[int, str]:
    answer = await mesh.http.post("/v1/chat/completions", json={"model": model, "messages": HELLO})
    code = "" if answer.status_code == 200 else answer.json()["error"]["code"]
    return answer.status_code, code


async def test_without_an_orchestrator_the_gateway_is_live_not_ready_and_answers_503() -> None:
    async with running_gateway() as mesh:
        assert (await mesh.http.get("/health")).status_code == 200
        assert (await mesh.http.get("/ready")).status_code == 503
        assert (await mesh.http.get("/v1/models")).json() == {"object": "list", "data": []}
        assert await _status(mesh) == (503, "no_orchestrator")


async def test_the_models_of_all_orchestrators_are_listed_and_shown() -> None:
    fakes = FakeOrchestrator(["echo", "org/talk"]), FakeOrchestrator(["echo", "paint"])
    async with running_gateway(*fakes) as mesh:
        listed = await mesh.openai.models.list()
        names = [model.id for model in listed.data]
        shown = await mesh.openai.models.retrieve("org/talk")
        missing = await mesh.http.get("/v1/models/none")
    assert names == ["echo", "org/talk", "paint"]
    assert (shown.id, shown.object) == ("org/talk", "model")
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "model_not_found")


async def test_one_model_that_can_be_served_is_enough_to_be_ready() -> None:
    fake = FakeOrchestrator(["echo", "talk"])
    fake.unready = {"talk"}
    async with running_gateway(fake) as mesh:
        listed = (await mesh.http.get("/v1/models")).json()["data"]
        assert {model["id"]: model["ready"] for model in listed} == {"echo": True, "talk": False}
        assert (await mesh.http.get("/v1/models/talk")).json()["ready"] is False
        assert (await mesh.http.get("/ready")).status_code == 200
        fake.unready.add("echo")
        fake.news()
        async with asyncio.timeout(5):
            # A probe has no way to be told of a change.
            while (await mesh.http.get("/ready")).status_code == 200:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        # It is live all the same, and what is asked of it waits for a replica at the orchestrator.
        assert (await mesh.http.get("/health")).status_code == 200
        assert (await mesh.http.get("/ready")).json()["links"] == 1


async def test_a_model_that_nobody_has_is_not_found() -> None:
    async with running_gateway(FakeOrchestrator()) as mesh:
        assert await _status(mesh, "gpt-5") == (404, "model_not_found")


async def test_a_request_goes_where_the_model_is_and_where_fewest_are_open() -> None:
    fakes = [FakeOrchestrator(["echo"], _wait) for _ in range(2)]
    fakes[1].models.append("talk")
    async with running_gateway(*fakes) as mesh, asyncio.TaskGroup() as group:
        asking = [group.create_task(_status(mesh)) for _ in range(6)]
        for fake in fakes:
            await fake.until(lambda fake=fake: len(fake.requests) == 3)  # type: ignore[misc]
        asking.append(group.create_task(_status(mesh, "talk")))
        await fakes[1].until(lambda: len(fakes[1].requests) == 4)
        for asked in (*fakes[0].requests, *fakes[1].requests):
            asked.terminal(Terminal(outcome=Outcome.CANCELLED))
            asked.aborted.set()
    assert [task.result()[0] for task in asking] == [499] * 7


async def test_a_lost_link_ends_its_requests_typed_and_only_them() -> None:
    fakes = [FakeOrchestrator(["echo"], _wait), FakeOrchestrator(["other"], _wait)]
    policy = ClientPolicy(redrive=RedrivePolicy(redrive_s=0.2))
    async with (
        running_gateway(*fakes, client=policy) as mesh,
        asyncio.TaskGroup() as group,
    ):
        lost = group.create_task(_status(mesh))
        kept = group.create_task(_status(mesh, "other"))
        await fakes[0].until(lambda: bool(fakes[0].requests))
        await fakes[1].until(lambda: bool(fakes[1].requests))
        fakes[0].models.clear()
        fakes[0].cut()
        assert await lost == (502, "link_lost")
        assert not kept.done()
        fakes[1].requests[0].terminal(Terminal(outcome=Outcome.CANCELLED))
        assert (await kept)[0] == 499
        fakes[1].requests[0].aborted.set()


async def test_a_link_that_was_lost_is_dialled_again() -> None:
    fake = FakeOrchestrator()
    async with running_gateway(fake) as mesh:
        first = next(iter(fake.links))
        fake.links[first].close("test")
        await fake.until(lambda: bool(fake.links) and first not in fake.links)
        async with asyncio.timeout(5):
            while await _status(mesh) != (200, ""):
                pass


async def test_an_orchestrator_that_goes_away_gets_nothing_new_and_finishes_what_it_has() -> None:
    fakes = [FakeOrchestrator(), FakeOrchestrator()]
    go_on = asyncio.Event()

    async def play(asked: FakeRequest) -> None:
        await go_on.wait()
        asked.end()
        asked.complete()

    fakes[0].script = fakes[1].script = play
    async with running_gateway(*fakes) as mesh, asyncio.TaskGroup() as group:
        early = [group.create_task(_status(mesh)) for _ in range(2)]
        for fake in fakes:
            await fake.until(lambda fake=fake: len(fake.requests) == 1)  # type: ignore[misc]
        fakes[0].go_away()
        fakes[0].requests[0].text("news travel in order")
        go_on.set()
        assert [await task for task in early] == [(200, ""), (200, "")]
        assert [await _status(mesh) for _ in range(4)] == [(200, "")] * 4
        assert (len(fakes[0].requests), len(fakes[1].requests)) == (1, 5)
        fakes[1].go_away()
        async with asyncio.timeout(5):
            while (await mesh.http.get("/ready")).status_code == 200:
                pass
        assert await _status(mesh) == (429, "draining")


async def test_new_models_are_known_as_soon_as_they_are_published() -> None:
    fake = FakeOrchestrator()
    async with running_gateway(fake) as mesh:
        assert (await _status(mesh, "talk"))[0] == 404
        fake.models.append("talk")
        fake.news()
        async with asyncio.timeout(5):
            while await _status(mesh, "talk") != (200, ""):
                pass


async def test_discovery_adds_orchestrators_and_retires_those_it_no_longer_names(
    tmp_path: Path,
) -> None:
    fakes = [FakeOrchestrator(["a"]), FakeOrchestrator(["b"])]
    addresses = [free_address(), free_address()]
    path = tmp_path / "discovery.json"

    def name(*which: int) -> None:
        found = [{"id": f"o{at}", "address": addresses[at]} for at in which]
        fresh = tmp_path / "fresh.json"
        fresh.write_text(json.dumps({"groups": {"orchestrators": found}}))
        fresh.rename(path)

    name(0)
    async with (
        orchestrator_at(addresses[0], fakes[0]),
        orchestrator_at(addresses[1], fakes[1]),
        running_gateway(linked=False, discovery=f"file:{path}") as mesh,
    ):
        await fakes[0].until(lambda: bool(fakes[0].links))
        assert not fakes[1].links
        name(1)
        await fakes[1].until(lambda: bool(fakes[1].links))
        await fakes[0].until(lambda: not fakes[0].links)
        async with asyncio.timeout(5):
            while (await mesh.http.get("/ready")).status_code != 200:
                pass
        assert await _status(mesh, "b") == (200, "")
        assert (await _status(mesh, "a"))[0] == 404


async def test_a_drain_lets_streams_finish_and_takes_nothing_new() -> None:
    go_on = asyncio.Event()

    async def play(asked: FakeRequest) -> None:
        asked.text("before")
        await go_on.wait()
        asked.text(" after")
        asked.end()
        asked.complete()

    fake = FakeOrchestrator(script=play)
    async with running_gateway(fake, drain_s=10.0) as mesh:
        stream = await mesh.openai.chat.completions.create(
            model="echo", messages=HELLO, stream=True
        )
        text = ""
        async for chunk in stream:
            text += chunk.choices[0].delta.content or ""
            if text == "before" and not go_on.is_set():
                mesh.gateway.stop()
                go_on.set()
    assert text == "before after"


async def test_what_is_open_when_the_drain_is_over_ends_typed() -> None:
    async def play(asked: FakeRequest) -> None:
        asked.text("before")
        await asked.aborted.wait()

    fake = FakeOrchestrator(script=play)
    lines = []
    async with (
        running_gateway(fake, drain_s=0.2) as mesh,
        mesh.http.stream(
            "POST",
            "/v1/chat/completions",
            json={"model": "echo", "messages": HELLO, "stream": True},
        ) as raw,
    ):
        mesh.gateway.stop()
        async for line in raw.aiter_lines():
            lines += [json.loads(line[6:])] if line else []
        async with asyncio.timeout(5):
            await fake.requests[0].aborted.wait()
    assert lines[-1]["error"]["code"] == "draining"
