"""The body of `Converse`, without a server."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from services.orchestrator.core.effects import AnswerInteraction, EndRequest
from services.orchestrator.core.events import (
    AbortAsked,
    InputsAppended,
    InteractAsked,
    Opened,
)
from services.orchestrator.servicer import Calls, Conversations
from services.orchestrator.servicer.calls import ANSWERS_MAX, CALLS_LINK
from services.orchestrator.servicer.converse import PIECE_CHARS_MAX
from stagemesh.api.orchestrator.v1 import orchestrator_service_pb2
from stagemesh.api.types.v1 import media_pb2, outcome_pb2, request_pb2
from stagemesh.link.core import Row
from stagemesh.media import AUDIO_PCM, INLINE_BYTES_MAX
from stagemesh.outcome import COMPLETED, Outcome, Terminal, error_for
from tests.helpers.orchestrator_mesh import MESH
from tests.helpers.scripted_core import ScriptedCore, drive
from tests.helpers.servicer_context import Context, Ended, Shelf

Step = orchestrator_service_pb2.ConverseRequest
Append = orchestrator_service_pb2.Append

OPEN = Step(open=request_pb2.Request(model="echo"))
SEGMENT_END = Step(segment_end=orchestrator_service_pb2.SegmentEnd())
CLOSE = Step(close=orchestrator_service_pb2.CloseInput())


def text(said: str) -> Step:
    return Step(append=Append(text=said))


def audio(size: int, channels: int = 1) -> Step:
    body = media_pb2.Body(inline=b"x" * size, media_type=AUDIO_PCM, channels=channels)
    return Step(append=Append(audio=body))


class Talk:
    """One call, of which the core ends the request when its input ends or is aborted."""

    def __init__(self) -> None:
        self.core = ScriptedCore(self._answer)
        self.context = Context()
        calls = Calls(drive(self.core))
        calls.attach()
        shelf = Shelf()
        self.conversations = Conversations(MESH, calls, shelf, shelf)
        self.responses: list[orchestrator_service_pb2.ConverseResponse] = []

    @staticmethod
    def _answer(event: object) -> list[Any]:
        aborted = Terminal(outcome=Outcome.CANCELLED, error=error_for("aborted"))
        if isinstance(event, AbortAsked):
            return [EndRequest(link=CALLS_LINK, slot=1, request_id="r", terminal=aborted)]
        if isinstance(event, InputsAppended) and event.rows[0].end is not None:
            return [EndRequest(link=CALLS_LINK, slot=1, request_id="r", terminal=COMPLETED)]
        return []

    async def run(self, *steps: Step) -> "Talk":
        """Serve a client that says all this and then closes its side."""

        async def said() -> AsyncIterator[Step]:
            for step in steps:
                yield step

        context: Any = self.context
        try:
            async with asyncio.timeout(5):
                async for response in self.conversations.run(said(), context):
                    self.responses.append(response)
        except Ended:
            pass
        return self

    @property
    def prompts(self) -> list[tuple[str, str]]:
        """The changes of the prompt that the core was given."""
        asked = [event for event in self.core.events if isinstance(event, InteractAsked)]
        return [(event.interaction_id, event.text) for event in asked]

    @property
    def pieces(self) -> list[Row]:
        """What the core was given."""
        appended = [event for event in self.core.events if isinstance(event, InputsAppended)]
        return [row for event in appended for row in event.rows]

    @property
    def error(self) -> outcome_pb2.ErrorInfo:
        """The cause in the terminal, which came once and last."""
        assert [one.HasField("terminal") for one in self.responses][-1:] == [True]
        return self.responses[-1].terminal.error


async def test_a_request_is_opened_and_its_input_follows_to_its_end() -> None:
    talk = await Talk().run(OPEN, text("so"), SEGMENT_END, text("on"), CLOSE)
    [opened] = [event for event in talk.core.events if isinstance(event, Opened)]
    assert opened.streamed
    assert [row.text for row in talk.pieces] == ["so", "", "on", ""]
    assert [row.segment_end for row in talk.pieces] == [False, True, False, False]
    assert talk.pieces[-1].end is not None
    assert talk.responses[-1].terminal.outcome == outcome_pb2.OUTCOME_COMPLETED
    assert talk.context.status is None


async def test_a_client_that_closes_its_side_closes_its_input() -> None:
    talk = await Talk().run(OPEN, text("so"))
    assert [row.end is not None for row in talk.pieces] == [False, True]


async def test_a_client_that_can_be_heard_no_more_gets_its_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    talk = Talk()

    async def said() -> AsyncIterator[Step]:
        yield OPEN
        raise RuntimeError("broken")

    context: Any = talk.context
    with pytest.raises(Ended):
        async with asyncio.timeout(5):
            async for response in talk.conversations.run(said(), context):
                talk.responses.append(response)
    assert talk.error.reason == "internal_error"
    assert talk.context.status is grpc.StatusCode.INTERNAL
    assert [record.message for record in caplog.records] == ["listening_failed"]


@pytest.mark.parametrize("steps", [(), (text("so"),), (Step(),)])
async def test_the_first_message_must_hold_the_request(steps: tuple[Step, ...]) -> None:
    talk = await Talk().run(*steps)
    assert talk.error.param == "open"
    assert talk.context.status is grpc.StatusCode.INVALID_ARGUMENT
    assert not [event for event in talk.core.events if isinstance(event, Opened)]


@pytest.mark.parametrize(
    ("step", "param"),
    [
        (OPEN, "open"),
        (Step(), "step"),
        (text(""), "append"),
        (Step(append=Append()), "append"),
        (audio(0), "append"),
        (Step(append=Append(audio=media_pb2.Body(handle=media_pb2.Handle()))), "append"),
        (audio(4, channels=1 << 20), "append.audio.channels"),
    ],
)
async def test_a_mistake_ends_the_call_and_names_the_field(step: Step, param: str) -> None:
    talk = await Talk().run(OPEN, text("so"), step)
    assert (talk.error.code, talk.error.param) == (outcome_pb2.ERROR_CODE_INVALID_ARGUMENT, param)
    assert talk.context.status is grpc.StatusCode.INVALID_ARGUMENT
    assert [event for event in talk.core.events if isinstance(event, AbortAsked)]


async def test_a_large_append_travels_in_pieces_that_cut_no_sample() -> None:
    talk = await Talk().run(OPEN, audio(2 * INLINE_BYTES_MAX + 6, channels=3))
    bodies = [row.body for row in talk.pieces if row.body is not None]
    sizes = [len(body.inline) for body in bodies]
    assert sum(sizes) == 2 * INLINE_BYTES_MAX + 6
    assert all(size % 6 == 0 and size <= INLINE_BYTES_MAX for size in sizes[:-1])
    assert {(body.media_type, body.channels) for body in bodies} == {(AUDIO_PCM, 3)}


async def test_a_long_text_travels_in_pieces() -> None:
    said = "ü" * (PIECE_CHARS_MAX + 1)
    talk = await Talk().run(OPEN, text(said))
    assert "".join(row.text for row in talk.pieces) == said
    assert [len(row.text) for row in talk.pieces] == [PIECE_CHARS_MAX, 1, 0]


async def test_prompts_are_passed_on_also_when_the_input_is_closed() -> None:
    change = orchestrator_service_pb2.PromptChange(interaction_id="p", text="brighter")
    talk = await Talk().run(OPEN, text("so"), Step(interact=change))
    assert talk.prompts == [("p", "brighter")]


async def test_nothing_more_is_said_once_the_input_is_closed() -> None:
    talk = Talk()
    talk.core.answer = lambda event: talk._answer(event) if isinstance(event, AbortAsked) else []
    await talk.run(OPEN, CLOSE, text("more"))
    assert talk.error.param == "append"


async def test_a_client_that_reads_no_answers_is_asked_for_no_more_prompts() -> None:
    talk, count = Talk(), 3 * ANSWERS_MAX
    plain = talk.core.answer

    def answer(event: object) -> list[Any]:
        if isinstance(event, InteractAsked):
            told = event.interaction_id
            return [AnswerInteraction(link=CALLS_LINK, slot=1, interaction_id=told)]
        return plain(event)  # type: ignore[arg-type]  # Any event.

    async def said() -> AsyncIterator[Step]:
        yield OPEN
        for at in range(count):
            told = orchestrator_service_pb2.PromptChange(interaction_id=f"p{at}", text="x")
            yield Step(interact=told)
        yield CLOSE

    talk.core.answer = answer
    context: Any = talk.context
    async with asyncio.timeout(5):
        responses = talk.conversations.run(said(), context)
        first = await anext(responses)
        for _ in range(2 * count):
            await asyncio.sleep(0)
        assert ANSWERS_MAX <= len(talk.prompts) <= 2 * ANSWERS_MAX
        rest = [response async for response in responses]
    assert len(talk.prompts) == count
    assert sum(len(one.interactions) for one in (first, *rest)) == count
