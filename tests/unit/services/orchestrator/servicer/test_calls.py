"""`Generate` calls as one client link."""

import asyncio

from services.orchestrator.core.effects import (
    AnswerInteraction,
    AnswerUnknown,
    Effect,
    EndRequest,
    SayGoAway,
    SendGrants,
    SendRows,
)
from services.orchestrator.core.events import (
    AbortAsked,
    ClientAttached,
    CreditGranted,
    Event,
    HandleLost,
    InputsAppended,
    InteractAsked,
    Opened,
)
from services.orchestrator.driver import Driver
from services.orchestrator.servicer.calls import ANSWERS_MAX, CALLS_LINK, Call, Calls
from stagemesh.link.core import REQUEST_SOURCE, WINDOW_UNITS, Grant, Row
from stagemesh.media import Message, Modality, Request, TextPart, lane_of
from stagemesh.outcome import COMPLETED, Outcome, Terminal, error_for
from tests.helpers.scripted_core import ScriptedCore, drive

LANE = lane_of(0, 0, Modality.TEXT)
REQUEST = Request(model="echo", messages=(Message(role="user", parts=(TextPart("hi"),)),))


def rows(slot: int, count: int) -> list[Row]:
    return [Row(slot, LANE, pos, 1, f" w{pos}") for pos in range(count)]


class Desk:
    """The link with a core that the test speaks for."""

    def __init__(self) -> None:
        self.core = ScriptedCore()
        self.driver: Driver = drive(self.core)
        self.calls = Calls(self.driver)
        self.calls.attach()
        self.ended: list[str] = []

    def open(self, request_id: str = "req_1") -> Call:
        """Open a call."""
        return self.calls.open(
            request_id=request_id,
            deadline_left_s=0.0,
            request=REQUEST,
            body=b"body",
            ended=lambda: self.ended.append(request_id),
        )

    def perform(self, *effects: Effect) -> None:
        """Perform what the core would order."""
        for effect in effects:
            self.calls.perform(effect)

    def since(self, count: int) -> list[Event]:
        """Give what came after the first `count` events."""
        return self.core.events[count:]


async def test_the_link_attaches_once_with_its_window() -> None:
    desk = Desk()

    [event] = desk.core.events
    assert isinstance(event, ClientAttached)
    assert (event.link, event.window_units) == (CALLS_LINK, WINDOW_UNITS)


async def test_each_call_is_opened_under_a_slot_of_its_own() -> None:
    desk = Desk()
    desk.open("req_1")
    desk.open("req_2")

    opened = [event for event in desk.core.events if isinstance(event, Opened)]
    assert [event.slot for event in opened] == [1, 2]
    assert [event.request_id for event in opened] == ["req_1", "req_2"]
    assert {event.epoch for event in opened} == {1}
    assert opened[0].body == b"body"


async def test_a_call_takes_all_rows_that_wait_and_no_others() -> None:
    desk = Desk()
    first, second = desk.open(), desk.open()
    desk.perform(SendRows(link=CALLS_LINK, rows=[*rows(1, 2), *rows(2, 1)]))
    desk.perform(SendRows(link=CALLS_LINK, rows=rows(1, 1)))

    assert [row.text for row in (await first.take())[0]] == [" w0", " w1", " w0"]
    assert [row.text for row in (await second.take())[0]] == [" w0"]


async def test_the_terminal_comes_with_the_last_rows() -> None:
    desk = Desk()
    call = desk.open()
    desk.perform(
        SendRows(link=CALLS_LINK, rows=rows(1, 1)),
        EndRequest(link=CALLS_LINK, slot=1, request_id="req_1", terminal=COMPLETED),
    )

    assert desk.ended == ["req_1"], "whoever waits for the end heard of it before the client"
    taken, terminal = await call.take()
    assert len(taken) == 1
    assert terminal == COMPLETED


async def test_a_refusal_during_the_open_reaches_the_call() -> None:
    refused = Terminal(outcome=Outcome.REJECTED, error=error_for("queue_full"))
    desk = Desk()
    desk.core.answer = lambda event: (
        [EndRequest(link=CALLS_LINK, slot=1, request_id="req_1", terminal=refused)]
        if isinstance(event, Opened)
        else []
    )
    assert await desk.open().take() == ([], refused)


