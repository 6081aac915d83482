"""One request that may outlive its gateway: committed first, then given to its consumer."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from services.gateway.client.exchange import Exchange
from services.gateway.client.inputs import ExchangeInput
from services.gateway.client.parties import Taken
from services.gateway.core.detached import LanePosition, OwnerName, moved
from services.gateway.store import RequestRow, RequestStore, insist
from stagemesh.errors import MeshError
from stagemesh.link.core import Row
from stagemesh.outcome import ErrorInfo, Outcome, Terminal, error_for

__all__ = ["Detachable", "Keep"]

Keep = Callable[[list[Row]], bytes]
"""Makes of rows what is stored with their positions."""

_log = logging.getLogger(__name__)

_Claimed = tuple[OwnerName, str, Callable[[], None]]
"""Who is to have the next epoch, the revision there, and what gives it to them."""

_T = TypeVar("_T")


class Detachable:
    """A request for as long as this gateway has it.

    One task does all that is written under its epochs, one after the other: it commits what has
    come, takes the next epoch when another owner is needed, and commits the end. What is refused
    there is another gateway's: then nothing more is written or aborted here. An end that was
    decided here is told to the owner once it is committed.
    """

    def __init__(
        self,
        exchange: Exchange,
        store: RequestStore,
        row: RequestRow,
        keep: Keep,
        *,
        lock: asyncio.Lock,
        begun: bool = False,
        contents: Sequence[bytes] = (),
    ) -> None:
        """Go on under the row's epoch; another gateway has `begun` it, or this one alone had it.

        Who has the `lock` finds it between two writes.
        """
        self.request_id = exchange.request_id
        self.contents = contents
        """What was committed before this gateway took it over."""
        self.detach_s = row.detach_s
        self._exchange = exchange
        self._store = store
        self._row = row
        self._lanes = row.lanes
        self._keep = keep
        self._begun = begun
        self._lock = lock
        self._writes = False
        self._claimed: _Claimed | None = None
        # What was committed and is not taken, and what comes after it: the end, or why there is
        # none here.
        self._rows: list[Row] = []
        self._end: Terminal | ErrorInfo | None = None
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        exchange.redrive.minted(row.epoch)
        exchange.claims = self

    @property
    def epoch(self) -> int:
        """The epoch under which this gateway has it, or had it last."""
        return self._row.epoch

    @property
    def input(self) -> ExchangeInput | None:
        """Where its consumer gives its input piece by piece; what was taken over has all of it."""
        return None if self._begun else self._exchange.input

    async def take(self) -> Taken:
        """Wait until something was committed, and take all of it; its credit goes back.

        After the terminal was given there is nothing more to take.

        Raises:
            MeshError: If this gateway has the request no more: with `taken_over`, `draining`, or
                what the store failed of. Another gateway can go on with it.
        """
        while not self._rows and self._end is None:
            self._news.clear()
            await self._news.wait()
        if isinstance(self._end, ErrorInfo) and not self._rows:
            raise MeshError(self._end)
        rows, self._rows = self._rows, []
        self._exchange.settle(rows)
        return Taken(rows, self._end if isinstance(self._end, Terminal) else None)

    def abort(self, cause: str) -> None:
        """End it because nobody wants the answer any more, unless another gateway has it by now."""
        self._exchange.abort(cause)

    def fail(self, info: ErrorInfo) -> None:
        """End it for a cause that was found here."""
        self._exchange.fail(info)

    @property
    def owner_since(self) -> int:
        """See `Claims`."""
        return self._row.owner_since if self._begun else 0

    @property
    def sole_owner(self) -> OwnerName | None:
        """See `Claims`."""
        return self._row.owner if self._begun else None

    def claim(self, owner: OwnerName, revision: str, give: Callable[[], None]) -> None:
        """See `Claims`."""
        self._claimed = owner, revision, give
        self._exchange.nudge()

    def leave(self, info: ErrorInfo) -> None:
        """See `Claims`; what has its end is let be, since that is being written."""
        if self._end is not None or self._exchange.terminal is not None:
            return
        self._stop(info)
        if self._writes:
            return  # It cedes when that is done: what an epoch was taken for is to be opened, too.
        if self._task is not None:
            self._task.cancel()
        self._exchange.cede(here=True)

    def start(self, tasks: asyncio.TaskGroup) -> "asyncio.Task[None]":
        """Begin to write, as a task of the group."""
        self._task = tasks.create_task(self._run(), name=f"detachable-{self.request_id}")
        return self._task

    async def _run(self) -> None:
        """Write until it is over, or another gateway's; what fails ends this request only."""
        try:
            while await self._write_next():
                pass
            return
        except MeshError as error:
            # The store failed: what it does not have, no gateway may give.
            _log.warning("request_store_failed", extra={"reason": error.info.message})
            info = error.info
        except Exception:
            _log.exception("request_failed", extra={"request_id": self.request_id})
            info = error_for("internal_error")
        self._exchange.cede(here=True)
        self._stop(info)

    async def _write_next(self) -> bool:
        """Wait for what is to be written; tell whether more may follow."""
        taken = await self._exchange.take()
        # Of an owner that is lost by now, these rows are the last.
        claimed, self._claimed = self._claimed, None
        async with self._lock:
            self._writes = True
            try:
                more = await self._write(taken, claimed)
            finally:
                self._writes = False
        if more and self._end is not None:  # It was left meanwhile.
            self._exchange.cede(here=True)
            return False
        return more

    async def _write(self, taken: Taken, claimed: _Claimed | None) -> bool:
        """Write what has come, or is wanted; tell whether more may follow."""
        rows, terminal = taken.rows, taken.terminal
        content = b""
        if rows:
            try:
                content = self._keep(rows)
            except Exception as error:  # A consumer's mistake ends its own request only.
                rows, terminal = [], self._unusable(error)
        lanes = moved(self._lanes, rows)
        new = bool(rows) or terminal is not None
        if new and not await self._commit(lanes, content, terminal):
            await self._lose()
            return False
        self._lanes = lanes
        if self._end is None:
            self._give(rows, terminal)
            if terminal is None and claimed is not None:
                return await self._take_epoch(*claimed)
        return terminal is None

    async def _commit(
        self, lanes: tuple[LanePosition, ...], content: bytes, terminal: Terminal | None
    ) -> bool:
        """Commit some rows, or the end, which the owner is then told; tell whether it counted."""
        request_id, epoch, store = self.request_id, self._row.epoch, self._store
        if terminal is None:
            return await self._insist(lambda: store.commit(request_id, epoch, lanes, content))
        ended_at_s = time.time()
        held = await self._insist(
            lambda: store.finish(
                request_id, epoch, terminal, ended_at_s=ended_at_s, lanes=lanes, content=content
            )
        )
        if held:
            self._exchange.tell_end()
        return held

    async def _take_epoch(self, owner: OwnerName, revision: str, give: Callable[[], None]) -> bool:
        """Take the next epoch for the owner that was chosen; tell whether it could be had."""
        row = await self._insist(
            lambda: self._store.take(self.request_id, self._row.epoch, owner, revision)
        )
        if row is None:
            await self._lose()
            return False
        self._row = row
        self._exchange.redrive.minted(row.epoch)
        give()
        return True

    async def _insist(self, write: Callable[[], Awaitable[_T]]) -> _T:
        """Write, also if the store is busy for a while: its owner waits twice as long."""
        return await insist(write, within_s=self.detach_s / 2)

    async def _lose(self) -> None:
        """Have it no more: another gateway has it, of this very owner or of another."""
        had = self._row
        row = await self._store.read(self.request_id)
        here = row is not None and row.terminal is None and row.owner == had.owner
        _log.info("request_taken_over", extra={"epoch": had.epoch})
        self._exchange.cede(here=here)
        self._stop(error_for("taken_over"))

    def _unusable(self, error: Exception) -> Terminal:
        """End a request of whose rows nothing can be made."""
        if isinstance(error, MeshError):
            info = error.info
        else:
            _log.exception("request_failed", extra={"request_id": self.request_id})
            info = error_for("internal_error")
        self._exchange.fail(info)
        return Terminal(outcome=Outcome.FAILED, error=info)

    def _give(self, rows: list[Row], terminal: Terminal | None) -> None:
        self._rows += rows
        self._end = terminal
        self._news.set()

    def _stop(self, info: ErrorInfo) -> None:
        if self._end is None:
            self._end = info
            self._news.set()
