"""Calls of clients, as one client link inside this process: it plays their gateway.

Every call is a request on that link, under a slot of its own.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from services.orchestrator.core.effects import (
    AnswerInteraction,
    Effect,
    EndRequest,
    SendGrants,
    SendRows,
)
from services.orchestrator.core.events import (
    AbortAsked,
    ClientAttached,
    CreditGranted,
    HandleLost,
    InputsAppended,
    InteractAsked,
    Opened,
)
from services.orchestrator.driver import Driver
from stagemesh.link.core import (
    INPUT_END,
    NO_SOURCE,
    REQUEST_SOURCE,
    WINDOW_BYTES,
    WINDOW_UNITS,
    Grant,
    Meter,
    Row,
    SlotMint,
    Window,
    row_cost,
)
from stagemesh.media import Body, Request
from stagemesh.outcome import Terminal

__all__ = ["CALLS_LINK", "Call", "Calls"]

ANSWERS_MAX: Final = 256

CALLS_LINK: Final = 0
"""The number of this link; those of the pump start above it."""


class Call:
    """One call: what its request gave and its client has not been written yet.

    Credit bounds the rows: no more come until `wrote` was told of those that were taken. The input
    of a conversation is bounded alike: `room` waits until the core has taken what came before.
    """

    def __init__(self, calls: "Calls", slot: int, ended: Callable[[], object]) -> None:
        self._calls = calls
        self._slot = slot
        self._ended = ended
        self._meter = Meter(WINDOW_UNITS, WINDOW_BYTES)
        self._rows: list[Row] = []
        self._answers: list[AnswerInteraction] = []  # As many as there were prompts, at most.
        self._terminal: Terminal | None = None
        self._left = False
        self._news = asyncio.Event()
        self._window = Window(*calls.input_window)
        self._roomy = asyncio.Event()
        self._appended = 0
        self._told = asyncio.Event()

    async def take(self) -> tuple[list[Row], Terminal | None]:
        """Wait for news, and give all rows that wait, with the terminal once it has come."""
        await self._news.wait()
        self._news.clear()
        rows, self._rows = self._rows, []
        return rows, self._terminal

    def take_answers(self) -> list[AnswerInteraction]:
        """Give what has come of prompts since this was last asked."""
        answers, self._answers = self._answers, []
        self._told.set()
        return answers

    async def told(self) -> None:
        """Wait until the client has been told of most prompts that were answered."""
        while len(self._answers) >= ANSWERS_MAX:
            self._told.clear()
            await self._told.wait()

    def wrote(self, rows: Sequence[Row]) -> None:
        """Return the credit of rows that the client was written."""
        units = size_bytes = 0
        for row in rows:
            cost_units, cost_bytes = row_cost(row)
            units += cost_units
            size_bytes += cost_bytes
        totals = self._meter.took(units, size_bytes)
        if totals is not None and self._terminal is None:
            self._calls.grant(Grant(self._slot, NO_SOURCE, *totals))

    async def room(self) -> None:
        """Wait until more input may be given."""
        while not self._window.open:
            self._roomy.clear()
            await self._roomy.wait()

    def append(
        self, text: str = "", audio: Body | None = None, *, segment_end: bool = False
    ) -> None:
        """Give a piece of input; after the end of the request it goes nowhere."""
        self._give(Row(self._slot, REQUEST_SOURCE, self._appended, 1, text, body=audio,
                       segment_end=segment_end))  # fmt: skip

    def interact(self, interaction_id: str, text: str) -> None:
        """Give another prompt; after the end of the request it goes nowhere."""
        if self._terminal is None and not self._left:
            self._calls.interact(self._slot, interaction_id, text)

    def close_input(self) -> None:
        """Say that no more input comes."""
        self._give(Row(self._slot, REQUEST_SOURCE, self._appended, 0, end=INPUT_END))

    def granted(self, grant: Grant) -> None:
        """Take credit for input."""
        self._window.grant(grant.units, grant.bytes)
        self._roomy.set()

    def _give(self, row: Row) -> None:
        self._appended += row.units
        self._window.spend(*row_cost(row))
        if self._terminal is None and not self._left:
            self._calls.append(row)

    def lost_handle(self, handle_id: str) -> None:
        """Tell the core that the bytes of a handle could not be fetched."""
        if self._terminal is None:
            self._calls.lose_handle(self._slot, handle_id)

    def leave(self, cause: str) -> None:
        """Say that the client is gone: its request is aborted, unless it has ended."""
        if self._terminal is None and not self._left:
            self._left = True
            self._rows.clear()
            self._calls.abort(self._slot, cause)

    def give(self, row: Row) -> None:
        """Take a row for the client; after it left rows go nowhere."""
        if not self._left:
            self._rows.append(row)
            self._news.set()

    def answer(self, answer: AnswerInteraction) -> None:
        """Take what came of a prompt."""
        if not self._left:
            self._answers.append(answer)
            self._news.set()

    def end(self, terminal: Terminal) -> None:
        """Take the terminal."""
        self._terminal = terminal
        self._ended()
        self._news.set()


class Calls:
    """The link: hands effects to the calls they are for.

    A call is kept from `open` until its terminal, also after its client left.
    """

    def __init__(
        self, driver: Driver, *, input_window: tuple[int, int] = (WINDOW_UNITS, WINDOW_BYTES)
    ) -> None:
        self.input_window = input_window
        """What a call may give of its input at first: as the core's settings say."""
        self._driver = driver
        self._slots = SlotMint()
        self._calls: dict[int, Call] = {}  # As many as requests are open; admission bounds them.

    def __len__(self) -> int:
        return len(self._calls)

    def attach(self) -> None:
        """Make the link known to the core; once, before the first call."""
        self._driver.connect(CALLS_LINK, self)
        self._driver.post(
            ClientAttached(link=CALLS_LINK, window_units=WINDOW_UNITS, window_bytes=WINDOW_BYTES)
        )

    def open(
        self,
        *,
        request_id: str,
        deadline_left_s: float,
        request: Request,
        body: object,
        ended: Callable[[], object],
        streamed: bool = False,
    ) -> Call:
        """Give a request to the core, and make the call that hears of it.

        `deadline_left_s` is 0 where the pipeline's default is meant; `body` goes to workers as it
        is. `ended` is called when the terminal comes, before anybody else hears of it. A `streamed`
        request gets more input by `Call.append`.
        """
        slot = self._slots.next()
        call = self._calls[slot] = Call(self, slot, ended)
        self._driver.post(
            Opened(
                link=CALLS_LINK,
                slot=slot,
                request_id=request_id,
                epoch=1,
                deadline_left_s=deadline_left_s,
                request=request,
                body=body,
                streamed=streamed,
            )
        )
        return call

    def perform(self, effect: Effect) -> None:
        """Hand an effect to its calls. What else a gateway is told, this process knows already."""
        match effect:
            case SendRows():
                for row in effect.rows:
                    self._calls[row.slot].give(row)
            case EndRequest():
                self._calls.pop(effect.slot).end(effect.terminal)
            case AnswerInteraction():
                self._calls[effect.slot].answer(effect)
            case SendGrants():
                for grant in effect.grants:
                    self._calls[grant.slot].granted(grant)
            case _:
                pass

    def grant(self, grant: Grant) -> None:
        """Return credit for a call."""
        self._driver.post(CreditGranted(link=CALLS_LINK, grants=[grant]))

    def append(self, row: Row) -> None:
        """Give a piece of a call's input."""
        self._driver.post(InputsAppended(link=CALLS_LINK, rows=[row]))

    def interact(self, slot: int, interaction_id: str, text: str) -> None:
        """Give another prompt for a call's request."""
        self._driver.post(
            InteractAsked(link=CALLS_LINK, slot=slot, interaction_id=interaction_id, text=text)
        )

    def abort(self, slot: int, cause: str) -> None:
        """Ask for the end of a call's request."""
        self._driver.post(AbortAsked(link=CALLS_LINK, slot=slot, cause=cause))

    def lose_handle(self, slot: int, handle_id: str) -> None:
        """Tell that the bytes of a handle could not be fetched for a call."""
        self._driver.post(HandleLost(link=CALLS_LINK, slot=slot, handle_id=handle_id))