async def test_credit_is_returned_when_rows_were_written_in_halves_of_the_window() -> None:
    desk = Desk()
    call = desk.open()
    desk.perform(SendRows(link=CALLS_LINK, rows=rows(1, WINDOW_UNITS)))
    taken, _ = await call.take()
    before = len(desk.core.events)

    call.wrote(taken[: WINDOW_UNITS // 2 - 1])
    assert desk.since(before) == []

    call.wrote(taken[WINDOW_UNITS // 2 - 1 : WINDOW_UNITS // 2])
    [event] = desk.since(before)
    assert isinstance(event, CreditGranted)
    assert event.grants[0].slot == 1
    assert event.grants[0].units == WINDOW_UNITS + WINDOW_UNITS // 2


async def test_a_client_that_leaves_aborts_its_request_once() -> None:
    desk = Desk()
    call = desk.open()
    before = len(desk.core.events)
    call.leave("client_closed")
    call.leave("client_closed")

    assert desk.since(before) == [AbortAsked(link=CALLS_LINK, slot=1, cause="client_closed")]
    assert len(desk.calls) == 1, "its request is still to end"


async def test_rows_for_a_client_that_left_go_nowhere() -> None:
    desk = Desk()
    call = desk.open()
    call.leave("client_closed")
    desk.perform(SendRows(link=CALLS_LINK, rows=rows(1, 1)))
    desk.perform(EndRequest(link=CALLS_LINK, slot=1, request_id="req_1", terminal=COMPLETED))

    assert await call.take() == ([], COMPLETED)
    assert desk.ended == ["req_1"]
    assert len(desk.calls) == 0, "a call is kept until its terminal, and no longer"


async def test_a_client_that_leaves_after_the_end_aborts_nothing() -> None:
    desk = Desk()
    call = desk.open()
    desk.perform(EndRequest(link=CALLS_LINK, slot=1, request_id="req_1", terminal=COMPLETED))
    before = len(desk.core.events)
    call.leave("client_closed")
    call.wrote(rows(1, WINDOW_UNITS))
    call.lost_handle("h_1")

    assert desk.since(before) == []


async def test_a_handle_that_cannot_be_fetched_is_told_to_the_core() -> None:
    desk = Desk()
    call = desk.open()
    call.lost_handle("h_1")

    assert desk.core.events[-1] == HandleLost(link=CALLS_LINK, slot=1, handle_id="h_1")


async def test_what_only_a_gateway_must_be_told_is_passed_over() -> None:
    desk = Desk()
    call = desk.open()
    desk.perform(
        SayGoAway(link=CALLS_LINK, reason="sigterm", drain_s=1.0),
        AnswerUnknown(link=CALLS_LINK, slot=9),
    )

    taking = asyncio.ensure_future(call.take())
    await asyncio.sleep(0)
    assert not taking.done()
    taking.cancel()


async def test_input_is_numbered_and_waits_for_credit() -> None:
    core = ScriptedCore()
    driver = drive(core)
    calls = Calls(driver, input_window=(2, 100))
    calls.attach()
    call = calls.open(
        request_id="r", deadline_left_s=0.0, request=REQUEST, body=b"", ended=lambda: None,
        streamed=True,
    )  # fmt: skip
    await call.room()
    call.append("so")
    call.append(segment_end=True)
    waiting = asyncio.create_task(call.room())
    await asyncio.sleep(0)
    assert not waiting.done()
    calls.perform(SendGrants(link=CALLS_LINK, grants=[Grant(1, REQUEST_SOURCE, 3, 100)]))
    async with asyncio.timeout(5):
        await waiting
    call.close_input()
    given = [
        row for event in core.events if isinstance(event, InputsAppended) for row in event.rows
    ]
    assert [(row.pos, row.units, row.text) for row in given] == [
        (0, 1, "so"),
        (1, 1, ""),
        (2, 0, ""),
    ]
    assert [row.segment_end for row in given] == [False, True, False]
    assert [row.end is not None for row in given] == [False, False, True]


async def test_input_after_the_end_goes_nowhere() -> None:
    desk = Desk()
    call = desk.open()
    desk.perform(EndRequest(link=CALLS_LINK, slot=1, request_id="r", terminal=COMPLETED))
    before = len(desk.core.events)
    call.append("late")
    call.close_input()
    assert desk.since(before) == []


async def test_a_prompt_goes_to_the_core_and_its_answer_waits_for_the_client() -> None:
    desk = Desk()
    call = desk.open()
    call.interact("p", "brighter")
    [asked] = desk.since(2)
    assert asked == InteractAsked(link=CALLS_LINK, slot=1, interaction_id="p", text="brighter")
    answer = AnswerInteraction(link=CALLS_LINK, slot=1, interaction_id="p", applied_at=3)
    desk.perform(answer)
    async with asyncio.timeout(5):
        assert await call.take() == ([], None)
    assert call.take_answers() == [answer]
    assert call.take_answers() == []
    call.leave("gone")
    call.interact("q", "late")
    desk.perform(answer)
    assert call.take_answers() == []
    assert not [event for event in desk.since(3) if isinstance(event, InteractAsked)]


async def test_who_reads_no_answers_to_prompts_is_not_heard_further() -> None:
    desk = Desk()
    call = desk.open()
    answer = AnswerInteraction(link=CALLS_LINK, slot=1, interaction_id="p", applied_at=0)
    desk.perform(*[answer] * ANSWERS_MAX)
    told = asyncio.create_task(call.told())
    await asyncio.sleep(0)
    assert not told.done()
    assert len(call.take_answers()) == ANSWERS_MAX
    async with asyncio.timeout(1):
        await told
