"""Clients that call their requests by one name: it is a label, and nothing is found by it."""

import asyncio
from typing import Any

from stagemesh.outcome import Outcome, Terminal, error_for
from tests.helpers.fake_orchestrator import FakeOrchestrator, FakeRequest
from tests.helpers.running_gateway import running_gateway

CHAT = "/v1/chat/completions"
LABEL = {"X-Request-Id": "the-same"}


def asking(text: str) -> dict[str, Any]:
    return {"model": "echo", "messages": [{"role": "user", "content": text}]}


async def test_two_requests_of_one_label_keep_apart_and_end_apart() -> None:
    go_on = asyncio.Event()

    async def play(asked: FakeRequest) -> None:
        wait = {asyncio.create_task(event.wait()) for event in (asked.aborted, go_on)}
        _, waiting = await asyncio.wait(wait, return_when=asyncio.FIRST_COMPLETED)
        for task in waiting:
            task.cancel()
        if asked.aborted.is_set():
            asked.terminal(Terminal(outcome=Outcome.CANCELLED, error=error_for("aborted")))
            return
        (part,) = asked.request.messages[0].parts
        asked.text(getattr(part, "text", ""))
        asked.end()
        asked.complete()

    fake = FakeOrchestrator(script=play)
    async with running_gateway(fake) as mesh, asyncio.TaskGroup() as group:
        asked = []
        for text in ("first", "second", "third"):
            post = mesh.http.post(CHAT, json=asking(text), headers=LABEL)
            asked.append(group.create_task(post))
            await fake.until(lambda: len(fake.requests) == len(asked))
        asked[1].cancel()
        async with asyncio.timeout(1):
            await fake.requests[1].aborted.wait()
        go_on.set()
        answers = [await asked[0], await asked[2]]
    told = [answer.json()["choices"][0]["message"]["content"] for answer in answers]
    assert told == ["first", "third"]
    assert [one.aborted.is_set() for one in fake.requests] == [False, True, False]
    assert [one.request.label for one in fake.requests] == ["the-same"] * 3
    assert len({one.request_id for one in fake.requests}) == 3
