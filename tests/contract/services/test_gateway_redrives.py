"""Who gets a request that has lost its orchestrator, and when it is given up."""

import asyncio

import pytest

from services.gateway.client import ClientPolicy
from stagemesh.api.types.v1 import link_pb2
from stagemesh.outcome import Outcome, error_for
from tests.helpers.counted_requests import (
    HELLO,
    QUICK,
    TOKENS,
    WHOLE,
    check_text_journal,
    count_on,
    opened_at,
    stream_chat,
    until_then,
    words,
)
from tests.helpers.fake_orchestrator import FakeOrchestrator, FakeRequest
from tests.helpers.running_gateway import running_gateway


async def test_without_any_orchestrator_a_request_ends_typed_after_redrive_s() -> None:
    fakes = [FakeOrchestrator(script=until_then(9, lambda _: None)) for _ in range(2)]
    async with running_gateway(*fakes, client=QUICK) as mesh, asyncio.TaskGroup() as group:
        streamed = group.create_task(stream_chat(mesh))
        whole = group.create_task(
            mesh.http.post("/v1/chat/completions", json={"model": "echo", "messages": HELLO})
        )
        for fake in fakes:
            await fake.until(lambda fake=fake: bool(fake.requests))  # type: ignore[misc]
            await fake.requests[0].settled()
        loop = asyncio.get_running_loop()
        begun_s = loop.time()
        for fake in fakes:
            await fake.stop()
        text, finishes, error = await streamed
        answer = await whole
        took_s = loop.time() - begun_s
        assert (await mesh.http.get("/ready")).json()["inflight"] == 0
    assert words(9).startswith(text)
    assert (finishes, error["code"]) == ([], "link_lost")
    assert (answer.status_code, answer.json()["error"]["code"]) == (502, "link_lost")
    assert 0.5 < took_s < 3


async def test_a_request_that_is_handed_back_goes_on_elsewhere_and_that_costs_nothing() -> None:
    fakes = [FakeOrchestrator(), FakeOrchestrator()]

    async def ten_more(asked: FakeRequest) -> None:
        """Ten tokens each, more often than owners may be lost."""
        end = min(asked.next() + 10, TOKENS)
        while (at := asked.next()) < end:
            asked.text(f" w{at}", ids=[at])
        await asked.settled()
        if end < TOKENS:
            asked.hand_back()
        else:
            asked.end()
            await asked.settled()
            asked.complete()

    fakes[0].script = fakes[1].script = ten_more
    async with running_gateway(*fakes) as mesh:
        assert await stream_chat(mesh) == WHOLE
    asked = opened_at(*fakes)
    assert [one.epoch for one in asked] == list(range(1, 13))
    assert [check_text_journal(one) for one in asked] == list(range(0, TOKENS, 10))
    assert [one in fakes[0].requests for one in asked[::2]] in ([True] * 6, [False] * 6)


async def test_what_one_revision_made_goes_to_no_orchestrator_with_another() -> None:
    fakes = [FakeOrchestrator() for _ in range(3)]
    fakes[2].revision, fakes[2].state = "r2", link_pb2.PROCESS_STATE_DRAINING

    async def lost(asked: FakeRequest) -> None:
        # Now the one with another revision could take it, and has as little to do.
        fakes[2].state = link_pb2.PROCESS_STATE_READY
        fakes[2].news()
        (owner,) = [fake for fake in fakes if asked in fake.requests]
        await owner.stop()

    for fake in fakes:
        fake.script = until_then(30, lost)
    async with running_gateway(*fakes) as mesh:
        assert await stream_chat(mesh) == WHOLE
    asked = opened_at(*fakes)
    assert [one.epoch for one in asked] == [1, 2]
    assert [one.journal.revision for one in asked] == ["", "r1"]
    assert not fakes[2].requests


async def test_what_no_orchestrator_left_can_go_on_with_ends_typed() -> None:
    fakes = [FakeOrchestrator() for _ in range(2)]
    fakes[1].revision = "r2"

    async def lost(asked: FakeRequest) -> None:
        (owner,) = [fake for fake in fakes if asked in fake.requests]
        await owner.stop()

    for fake in fakes:
        fake.script = until_then(30, lost)
    async with running_gateway(*fakes, client=QUICK) as mesh:
        text, finishes, error = await stream_chat(mesh)
    assert (text, finishes, error["code"]) == (words(30), [], "link_lost")
    assert len(opened_at(*fakes)) == 1


async def test_with_nowhere_to_go_a_request_that_was_handed_back_ends_draining() -> None:
    fake = FakeOrchestrator()

    def drain(asked: FakeRequest) -> None:
        fake.go_away()
        asked.hand_back()

    fake.script = until_then(9, drain)
    async with running_gateway(fake, client=QUICK) as mesh:
        text, _, error = await stream_chat(mesh)
    assert (text, error["code"]) == (words(9), "draining")
    assert len(fake.requests) == 1


