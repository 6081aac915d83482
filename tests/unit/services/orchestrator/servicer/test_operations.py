"""Calls of operators: each waits for its own answer, and leaves nothing behind."""

import asyncio
from typing import Any

import pytest

from services.orchestrator.core.effects import OPERATORS_LINK, AnswerControl
from services.orchestrator.core.events import ControlAsked, Event
from services.orchestrator.servicer import Operations
from stagemesh.control import Resume
from stagemesh.errors import MeshError
from stagemesh.outcome import error_for


class Waiting:
    """A driver whose core answers when the test says so."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.links: dict[int, Any] = {}

    def connect(self, link: int, outlet: Any) -> None:
        """See `Driver`."""
        self.links[link] = outlet

    def post(self, event: Event) -> None:
        """See `Driver`."""
        assert isinstance(event, ControlAsked)
        self.asked.append(event.call_id)

    def answer(self, call_id: int, reason: str = "") -> None:
        """Answer a call; with a reason it was not made."""
        error = error_for(reason) if reason else None
        self.links[OPERATORS_LINK].perform(AnswerControl(call_id=call_id, error=error))


async def asking(operations: Operations) -> "asyncio.Task[Any]":
    task = asyncio.create_task(operations.call_pools(Resume(), frozenset({"p"}), 1.0))
    await asyncio.sleep(0)
    return task


def made() -> tuple[Waiting, Operations]:
    driver = Waiting()
    operations = Operations(driver, lambda: [])
    operations.attach()
    return driver, operations


async def test_each_call_gets_its_own_answer() -> None:
    driver, operations = made()
    first, second = await asking(operations), await asking(operations)
    driver.answer(driver.asked[1])
    assert await second == []
    assert not first.done()
    driver.answer(driver.asked[0])
    assert await first == []


async def test_a_call_that_is_not_made_raises_its_cause() -> None:
    driver, operations = made()
    call = await asking(operations)
    driver.answer(driver.asked[0], "queue_full")
    with pytest.raises(MeshError, match="may wait"):
        await call


async def test_an_answer_after_its_caller_left_is_dropped() -> None:
    driver, operations = made()
    call = await asking(operations)
    call.cancel()
    driver.answer(driver.asked[0])  # Before the call has noticed.
    await asyncio.wait({call})
    assert call.cancelled()
    driver.answer(driver.asked[0])
    driver.answer(99)
    assert len(operations) == 0


async def test_a_caller_that_left_before_its_answer_leaves_nothing_behind() -> None:
    _, operations = made()
    call = await asking(operations)
    assert len(operations) == 1
    call.cancel()
    await asyncio.wait({call})
    assert len(operations) == 0
