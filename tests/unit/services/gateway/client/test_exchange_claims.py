"""An exchange that may outlive its gateway: what it confirms, and how it is left to another."""

import asyncio
from collections.abc import Callable

import pytest

from services.gateway.client import State
from services.gateway.core.detached import OwnerName
from stagemesh.link.core import Row
from stagemesh.outcome import COMPLETED, End, ErrorInfo, FinishReason, Outcome
from tests.helpers.exchanges import LOST, TEXT, Notes, open_exchange, token


class Minted:
    """Whoever mints the epochs of an exchange; it is not asked."""

    detach_s = 5.0
    owner_since = 0
    sole_owner = None

    def claim(self, owner: OwnerName, revision: str, give: Callable[[], None]) -> None:
        """See `Claims`."""

    def leave(self, info: ErrorInfo) -> None:
        """See `Claims`."""


async def test_of_what_may_outlive_a_gateway_each_settling_is_granted_and_ends_count() -> None:
    notes = Notes()
    exchange = open_exchange(notes, units=40)
    exchange.claims = Minted()
    exchange.lose(LOST)
    exchange.opened(notes, 9, 1.0)
    end = Row(9, TEXT, 1, 0, end=End(finish_reason=FinishReason.STOP))
    for row in (token(0), end):
        exchange.push(row)
        exchange.settle((await exchange.take()).rows)
    assert notes.granted == [(41, 1001), (42, 1001)]


async def test_a_nudge_has_a_taker_look_up_once() -> None:
    exchange = open_exchange(Notes())
    taking = asyncio.create_task(exchange.take())
    await asyncio.sleep(0)
    exchange.nudge()
    taken = await taking
    assert (taken.rows, taken.terminal) == ([], None)
    taking = asyncio.create_task(exchange.take())
    await asyncio.sleep(0)
    assert not taking.done()
    exchange.push(token(0))
    assert len((await taking).rows) == 1


@pytest.mark.parametrize("here", [True, False])
async def test_what_is_ceded_has_no_end_and_is_no_loss(here: bool) -> None:
    notes = Notes()
    exchange = open_exchange(notes)
    exchange.cede(here=here)
    exchange.cede(here=here)
    assert (notes.ceded, notes.left, notes.losses, notes.aborts) == ([here], 0, [], [])
    assert (exchange.state, exchange.terminal, notes.released) == (State.DONE, None, 1)


async def test_an_end_that_is_decided_here_is_told_once_it_is_committed() -> None:
    notes = Notes()
    exchange = open_exchange(notes)
    exchange.claims = Minted()
    exchange.abort("why")
    taken = await exchange.take()
    assert taken.terminal is not None
    assert (taken.terminal.outcome, exchange.state, notes.aborts) == (
        Outcome.CANCELLED,
        State.ENDING,
        [],
    )
    exchange.tell_end()
    assert notes.aborts == ["why"]


async def test_an_owner_that_has_ended_meanwhile_is_told_nothing() -> None:
    notes = Notes()
    exchange = open_exchange(notes)
    exchange.claims = Minted()
    exchange.abort("why")
    exchange.finish(COMPLETED)
    exchange.tell_end()
    taken = await exchange.take()
    assert taken.terminal is not None
    assert (taken.terminal.outcome, notes.aborts) == (Outcome.CANCELLED, [])
