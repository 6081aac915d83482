"""The streamed input of one exchange."""

import asyncio
from collections.abc import Sequence

from services.gateway.client.inputs import ExchangeInput
from services.gateway.core.inputs import InputLog
from stagemesh.link.core import REQUEST_SOURCE, Grant, Row


class Owner:
    """A link that writes down what is sent."""

    def __init__(self) -> None:
        self.rows: list[Row] = []

    def send(self, rows: Sequence[Row]) -> None:
        """Note rows."""
        self.rows += rows


def begun(units: int = 2) -> tuple[ExchangeInput, Owner]:
    given, owner = ExchangeInput(InputLog(10_000)), Owner()
    given.opened(7, owner.send, (units, 1_000))
    return given, owner


async def test_pieces_go_to_the_owner_as_its_credit_allows() -> None:
    given, owner = begun()
    await given.room()
    given.append("so")
    given.append(segment_end=True)
    waiting = asyncio.create_task(given.room())
    await asyncio.sleep(0)
    assert not waiting.done()
    given.granted(Grant(7, REQUEST_SOURCE, 3, 1_000))
    async with asyncio.timeout(5):
        await waiting
    given.close()
    assert [(row.slot, row.lane, row.pos, row.units) for row in owner.rows] == [
        (7, REQUEST_SOURCE, 0, 1),
        (7, REQUEST_SOURCE, 1, 1),
        (7, REQUEST_SOURCE, 2, 0),
    ]
    assert owner.rows[1].segment_end
    assert owner.rows[2].end is not None


async def test_between_two_owners_nothing_may_be_given_and_the_next_is_given_all_of_it() -> None:
    given, owner = begun(8)
    given.append("a")
    given.left()
    waiting = asyncio.create_task(given.room())
    await asyncio.sleep(0)
    assert not waiting.done()
    given.close()  # Its end needs no room.
    assert [row.text for row in owner.rows] == ["a"]
    replayed = given.replayed(9)
    assert [(row.slot, row.pos, row.text) for row in replayed] == [(9, 0, "a"), (9, 1, "")]
    assert replayed[-1].end is not None
    given.opened(9, owner.send, (8, 1_000))
    async with asyncio.timeout(5):
        await waiting


async def test_after_the_end_of_the_request_input_goes_nowhere_and_waits_for_nothing() -> None:
    given, owner = begun(1)
    given.append("a")
    given.end()
    async with asyncio.timeout(5):
        await given.room()
    given.append("b")
    assert [row.text for row in owner.rows] == ["a"]
