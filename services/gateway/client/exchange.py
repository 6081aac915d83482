"""One request in flight: what the link's reader gives to the task that answers the client.

The reader appends and wakes once; the task takes all that waits, writes it in one piece, and only
then gives the credit back. The first end decides, whoever brings it: the orchestrator, the client
that went away, the deadline, the end of the link, the drain.
"""

import asyncio
from collections.abc import Awaitable, Callable
from enum import Enum
from typing import Protocol

import msgspec

from services.gateway.core.intake import Intake
from stagemesh.errors import MeshError
from stagemesh.link.core import NO_SOURCE, Grant, Meter, Row, Step, row_cost
from stagemesh.media import Body, Request
from stagemesh.outcome import ErrorInfo, Outcome, Terminal, error_for

__all__ = ["Exchange", "Owner", "State", "Taken", "ended_by"]


class State(Enum):
    """How far an exchange is."""

    OPEN = "open"
    ENDING = "ending"
    """Its end is decided here; the orchestrator has been told and has not answered yet."""
    DONE = "done"


class Owner(Protocol):
    """The link side of an exchange."""

    def grant(self, exchange: "Exchange", grant: Grant) -> None:
        """Return credit."""

    def abort(self, exchange: "Exchange", cause: str) -> None:
        """Tell the orchestrator to stop, and wait a while for its answer."""

    def handle_lost(self, exchange: "Exchange", handle_id: str) -> None:
        """Tell the orchestrator that the bytes of an output could not be had."""

    def release(self, exchange: "Exchange") -> None:
        """Forget an exchange that is done."""


class Taken(msgspec.Struct, gc=False):
    """What waited: rows, and the request's end if these are the last."""

    rows: list[Row]
    terminal: Terminal | None


class Exchange:
    """A request that an orchestrator has; used by one task, and fed by its link."""

    __slots__ = (
        "_fetch", "_intake", "_meter", "_on_drop", "_owner", "_rows", "_waiter", "deadline",
        "request_id", "slot", "state", "terminal",
    )  # fmt: skip

    def __init__(
        self,
        request: Request,
        *,
        request_id: str,
        slot: int,
        window: tuple[int, int],
        owner: Owner,
        fetch: Callable[[Body], Awaitable[Body]],
        on_drop: Callable[[], None],
    ) -> None:
        self.request_id = request_id
        self.slot = slot
        self.state = State.OPEN
        self.terminal: Terminal | None = None
        self.deadline: asyncio.TimerHandle | None = None
        self._intake = Intake(request.choices, request.modalities)
        self._meter = Meter(*window)
        self._owner = owner
        self._fetch = fetch
        self._on_drop = on_drop
        self._rows: list[Row] = []
        self._waiter: asyncio.Future[None] | None = None

    async def take(self) -> Taken:
        """Wait until something came, and take all of it, with the bytes behind handles.

        After the terminal was given there is nothing more to take.
        """
        while not self._rows and self.terminal is None:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        rows, self._rows = self._rows, []
        for index, row in enumerate(rows):
            if row.body is not None and (handle := row.body.handle) is not None:
                try:
                    row.body = await self._fetch(row.body)
                except MeshError as error:
                    self._owner.handle_lost(self, handle.handle_id)
                    self.fail(error.info)
                    # What follows the missing piece would be a gap in the client's eyes.
                    self._rows.clear()
                    return Taken(rows[:index], self.terminal)
        # While bytes were fetched more may have come; the terminal goes with the last of it.
        return Taken(rows, None if self._rows else self.terminal)

    def settle(self, rows: list[Row]) -> None:
        """Give back the credit of rows that the client has, or that are kept for it."""
        if self.state is not State.OPEN:
            return
        units = size = 0
        for row in rows:
            cost = row_cost(row)
            units += cost[0]
            size += cost[1]
        totals = self._meter.took(units, size)
        if totals is not None:
            self._owner.grant(self, Grant(self.slot, NO_SOURCE, *totals))

    def push(self, row: Row) -> None:
        """Take one row from the link; what is not visible, or comes after the end, is dropped."""
        if self.state is not State.OPEN or not row.visible:
            return
        step = self._intake.check(row)
        if step is Step.ACCEPT:
            self._rows.append(row)
            self._wake()
        elif step is Step.DROP:
            self._on_drop()
        else:
            self.fail(
                error_for(
                    "protocol_error",
                    f"Lane {row.lane:#x} came at {row.pos}, not at "
                    f"{self._intake.expected(row.lane)}.",
                )
            )

    def finish(self, terminal: Terminal) -> None:
        """Take the orchestrator's end; one that crosses a decision of our own is only noted."""
        self._decide(terminal)
        self._close()

    def abort(self, cause: str) -> None:
        """End it because nobody wants the answer any more."""
        self._end_here(
            Terminal(outcome=Outcome.CANCELLED, error=error_for("aborted", f"Aborted: {cause}.")),
            cause,
        )

    def fail(self, info: ErrorInfo, outcome: Outcome = Outcome.FAILED) -> None:
        """End it for a cause that was found here."""
        self._end_here(Terminal(outcome=outcome, error=info), info.reason)

    def lose(self, reason: str) -> None:
        """End it because its link is over."""
        self.finish(
            Terminal(
                outcome=Outcome.FAILED,
                error=error_for("link_lost", f"The link to the orchestrator ended ({reason})."),
            )
        )

    def _end_here(self, terminal: Terminal, cause: str) -> None:
        if self.state is State.OPEN:
            self.state = State.ENDING
            self._decide(terminal)
            self._owner.abort(self, cause)

    def _decide(self, terminal: Terminal) -> None:
        if self.terminal is None:
            self.terminal = terminal
            self._wake()

    def _close(self) -> None:
        if self.state is not State.DONE:
            self.state = State.DONE
            if self.deadline is not None:
                self.deadline.cancel()
            self._owner.release(self)

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)


def ended_by(terminal: Terminal) -> ErrorInfo:
    """Give the cause of an end that was not a success."""
    if terminal.error is not None:
        return terminal.error
    reasons = {Outcome.CANCELLED: "aborted", Outcome.DEADLINE_EXCEEDED: "deadline_exceeded"}
    return error_for(reasons.get(terminal.outcome, "internal_error"))
