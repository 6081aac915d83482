"""One request in flight: what comes, what is taken, what ends it, and what it costs."""

import asyncio

import msgspec
import pytest

from services.gateway.client import State, ended_by
from services.gateway.core.redrive import LossKind
from stagemesh.errors import MeshError
from stagemesh.link.core import Row
from stagemesh.media import Body, Handle, Modality, lane_of
from stagemesh.outcome import (
    COMPLETED,
    Outcome,
    Terminal,
    error_for,
)
from tests.helpers.exchanges import IMAGE, LOST, TEXT, Notes, open_exchange, token


def _picture() -> Row:
    handle = Handle(handle_id="h_1", request_id="req_1", holder_id="w", incarnation=1, address="a")
    return Row(7, IMAGE, 0, 1, body=Body(handle=handle, media_type="image/png"))


async def test_the_task_sleeps_until_something_comes_and_takes_all_of_it() -> None:
    exchange = open_exchange(Notes())
    taking = asyncio.create_task(exchange.take())
    await asyncio.sleep(0)
    assert not taking.done()
    exchange.push(token(0, "a"))
    exchange.push(token(1, "b"))
    taken = await taking
    assert ([row.text for row in taken.rows], taken.terminal) == (["a", "b"], None)


async def test_the_terminal_comes_with_the_last_rows_and_stays() -> None:
    notes = Notes()
    exchange = open_exchange(notes)
    exchange.push(token(0))
    exchange.finish(COMPLETED)
    taken = await exchange.take()
    assert (len(taken.rows), taken.terminal) == (1, COMPLETED)
    assert (await exchange.take()).terminal == COMPLETED
    assert (exchange.state, notes.released, notes.aborts) == (State.DONE, 1, [])


async def test_credit_goes_back_in_halves_of_the_window_once_rows_are_settled() -> None:
    notes = Notes()
    exchange = open_exchange(notes)
    for pos in range(4):
        exchange.push(token(pos))
    rows = (await exchange.take()).rows
    assert notes.granted == []
    exchange.settle(rows[:1])
    assert notes.granted == []
    exchange.settle(rows[1:])
    assert notes.granted == [(4 + 4, 1000 + 4)]


async def test_an_ended_exchange_returns_no_credit() -> None:
    notes = Notes()
    exchange = open_exchange(notes)
    for pos in range(4):
        exchange.push(token(pos))
    rows = (await exchange.take()).rows
    exchange.abort("the client went away")
    exchange.settle(rows)
    assert notes.granted == []


@pytest.mark.invariant("ENTRY-INV-102")
async def test_the_first_end_decides_and_a_crossing_terminal_only_closes() -> None:
    notes = Notes()
    exchange = open_exchange(notes)
    exchange.abort("the client went away")
    exchange.abort("again")
    exchange.push(token(0))
    assert (exchange.state, notes.aborts) == (State.ENDING, ["the client went away"])
    exchange.finish(COMPLETED)
    exchange.finish(COMPLETED)
    exchange.lose(LOST)
    taken = await exchange.take()
    assert taken.rows == []
    assert taken.terminal is not None
    assert taken.terminal.outcome is Outcome.CANCELLED
    assert (exchange.state, notes.released) == (State.DONE, 1)


async def test_an_abort_after_the_end_tells_nobody() -> None:
    notes = Notes()
    exchange = open_exchange(notes)
    exchange.finish(COMPLETED)
    exchange.abort("too late")
    exchange.fail(error_for("deadline_exceeded"), Outcome.DEADLINE_EXCEEDED)
    assert (notes.aborts, exchange.terminal) == ([], COMPLETED)


async def test_rows_below_the_cursor_are_dropped_and_gaps_end_the_request() -> None:
    notes = Notes()
    exchange = open_exchange(notes)
    exchange.push(token(0))
    exchange.push(token(0))
    assert notes.dropped == 1
    exchange.push(token(5))
    assert notes.aborts == ["protocol_error"]
    taken = await exchange.take()
    assert len(taken.rows) == 1
    assert taken.terminal is not None
    assert ended_by(taken.terminal).message.endswith("came at 5, not at 1.")


