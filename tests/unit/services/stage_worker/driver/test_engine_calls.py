"""Control calls in the engine's hands: whatever it does, one answer comes."""

import asyncio

import pytest

from services.stage_worker.core.effects import CallEngine
from services.stage_worker.core.events import EngineAnswered, Event
from services.stage_worker.driver.engine_calls import EngineCalls
from stagemesh.control import Answer, ResetCache
from stagemesh.errors import unsupported
from stagemesh.outcome import ErrorInfo
from tests.helpers.hand_engine import HandEngine

CALL = CallEngine(number=3, call=ResetCache())


async def outcome(answer: Answer | Exception) -> ErrorInfo | None:
    engine = HandEngine()
    engine.answers.put_nowait(answer)
    posted: list[Event] = []
    async with asyncio.TaskGroup() as tasks:
        EngineCalls(engine, posted.append, tasks).start(CALL)
    (event,) = posted
    assert isinstance(event, EngineAnswered)
    assert event.number == 3
    assert engine.calls == [CALL.call]
    return event.answer.error


async def test_what_the_engine_answers_is_posted() -> None:
    assert await outcome(Answer()) is None


async def test_what_the_engine_refuses_keeps_its_cause() -> None:
    error = await outcome(unsupported("not now", param="tags"))
    assert error is not None
    assert (error.reason, error.param) == ("unsupported_value", "tags")


@pytest.mark.parametrize("broken", [RuntimeError("secret"), AssertionError(), TimeoutError()])
async def test_an_engine_that_raises_harms_nobody(broken: Exception) -> None:
    error = await outcome(broken)
    assert error is not None
    assert error.reason == "engine_error"
    assert "secret" not in error.message


async def test_what_is_under_way_is_given_up_at_the_end() -> None:
    posted: list[Event] = []
    async with asyncio.TaskGroup() as tasks:
        calls = EngineCalls(HandEngine(), posted.append, tasks)
        calls.start(CALL)
        await asyncio.sleep(0)
        calls.close()
    assert posted == []
