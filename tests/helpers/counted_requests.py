"""Requests that are told by their tokens: what orchestrators give of them, and what a client has.

Every script goes on where the journal that it was given stands, and every text names its tokens, so
that a doubled, skipped or invented one shows.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, Final

from services.gateway.client import ClientPolicy
from services.gateway.core.redrive import RedrivePolicy
from stagemesh.media import Modality, lane_of
from stagemesh.outcome import Usage
from tests.helpers.fake_orchestrator import FakeOrchestrator, FakeRequest, Script
from tests.helpers.running_gateway import RunningGateway

__all__ = [
    "HELLO",
    "HIDDEN",
    "QUICK",
    "TEXT",
    "TOKENS",
    "WHOLE",
    "check_text_journal",
    "count_on",
    "opened_at",
    "stream_chat",
    "until_then",
    "words",
]

HELLO: Final[Any] = [{"role": "user", "content": "Hi"}]
TEXT: Final = lane_of(0, 0, Modality.TEXT)
HIDDEN: Final = lane_of(7, 0, Modality.TEXT)
TOKENS: Final = 120
QUICK: Final = ClientPolicy(redrive=RedrivePolicy(redrive_s=0.6))
"""The client's patience, for tests in which there is nobody to go on."""


def words(count: int) -> str:
    return "".join(f" w{at}" for at in range(count))


async def count_on(asked: FakeRequest) -> None:
    """Give what is left of a text of `TOKENS` tokens, each with its id."""
    while (at := asked.next()) < TOKENS:
        asked.text(f" w{at}", ids=[at])
        await asyncio.sleep(0)
    asked.end()
    await asked.settled()
    asked.complete(Usage(prompt_tokens=5, completion_tokens=TOKENS))


def until_then(after: int, act: Callable[[FakeRequest], Any], script: Script = count_on) -> Script:
    """Play a script at the first epoch only up to a token; what comes next is `act`'s."""

    async def play(asked: FakeRequest) -> None:
        if asked.epoch > 1:
            await script(asked)
            return
        while (at := asked.next()) < after:
            asked.text(f" w{at}", ids=[at])
            await asyncio.sleep(0)
        await asked.settled()
        result = act(asked)
        if isinstance(result, Awaitable):
            await result

    return play


async def stream_chat(mesh: RunningGateway) -> tuple[str, list[str], dict[str, Any]]:
    """Stream one chat with the official client: its text, its finishes, its error."""
    text, finishes = "", []
    raw = mesh.http.stream(
        "POST", "/v1/chat/completions", json={"model": "echo", "messages": HELLO, "stream": True}
    )
    error: dict[str, Any] = {}
    done = 0
    async with raw as answer:
        if answer.status_code != 200:
            return "", [], json.loads(await answer.aread())["error"]
        async for line in answer.aiter_lines():
            if line == "data: [DONE]":
                done += 1
            elif line:
                event = json.loads(line.removeprefix("data: "))
                error = event.get("error", error)
                for choice in event.get("choices", ()):
                    text += choice["delta"].get("content") or ""
                    finishes += [choice["finish_reason"]] if choice["finish_reason"] else []
    assert done == (not error)
    return text, finishes, error


WHOLE: tuple[str, list[str], dict[str, Any]] = (words(TOKENS), ["stop"], {})


def opened_at(*fakes: FakeOrchestrator) -> list[FakeRequest]:
    """All that were opened, by their epochs."""
    return sorted((asked for fake in fakes for asked in fake.requests), key=lambda one: one.epoch)


def check_text_journal(asked: FakeRequest) -> int:
    """Check that the journal of a counted text is exactly a prefix of it; give how long it is."""
    if not asked.journal:
        return 0
    (lane,) = asked.journal.lanes
    assert (lane.lane, lane.visible_pos) == (TEXT, lane.next)
    assert lane.ids == list(range(lane.next))
    assert "".join(row.text for row in lane.rows) == words(lane.next)
    assert [row.pos for row in lane.rows] == [0, *[r.pos + r.units for r in lane.rows]][:-1]
    assert [token for row in lane.rows for token in row.ids or ()] == lane.ids
    return lane.next