async def test_a_lost_owner_is_no_end_and_the_next_one_goes_on() -> None:
    notes, other = Notes(), Notes()
    exchange = open_exchange(notes)
    exchange.push(token(0, "a"))
    exchange.lose(LOST)
    assert (notes.losses, notes.left, exchange.state) == ([(LossKind.LINK, notes)], 1, State.OPEN)
    exchange.opened(other, 9, 1.0)
    exchange.push(token(1, "b"))
    taken = await exchange.take()
    assert ([row.text for row in taken.rows], taken.terminal) == (["a", "b"], None)
    assert (exchange.epoch, exchange.slot) == (2, 9)


async def test_what_an_earlier_owner_was_owed_is_not_given_to_the_next() -> None:
    notes, other = Notes(), Notes()
    exchange = open_exchange(notes)
    for pos in range(3):
        exchange.push(token(pos))
    exchange.lose(LOST)
    exchange.opened(other, 9, 1.0)
    exchange.push(token(3))
    exchange.settle((await exchange.take()).rows)
    assert (notes.granted, other.granted) == ([], [])
    exchange.push(token(4))
    exchange.settle((await exchange.take()).rows)
    assert other.granted == [(4 + 2, 1000 + 2)]


async def test_without_an_owner_an_end_is_at_once() -> None:
    notes = Notes()
    exchange = open_exchange(notes)
    exchange.lose(LOST)
    exchange.abort("the client went away")
    assert (exchange.state, notes.aborts, notes.released) == (State.DONE, [], 1)


async def test_a_lost_owner_of_what_is_being_ended_is_its_end() -> None:
    notes = Notes()
    exchange = open_exchange(notes)
    exchange.abort("the client went away")
    exchange.lose(LOST)
    assert (exchange.state, notes.losses, notes.released) == (State.DONE, [], 1)


@pytest.mark.parametrize("reason", ["queue_full", "no_replica"])
async def test_a_refusal_is_the_end_at_the_first_owner_only(reason: str) -> None:
    refused = Terminal(outcome=Outcome.REJECTED, error=error_for(reason))
    notes = Notes()
    first = open_exchange(notes)
    first.finish(refused)
    assert ((await first.take()).terminal, notes.losses) == (refused, [])
    second = open_exchange(notes)
    second.opened(notes, 9, 1.0)
    second.finish(refused)
    assert (second.state, notes.losses) == (State.OPEN, [(LossKind.REFUSED, notes)])


async def test_a_success_waits_for_the_bytes_that_it_completes() -> None:
    notes = Notes()
    exchange = open_exchange(notes)
    exchange.push(_picture())
    exchange.finish(COMPLETED)
    assert (exchange.state, exchange.terminal, notes.left) == (State.OPEN, None, 1)
    taken = await exchange.take()
    assert (len(taken.rows), taken.terminal, exchange.state) == (1, COMPLETED, State.DONE)


async def test_a_success_whose_bytes_are_lost_needs_another_owner() -> None:
    notes, other = Notes(), Notes()

    def fetch(body: Body) -> Body:
        raise MeshError(error_for("handle_lost"))

    notes.fetch = fetch
    exchange = open_exchange(notes)
    exchange.push(_picture())
    exchange.finish(COMPLETED)
    taking = asyncio.create_task(exchange.take())
    async with asyncio.timeout(5):
        await notes.told.wait()
    assert notes.losses == [(LossKind.HANDLE, None)]
    exchange.opened(other, 9, 1.0)
    exchange.push(Row(9, IMAGE, 0, 1, body=Body(inline=b"again", media_type="image/png")))
    exchange.finish(COMPLETED)
    taken = await taking
    assert ([row.body and row.body.inline for row in taken.rows], taken.terminal) == (
        [b"again"],
        COMPLETED,
    )


async def test_text_does_not_wait_for_the_bytes_behind_it() -> None:
    exchange = open_exchange(Notes())
    exchange.push(token(0))
    exchange.push(_picture())
    exchange.push(token(1))
    assert [row.lane for row in (await exchange.take()).rows] == [TEXT]
    assert [row.lane for row in (await exchange.take()).rows] == [IMAGE, TEXT]