async def test_a_client_that_goes_while_there_is_no_owner_is_the_end() -> None:
    fake = FakeOrchestrator()

    def vanish(asked: FakeRequest) -> None:
        fake.models.clear()  # Nobody to go on, until it is published again.
        asked.cut()

    fake.script = until_then(9, vanish)
    async with running_gateway(fake) as mesh:
        answer = mesh.http.stream(
            "POST",
            "/v1/chat/completions",
            json={"model": "echo", "messages": HELLO, "stream": True},
        )
        async with answer as raw:
            async for line in raw.aiter_lines():
                if " w8" in line:
                    break
        async with asyncio.timeout(2):
            while (await mesh.http.get("/ready")).json()["inflight"]:
                pass
        await fake.until(lambda: bool(fake.links))
        fake.models.append("echo")
        fake.news()
        fake.script = count_on
        async with asyncio.timeout(5):
            while not (await mesh.http.get("/v1/models")).json()["data"]:
                pass
        assert await stream_chat(mesh) == WHOLE
    assert [asked.epoch for asked in fake.requests] == [1, 1]


async def test_a_lost_owner_of_a_request_that_is_being_aborted_is_its_end() -> None:
    fakes = [FakeOrchestrator(), FakeOrchestrator()]

    async def play(asked: FakeRequest) -> None:
        asked.text(" w0")
        await asked.aborted.wait()
        asked.cut()

    fakes[0].script = fakes[1].script = play
    async with running_gateway(*fakes) as mesh:
        answer = mesh.http.stream(
            "POST",
            "/v1/chat/completions",
            json={"model": "echo", "messages": HELLO, "stream": True},
        )
        async with answer as raw:
            async for line in raw.aiter_lines():
                if " w0" in line:
                    break
        async with asyncio.timeout(2):
            while (await mesh.http.get("/ready")).json()["inflight"]:
                pass
        (asked,) = opened_at(*fakes)
        assert asked.aborted.is_set()


async def test_an_answer_that_outgrew_its_journal_ends_typed_when_its_owner_is_lost() -> None:
    fakes = [FakeOrchestrator(), FakeOrchestrator()]
    fakes[0].script = fakes[1].script = until_then(100, FakeRequest.cut)
    policy = ClientPolicy(journal_bytes_max=500)
    async with running_gateway(*fakes, client=policy) as mesh:
        text, _, error = await stream_chat(mesh)
    assert (text, error["code"]) == (words(100), "link_lost")
    assert len(opened_at(*fakes)) == 1


async def test_owners_are_lost_no_more_often_than_epochs_max() -> None:
    async def play(asked: FakeRequest) -> None:
        asked.text(f" w{asked.next()}")
        await asked.settled()
        asked.cut()

    fakes = [FakeOrchestrator(script=play), FakeOrchestrator(script=play)]
    async with running_gateway(*fakes) as mesh:
        text, _, error = await stream_chat(mesh)
    assert (text, error["code"]) == (words(4), "link_lost")
    assert [asked.epoch for asked in opened_at(*fakes)] == [1, 2, 3, 4]


async def test_a_request_that_its_owner_does_not_know_goes_on() -> None:
    fakes = [FakeOrchestrator(), FakeOrchestrator()]
    fakes[0].script = fakes[1].script = until_then(9, FakeRequest.unknown)
    async with running_gateway(*fakes) as mesh:
        assert await stream_chat(mesh) == WHOLE


@pytest.mark.parametrize("reason", ["queue_full", "draining", "no_replica"])
async def test_a_second_owner_that_refuses_is_followed_by_the_next(reason: str) -> None:
    refused = 0

    async def play(asked: FakeRequest) -> None:
        nonlocal refused
        if refused < 6:
            refused += 1
            asked.fail(error_for(reason), Outcome.REJECTED)
        else:
            await count_on(asked)

    fakes = [FakeOrchestrator() for _ in range(3)]
    for fake in fakes:
        fake.script = until_then(9, FakeRequest.cut, play)
    async with running_gateway(*fakes) as mesh:
        assert await stream_chat(mesh) == WHOLE
    asked = opened_at(*fakes)
    assert [one.epoch for one in asked] == list(range(1, 9))
    assert len({check_text_journal(one) for one in asked[1:]}) == 1


async def test_a_first_owner_that_is_being_stopped_is_followed_by_another_if_there_is() -> None:
    async def refuse(asked: FakeRequest) -> None:
        asked.fail(error_for("draining", retry_after_s=1.0), Outcome.REJECTED)

    fakes = [FakeOrchestrator(script=refuse), FakeOrchestrator(script=refuse)]
    async with running_gateway(*fakes, client=QUICK) as mesh:
        await fakes[0].until(lambda: True)
        fakes[1].script = count_on
        for _ in range(3):
            assert await stream_chat(mesh) == WHOLE
    async with running_gateway(fake := FakeOrchestrator(script=refuse)) as mesh:
        answer = await mesh.http.post(
            "/v1/chat/completions", json={"model": "echo", "messages": HELLO}
        )
    assert (answer.status_code, answer.json()["error"]["code"]) == (429, "draining")
    assert len(fake.requests) == 1
