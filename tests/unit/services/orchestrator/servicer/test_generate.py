"""The body of `Generate`, without a server."""

import asyncio
from typing import Any

import grpc
import pytest

from services.orchestrator.core.effects import Effect, EndRequest, SendRows
from services.orchestrator.core.events import AbortAsked, Event, HandleLost, Opened
from services.orchestrator.servicer import Calls, Generation
from services.orchestrator.servicer.calls import CALLS_LINK
from services.orchestrator.servicer.generate import Response
from stagemesh.api.types.v1 import media_pb2, outcome_pb2, request_pb2
from stagemesh.link.core import Row
from stagemesh.media import Body, Modality, lane_of
from stagemesh.outcome import COMPLETED, Outcome, Terminal, error_for
from tests.helpers.orchestrator_mesh import MESH
from tests.helpers.scripted_core import ScriptedCore, drive
from tests.helpers.servicer_context import HANDLE, Context, Ended, Shelf

LANE = lane_of(0, 0, Modality.TEXT)


class Stage:
    """One call, from request to status, with a core that the test speaks for."""

    def __init__(self, *effects: Effect, left_s: float | None = None) -> None:
        self.core = ScriptedCore(lambda event: list(effects) if type(event) is Opened else [])
        self.shelf = Shelf()
        self.context = Context(left_s)
        self.calls = Calls(drive(self.core))
        self.calls.attach()
        self.generation = Generation(MESH, self.calls, self.shelf, self.shelf)
        self.responses: list[Response] = []

    async def run(self, request: request_pb2.Request | None = None) -> list[Response]:
        """Serve the call to its end."""
        context: Any = self.context
        try:
            async for response in self.generation.run(request or hello(), context):
                self.responses.append(response)
        except Ended:
            pass
        return self.responses

    @property
    def opened(self) -> Opened:
        """What the core was given."""
        [event] = [event for event in self.core.events if isinstance(event, Opened)]
        return event


def hello() -> request_pb2.Request:
    message = request_pb2.Message(role="user", parts=[request_pb2.Part(text="hi")])
    return request_pb2.Request(model="echo", messages=[message])


def send(*rows: Row) -> SendRows:
    return SendRows(link=CALLS_LINK, rows=list(rows))


def end(terminal: Terminal = COMPLETED) -> EndRequest:
    return EndRequest(link=CALLS_LINK, slot=1, request_id="r", terminal=terminal)


def text(pos: int) -> Row:
    return Row(1, LANE, pos, 1, f" w{pos}")


def by_handle(pos: int) -> Row:
    return Row(1, LANE, pos, 1, body=Body(handle=HANDLE))


async def test_outputs_that_wait_and_the_terminal_go_in_one_response() -> None:
    stage = Stage(send(text(0), text(1)), end())
    [response] = await stage.run()

    assert [output.text for output in response.outputs] == [" w0", " w1"]
    assert response.terminal.outcome == outcome_pb2.OUTCOME_COMPLETED
    assert stage.context.status is None


async def test_the_id_is_told_at_once_and_is_the_one_that_the_core_gets() -> None:
    stage = Stage(end())
    await stage.run()

    assert stage.context.metadata == [("x-request-id", stage.opened.request_id)]


async def test_bytes_by_handle_stand_alone_and_in_their_place() -> None:
    stage = Stage(send(text(0), by_handle(1), text(2)), end())
    responses = await stage.run()

    assert [[output.pos for output in response.outputs] for response in responses] == [
        [0],
        [1],
        [2],
    ]
    assert responses[1].outputs[0].body.inline == b"abc"


async def test_a_failure_is_a_terminal_and_then_a_status() -> None:
    failed = Terminal(outcome=Outcome.FAILED, error=error_for("replica_lost"))
    stage = Stage(send(text(0)), end(failed))
    [response] = await stage.run()

    assert response.terminal.error.code == outcome_pb2.ERROR_CODE_REPLICA_LOST
    assert stage.context.status is grpc.StatusCode.UNAVAILABLE


async def test_an_end_without_a_cause_still_has_a_status() -> None:
    stage = Stage(end(Terminal(outcome=Outcome.FAILED)))
    await stage.run()

    assert stage.context.status is grpc.StatusCode.INTERNAL


async def test_bytes_lost_after_a_completed_end_turn_it_into_a_failure() -> None:
    stage = Stage(send(by_handle(0)), end())
    stage.shelf.data = None
    [response] = await stage.run()

    assert response.terminal.outcome == outcome_pb2.OUTCOME_FAILED
    assert response.terminal.error.reason == "handle_lost"
    assert stage.context.status is grpc.StatusCode.UNAVAILABLE


async def test_bytes_lost_while_the_request_runs_are_the_cores_matter() -> None:
    stage = Stage(send(by_handle(0)))
    stage.shelf.data = None
    running = asyncio.create_task(stage.run())
    await stage.core.until(lambda: any(isinstance(e, HandleLost) for e in stage.core.events))
    lost = Terminal(outcome=Outcome.FAILED, error=error_for("handle_lost", stage="thinker"))
    stage.calls.perform(end(lost))
    [response] = await running

    assert response.terminal.error.stage == "thinker"


async def test_a_handle_from_a_client_ends_the_call_before_the_core_hears_of_it() -> None:
    request = hello()
    request.messages[0].parts.add().media.body.handle.handle_id = "h_stolen"
    stage = Stage(end())
    [response] = await stage.run(request)

    assert response.terminal.outcome == outcome_pb2.OUTCOME_REJECTED
    assert stage.context.status is grpc.StatusCode.INVALID_ARGUMENT
    assert not [event for event in stage.core.events if isinstance(event, Opened)]


async def test_large_input_is_let_go_of_when_the_request_ends() -> None:
    request = hello()
    media = request.messages[0].parts.add().media
    media.modality, media.body.inline = media_pb2.MODALITY_AUDIO, bytes(100_000)
    stage = Stage(end())
    await stage.run(request)

    assert stage.shelf.put_for == stage.shelf.released == [stage.opened.request_id]


async def test_a_store_without_room_refuses_the_request_and_keeps_nothing() -> None:
    request = hello()
    media = request.messages[0].parts.add().media
    media.modality, media.body.inline = media_pb2.MODALITY_AUDIO, bytes(100_000)
    stage = Stage(end())
    stage.shelf.data = None
    [response] = await stage.run(request)

    assert response.terminal.error.code == outcome_pb2.ERROR_CODE_OVERLOADED
    assert stage.context.status is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert len(stage.shelf.released) == 1


async def test_a_call_that_is_over_aborts_its_request() -> None:
    stage = Stage()
    running = asyncio.create_task(stage.run())
    await stage.core.until(lambda: any(isinstance(e, Opened) for e in stage.core.events))
    for callback in stage.context.over:
        callback(stage.context)
    running.cancel()

    aborts: list[Event] = [event for event in stage.core.events if isinstance(event, AbortAsked)]
    assert aborts == [AbortAsked(link=CALLS_LINK, slot=1, cause="client_closed")]


@pytest.mark.parametrize(
    ("left_s", "given_s"), [(None, 0.0), (10.0, 9.95), (0.1, 0.05), (0.02, 0.01)]
)
async def test_the_request_gets_the_calls_time_less_that_for_the_answer(
    left_s: float | None, given_s: float
) -> None:
    stage = Stage(end(), left_s=left_s)
    await stage.run()

    assert stage.opened.deadline_left_s == pytest.approx(given_s)