async def test_a_fetch_ends_with_the_owner_whose_output_it_was() -> None:
    never: asyncio.Future[Body] = asyncio.get_running_loop().create_future()
    notes = Notes()
    exchange = open_exchange(notes)

    async def fetch(body: Body) -> Body:
        return await never

    exchange._fetch = fetch
    exchange.push(_picture())
    taking = asyncio.create_task(exchange.take())
    await asyncio.sleep(0)
    exchange.lose(LOST)
    exchange.opened(notes, 9, 1.0)
    exchange.push(Row(9, IMAGE, 0, 1, body=Body(inline=b"new", media_type="image/png")))
    taken = await taking
    assert [row.body and row.body.inline for row in taken.rows] == [b"new"]
    assert never.cancelled()


async def test_hidden_rows_are_kept_and_not_shown() -> None:
    exchange = open_exchange(Notes())
    exchange.push(Row(7, lane_of(3, 0, Modality.TEXT), 0, 1, "thought", visible=False))
    exchange.push(token(0, "said"))
    assert [row.text for row in (await exchange.take()).rows] == ["said"]
    assert [lane.rows[0].text for lane in exchange.journal.export().lanes] == ["thought", "said"]


async def test_bytes_behind_handles_are_there_when_a_row_is_taken() -> None:
    exchange = open_exchange(Notes())
    exchange.push(_picture())
    body = (await exchange.take()).rows[0].body
    assert body is not None
    assert (body.inline, body.handle) == (b"bytes", None)


async def test_what_comes_while_bytes_are_fetched_is_taken_with_them() -> None:
    notes = Notes()
    exchange = open_exchange(notes)

    def fetch(body: Body) -> Body:
        exchange.push(token(0))
        exchange.finish(COMPLETED)
        return msgspec.structs.replace(body, inline=b"bytes", handle=None)

    notes.fetch = fetch
    exchange.push(_picture())
    taken = await exchange.take()
    assert ([row.lane for row in taken.rows], taken.terminal) == ([IMAGE, TEXT], COMPLETED)


async def test_bytes_that_are_lost_come_again_and_what_follows_is_dropped_until_then() -> None:
    notes = Notes()

    def fetch(body: Body) -> Body:
        notes.fetch = lambda body: msgspec.structs.replace(body, inline=b"second", handle=None)
        raise MeshError(error_for("handle_lost"))

    notes.fetch = fetch
    exchange = open_exchange(notes)
    exchange.push(_picture())
    exchange.push(token(0))
    assert [row.lane for row in (await exchange.take()).rows] == [TEXT]
    assert notes.handles == ["h_1"]
    # On its way when the owner heard of it.
    exchange.push(Row(7, IMAGE, 1, 1, body=Body(inline=b"later", media_type="image/png")))
    assert notes.dropped == 1
    exchange.push(_picture())
    taken = await exchange.take()
    assert [row.body and row.body.inline for row in taken.rows] == [b"second"]


async def test_bytes_that_are_lost_too_often_end_the_request() -> None:
    notes = Notes()

    def fetch(body: Body) -> Body:
        raise MeshError(error_for("handle_lost"))

    notes.fetch = fetch
    exchange = open_exchange(notes)
    exchange.push(_picture())
    taking = asyncio.create_task(exchange.take())
    async with asyncio.timeout(5):
        await notes.told.wait()
    exchange.push(_picture())
    taken = await taking
    assert taken.rows == []
    assert taken.terminal is not None
    assert ended_by(taken.terminal).reason == "handle_lost"
    assert (notes.handles, notes.aborts) == (["h_1", "h_1"], ["handle_lost"])


@pytest.mark.parametrize(
    ("outcome", "reason"),
    [
        (Outcome.CANCELLED, "aborted"),
        (Outcome.DEADLINE_EXCEEDED, "deadline_exceeded"),
        (Outcome.FAILED, "internal_error"),
    ],
)
def test_an_end_without_a_cause_has_that_of_its_outcome(outcome: Outcome, reason: str) -> None:
    assert ended_by(Terminal(outcome=outcome)).reason == reason
