"""One request in flight: what comes, what is taken, what ends it, and what it costs."""

import asyncio
from collections.abc import Callable

import msgspec
import pytest

from services.gateway.client import Exchange, State, ended_by
from stagemesh.errors import MeshError
from stagemesh.link.core import Grant, Row
from stagemesh.media import Body, Handle, Modality, Request, lane_of
from stagemesh.outcome import COMPLETED, Outcome, Terminal, error_for

TEXT = lane_of(0, 0, Modality.TEXT)
IMAGE = lane_of(1, 0, Modality.IMAGE)


class Notes:
    """The link side of an exchange, which writes down what it is told."""

    def __init__(self) -> None:
        self.granted: list[tuple[int, int]] = []
        self.aborts: list[str] = []
        self.lost: list[str] = []
        self.released = 0
        self.dropped = 0
        self.fetch: Callable[[Body], Body] = lambda body: msgspec.structs.replace(
            body, inline=b"bytes", handle=None
        )

    def grant(self, exchange: Exchange, grant: Grant) -> None:
        """See `Owner`."""
        self.granted.append((grant.units, grant.bytes))

    def abort(self, exchange: Exchange, cause: str) -> None:
        """See `Owner`."""
        self.aborts.append(cause)

    def handle_lost(self, exchange: Exchange, handle_id: str) -> None:
        """See `Owner`."""
        self.lost.append(handle_id)

    def release(self, exchange: Exchange) -> None:
        """See `Owner`."""
        self.released += 1

    def drop(self) -> None:
        """Count a row that had come before."""
        self.dropped += 1


def _open(notes: Notes, *, units: int = 4, size: int = 1000) -> Exchange:
    async def fetch(body: Body) -> Body:
        return notes.fetch(body)

    return Exchange(
        Request(model="m", messages=(), modalities=(Modality.TEXT, Modality.IMAGE)),
        request_id="req_1",
        slot=7,
        window=(units, size),
        owner=notes,
        fetch=fetch,
        on_drop=notes.drop,
    )


def _token(pos: int, text: str = "x") -> Row:
    return Row(7, TEXT, pos, 1, text)


def _picture() -> Row:
    handle = Handle(handle_id="h_1", request_id="req_1", holder_id="w", incarnation=1, address="a")
    return Row(7, IMAGE, 0, 1, body=Body(handle=handle, media_type="image/png"))


async def test_the_task_sleeps_until_something_comes_and_takes_all_of_it() -> None:
    exchange = _open(Notes())
    taking = asyncio.create_task(exchange.take())
    await asyncio.sleep(0)
    assert not taking.done()
    exchange.push(_token(0, "a"))
    exchange.push(_token(1, "b"))
    taken = await taking
    assert ([row.text for row in taken.rows], taken.terminal) == (["a", "b"], None)


async def test_the_terminal_comes_with_the_last_rows_and_stays() -> None:
    notes = Notes()
    exchange = _open(notes)
    exchange.push(_token(0))
    exchange.finish(COMPLETED)
    taken = await exchange.take()
    assert (len(taken.rows), taken.terminal) == (1, COMPLETED)
    assert (await exchange.take()).terminal == COMPLETED
    assert (exchange.state, notes.released, notes.aborts) == (State.DONE, 1, [])


async def test_credit_goes_back_in_halves_of_the_window_once_rows_are_settled() -> None:
    notes = Notes()
    exchange = _open(notes)
    for pos in range(4):
        exchange.push(_token(pos))
    rows = (await exchange.take()).rows
    assert notes.granted == []
    exchange.settle(rows[:1])
    assert notes.granted == []
    exchange.settle(rows[1:])
    assert notes.granted == [(4 + 4, 1000 + 4)]


async def test_an_ended_exchange_returns_no_credit() -> None:
    notes = Notes()
    exchange = _open(notes)
    for pos in range(4):
        exchange.push(_token(pos))
    rows = (await exchange.take()).rows
    exchange.abort("the client went away")
    exchange.settle(rows)
    assert notes.granted == []


async def test_the_first_end_decides_and_a_crossing_terminal_only_closes() -> None:
    notes = Notes()
    exchange = _open(notes)
    exchange.abort("the client went away")
    exchange.abort("again")
    exchange.push(_token(0))
    assert (exchange.state, notes.aborts) == (State.ENDING, ["the client went away"])
    exchange.finish(COMPLETED)
    exchange.finish(COMPLETED)
    exchange.lose("broken")
    taken = await exchange.take()
    assert taken.rows == []
    assert taken.terminal is not None
    assert taken.terminal.outcome is Outcome.CANCELLED
    assert (exchange.state, notes.released) == (State.DONE, 1)


async def test_an_abort_after_the_end_tells_nobody() -> None:
    notes = Notes()
    exchange = _open(notes)
    exchange.finish(COMPLETED)
    exchange.abort("too late")
    exchange.fail(error_for("deadline_exceeded"), Outcome.DEADLINE_EXCEEDED)
    assert (notes.aborts, exchange.terminal) == ([], COMPLETED)


async def test_rows_below_the_cursor_are_dropped_and_gaps_end_the_request() -> None:
    notes = Notes()
    exchange = _open(notes)
    exchange.push(_token(0))
    exchange.push(_token(0))
    assert notes.dropped == 1
    exchange.push(_token(5))
    assert notes.aborts == ["protocol_error"]
    taken = await exchange.take()
    assert len(taken.rows) == 1
    assert taken.terminal is not None
    assert ended_by(taken.terminal).message.endswith("came at 5, not at 1.")


async def test_a_lost_link_ends_it_retryable() -> None:
    exchange = _open(Notes())
    exchange.lose("broken")
    terminal = (await exchange.take()).terminal
    assert terminal is not None
    assert ended_by(terminal).retryable
    assert ended_by(terminal).reason == "link_lost"


async def test_bytes_behind_handles_are_there_when_a_row_is_taken() -> None:
    exchange = _open(Notes())
    exchange.push(_picture())
    body = (await exchange.take()).rows[0].body
    assert body is not None
    assert (body.inline, body.handle) == (b"bytes", None)


async def test_what_comes_while_bytes_are_fetched_is_taken_next_with_the_terminal() -> None:
    notes = Notes()
    exchange = _open(notes)

    def fetch(body: Body) -> Body:
        exchange.push(_token(0))
        exchange.finish(COMPLETED)
        return msgspec.structs.replace(body, inline=b"bytes", handle=None)

    notes.fetch = fetch
    exchange.push(_picture())
    first, second = await exchange.take(), await exchange.take()
    assert (len(first.rows), first.terminal) == (1, None)
    assert (len(second.rows), second.terminal) == (1, COMPLETED)


async def test_bytes_that_are_lost_end_the_request_at_that_place() -> None:
    notes = Notes()

    def fetch(body: Body) -> Body:
        raise MeshError(error_for("handle_lost"))

    notes.fetch = fetch
    exchange = _open(notes)
    exchange.push(_token(0))
    exchange.push(_picture())
    exchange.push(_token(1))
    taken = await exchange.take()
    assert [row.lane for row in taken.rows] == [TEXT]
    assert taken.terminal is not None
    assert ended_by(taken.terminal).reason == "handle_lost"
    assert (notes.lost, notes.aborts) == (["h_1"], ["handle_lost"])


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
