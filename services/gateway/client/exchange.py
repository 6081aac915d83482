"""One request in flight: what the links' readers give to the task that answers the client.

The reader appends and wakes once; the task takes all that waits, writes it in one piece, and only
then gives the credit back. The first end decides, whoever brings it: the orchestrator, the client
that went away, the deadline, the drain. A lost owner is no end: the stream pauses until the next
one goes on where this journal stands.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from services.gateway.client.inputs import ExchangeInput
from services.gateway.client.parties import Claims, Keeper, Owner, State, Taken
from services.gateway.core.journal import RequestJournal
from services.gateway.core.redrive import Loss, LossKind, Redrive, is_refusal
from stagemesh.errors import MeshError
from stagemesh.link.core import (
    NO_SOURCE,
    Grant,
    Meter,
    Placed,
    Row,
    Step,
    confirming_cost,
    row_cost,
)
from stagemesh.media import Body, Handle, Request
from stagemesh.outcome import ErrorInfo, Outcome, Terminal, error_for

__all__ = ["Exchange", "ended_by"]


_LEAST_S: Final = 0.001


class Exchange:
    """A request from its first owner to its end; used by one task, and fed by its owner's link."""

    __slots__ = (
        "_behind", "_cause", "_complete", "_fetch", "_gone", "_keeper", "_meter", "_nudged",
        "_on_drop", "_owner", "_proven", "_rows", "_waiter", "_window", "claims", "deadline",
        "deadline_at_s", "input", "journal", "redrive", "request", "request_id", "retry", "slot",
        "state", "terminal",
    )  # fmt: skip

    def __init__(
        self,
        request: Request,
        *,
        request_id: str,
        window: tuple[int, int],
        keeper: Keeper,
        journal: RequestJournal,
        redrive: Redrive,
        deadline_at_s: float,
        fetch: Callable[[Body], Awaitable[Body]],
        on_drop: Callable[[], None],
        input: ExchangeInput | None = None,
    ) -> None:
        self.request = request
        self.request_id = request_id
        self.slot = 0
        self.state = State.OPEN
        self.terminal: Terminal | None = None
        self.journal = journal
        self.input = input
        """Of a request whose client gives it piece by piece."""
        self.redrive = redrive
        self.deadline_at_s = deadline_at_s
        """When its client's time is up, by the loop's clock; 0 if it set none."""
        self.deadline: asyncio.TimerHandle | None = None
        self.retry: asyncio.TimerHandle | None = None
        self.claims: Claims | None = None
        """Of a request that may outlive this gateway; set before its first owner."""
        self._keeper = keeper
        self._owner: Owner | None = None
        self._proven = False
        self._window = window
        self._meter = Meter(*window)
        self._fetch = fetch
        self._on_drop = on_drop
        # What came and was not taken; a row's slot is the epoch that it came under.
        self._rows: list[Row] = []
        # From the first whose bytes are elsewhere on: rows, and whether each waits to be delivered.
        self._behind: list[tuple[Row, bool]] = []
        # A success that came before the bytes of all that it completes.
        self._complete: Terminal | None = None
        # Of an end that was decided here.
        self._cause = ""
        self._nudged = False
        self._waiter: asyncio.Future[None] | None = None
        self._gone: asyncio.Future[None] | None = None

    @property
    def epoch(self) -> int:
        """The number of its owner; 0 before the first."""
        return self.redrive.epoch

    @property
    def recoverable(self) -> bool:
        """Whether another owner could go on with it."""
        return self.journal.recoverable and (self.input is None or self.input.log.whole)

    @property
    def kept_bytes(self) -> int:
        """About how much the next owner has to be sent."""
        return self.journal.size_bytes + (0 if self.input is None else self.input.log.size_bytes)

    def deadline_left_s(self, now_s: float) -> float:
        """How much of the client's time is left, hardly any at least; 0 if it set none."""
        return max(_LEAST_S, self.deadline_at_s - now_s) if self.deadline_at_s else 0.0

    def opened(self, owner: Owner, slot: int, now_s: float) -> None:
        """Note its owner, under a new epoch; its credit begins anew."""
        self._owner = owner
        self.slot = slot
        self._proven = False
        self._meter = Meter(*self._window, each=self.claims is not None)
        self.redrive.opened(now_s)

    async def take(self) -> Taken:
        """Wait until something came, and take what can be had of it, with bytes behind handles.

        After the terminal was given there is nothing more to take. After a nudge it may be nothing.
        """
        while not (self._rows or self._nudged) and (self._behind or self.terminal is None):
            if self._behind:
                await self._fetch_first()
            else:
                self._waiter = asyncio.get_running_loop().create_future()
                await self._waiter
        self._nudged = False
        rows, self._rows = self._rows, []
        return Taken(rows, None if self._behind else self.terminal)

    def nudge(self) -> None:
        """Have whoever takes look up, with or without rows."""
        self._nudged = True
        self._wake()

    def settle(self, rows: list[Row]) -> None:
        """Give back the credit of rows that the client has, or that are kept for it."""
        if self.state is not State.OPEN or self._owner is None:
            return
        epoch = self.epoch
        cost_of = row_cost if self.claims is None else confirming_cost
        units = size = 0
        for row in rows:
            # The credit of an earlier owner went with it.
            if row.slot == epoch:
                cost = cost_of(row)
                units += cost[0]
                size += cost[1]
        totals = self._meter.took(units, size)
        if totals is not None:
            self._owner.grant(self, Grant(self.slot, NO_SOURCE, *totals))

    def push(self, row: Row) -> None:
        """Take one row from the owner's link; what comes after the end is dropped."""
        if self.state is not State.OPEN:
            return
        if not self._proven:
            self._progress()
        step = self.journal.take(row)
        if step is Step.ACCEPT:
            if row.visible:
                row.slot = self.redrive.epoch
                waits = self.journal.waits(row.lane)
                if waits or self._behind:
                    self._behind.append((row, waits))
                else:
                    self._rows.append(row)
                self._wake()
        elif step is Step.DROP:
            self._drop(row)
        else:
            self.fail(
                error_for(
                    "protocol_error",
                    f"Lane {row.lane:#x} came at {row.pos}, not at "
                    f"{self.journal.expected(row.lane)}.",
                )
            )

    def place(self, placed: Placed) -> None:
        """Note where a stage was given."""
        if self.state is State.OPEN:
            self._progress()
            self.journal.place(placed)

    def reset(self, stages: set[int]) -> None:
        """Drop the lanes of stages that start again; what the client has cannot be dropped."""
        if self.state is not State.OPEN:
            return
        self._progress()
        self._rows = [row for row in self._rows if row.lane >> 20 not in stages]
        self._behind = [one for one in self._behind if one[0].lane >> 20 not in stages]
        self._go_on()
        if not self.journal.reset(stages):
            self.fail(
                error_for("internal_error", "Stages start again whose outputs were delivered.")
            )

    def finish(self, terminal: Terminal) -> None:
        """Take the owner's end; one that crosses a decision of our own is only noted."""
        if self.state is State.OPEN:
            if terminal.error is not None and is_refusal(terminal, self.epoch):
                self.lose(Loss(kind=LossKind.REFUSED, info=terminal.error))
                return
            if terminal.outcome is Outcome.COMPLETED and self._behind:
                self._complete = terminal
                self._leave()
                return
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

    def tell_end(self) -> None:
        """Tell the owner of an end that was decided here, which holds by now, if it has not ended.

        What may outlive this gateway may be another's by the time, until its end is committed.
        """
        if self.state is State.ENDING and self._owner is not None:
            self._owner.abort(self, self._cause)

    def lose(self, loss: Loss) -> None:
        """Take it from an owner that is lost; one that is being ended has its end by that."""
        owner = self._owner
        self._leave()
        if self.state is State.OPEN:
            self._drop_waiting()
            self._keeper.lost(self, loss, owner)
        else:
            self._close()

    def cede(self, *, here: bool) -> None:
        """Have it no more, without an end: another gateway has it, or will have; see `Owner`."""
        owner, self._owner = self._owner, None
        if owner is not None:
            owner.cede(self, here=here)
        self._close()

    async def _fetch_first(self) -> None:
        """Fetch the bytes of the row that holds up those behind it; it may be dropped meanwhile."""
        row, _ = self._behind[0]
        assert row.body is not None
        assert row.body.handle is not None
        self._gone = asyncio.get_running_loop().create_future()
        fetching = asyncio.ensure_future(self._fetch(row.body))
        try:
            await asyncio.wait((fetching, self._gone), return_when=asyncio.FIRST_COMPLETED)
            if not fetching.done() or not self._behind or self._behind[0][0] is not row:
                return
            body = fetching.result()
        except MeshError as error:
            self._give_again(row, row.body.handle, error.info)
            return
        finally:
            self._gone = None
            fetching.cancel()
            fetching.add_done_callback(_forget)
        del self._behind[0]
        self.journal.deliver(row)
        row.body = body
        self._rows.append(row)
        self._go_on()
        if self._complete is not None and not self._behind:
            self._decide(self._complete)
            self._close()

    def _go_on(self) -> None:
        """Let rows go up to the next whose bytes are elsewhere; what is fetched now may be void."""
        behind = self._behind
        count = 0
        for row, waits in behind:
            if row.body is not None and row.body.handle is not None:
                break
            if waits:
                self.journal.deliver(row)
            self._rows.append(row)
            count += 1
        self._behind = behind[count:]
        self._stop_fetching()

    def _give_again(self, row: Row, handle: Handle, info: ErrorInfo) -> None:
        """Have the owner give a row again whose bytes are lost, and what follows in its lane."""
        lost = [other for other, _ in self._behind if other.lane == row.lane]
        self._behind = [one for one in self._behind if one[0].lane != row.lane]
        self.journal.take_back(row.lane)
        self._go_on()
        if self.state is not State.OPEN:
            return
        if self._owner is not None:
            self._owner.handle_lost(self, handle.handle_id)
            self.settle(lost)
        if (verdict := self.redrive.handle_lost(info)) is not None:
            self.fail(verdict)
        elif self._complete is not None:
            self.lose(Loss(kind=LossKind.HANDLE, info=info))

    def _drop_waiting(self) -> None:
        """Drop what nobody fetches any more, and a success that stood on it."""
        self._rows += [row for row, waits in self._behind if not waits]
        self._behind = []
        self.journal.take_all_back()
        self._complete = None
        self._stop_fetching()

    def _stop_fetching(self) -> None:
        if self._gone is not None and not self._gone.done():
            self._gone.set_result(None)

    def _drop(self, row: Row) -> None:
        """Drop a row that is of no use; it has cost its sender credit all the same."""
        self._on_drop()
        if row.visible:
            row.slot = self.epoch
            self.settle([row])

    def _progress(self) -> None:
        self._proven = True
        self.redrive.progress()

    def _end_here(self, terminal: Terminal, cause: str) -> None:
        if self.state is not State.OPEN:
            return
        self._drop_waiting()
        self._decide(terminal)
        if self._owner is None:
            self._close()
        else:
            self.state = State.ENDING
            self._cause = cause
            if self.claims is None:
                self.tell_end()

    def _decide(self, terminal: Terminal) -> None:
        if self.terminal is None:
            self.terminal = terminal
            self._wake()

    def _leave(self) -> None:
        owner, self._owner = self._owner, None
        if self.input is not None:
            self.input.left()
        if owner is not None:
            owner.leave(self)

    def _close(self) -> None:
        if self.state is not State.DONE:
            self.state = State.DONE
            for timer in (self.deadline, self.retry):
                if timer is not None:
                    timer.cancel()
            self._leave()
            if self.input is not None:
                self.input.end()
            self._keeper.release(self)

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


def _forget(fetching: "asyncio.Future[Body]") -> None:
    """Take note of how a fetch ended that nobody waits for any more."""
    if not fetching.cancelled():
        fetching.exception()
