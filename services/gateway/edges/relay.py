"""From an exchange to its client: streamed or whole, ended once, given up when the client goes."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Final, Protocol, Self

from services.gateway.client import Exchange, State, Taken, ended_by
from services.gateway.edges.call import Call
from stagemesh.errors import MeshError
from stagemesh.link.core import Row
from stagemesh.outcome import ErrorInfo, Outcome, Status, Terminal, Usage, status_of

__all__ = ["SSE", "EndedBadly", "Watched", "Writer", "collect", "stream"]


SSE: Final = "text/event-stream; charset=utf-8"


_UNCACHED: Final = (("cache-control", "no-cache"), ("x-accel-buffering", "no"))
"""A proxy that keeps pieces back would undo the stream."""


class EndedBadly(Exception):
    """A request ended without success before anything of its answer was sent."""

    def __init__(self, terminal: Terminal) -> None:
        super().__init__(terminal.outcome.name)
        self.terminal = terminal


class Writer(Protocol):
    """Turns rows into what the client's stream carries."""

    def write(self, rows: Sequence[Row]) -> bytes:
        """Write some rows, all in one piece."""

    def close(self, usage: Usage) -> bytes:
        """Write the end of a stream that ended well."""

    def fail(self, info: ErrorInfo, status: Status, request_id: str) -> bytes:
        """Write an error after the first byte; nothing means that the stream can only be cut."""


class Watched:
    """An exchange for as long as its client is there.

    A client that goes away ends it at once, and so does leaving the block before its end.
    """

    __slots__ = ("_call", "_watcher", "exchange")

    def __init__(self, call: Call, exchange: Exchange) -> None:
        self._call = call
        self.exchange = exchange
        self._watcher: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._watcher = asyncio.create_task(self._watch())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self.exchange.state is State.OPEN:
            self.exchange.abort("the answer was given up")
        if self._watcher is not None:
            self._watcher.cancel()
            await asyncio.wait((self._watcher,))

    async def _watch(self) -> None:
        while (await self._call.receive())["type"] != "http.disconnect":
            pass
        self.exchange.abort("the client went away")


async def stream(
    call: Call,
    exchange: Exchange,
    writer: Writer,
    content_type: str,
    headers: Callable[[], Iterable[tuple[str, str]]] = tuple,
) -> None:
    """Send what comes as it comes: one write for all that waits, then its credit back.

    The answer's head goes with the first piece, so that a request that fails before it has a status
    of its own.

    Raises:
        EndedBadly: If it failed before anything was sent.
    """
    metrics = call.backend.metrics
    rows = writes = 0
    metrics.open_streams.inc()
    try:
        last = False
        while not last:
            taken = await exchange.take()
            piece, last = _piece(call, exchange, writer, taken)
            if piece or last:
                if not call.status:
                    await call.start(200, content_type, (*_UNCACHED, *headers()))
                if last and not piece and not _ended_well(exchange):
                    return  # Cut off: bytes without their last chunk are not mistaken for a whole.
                await call.piece(piece, more=not last)
                writes += 1
            rows += len(taken.rows)
            exchange.settle(taken.rows)
    finally:
        metrics.open_streams.dec()
        if writes:
            metrics.rows.inc(rows)
            metrics.writes.inc(writes)
            metrics.rows_per_write.observe(rows / writes)


def _piece(call: Call, exchange: Exchange, writer: Writer, taken: Taken) -> tuple[bytes, bool]:
    """Write what was taken; return the piece, and whether it is the last."""
    terminal = taken.terminal
    try:
        if terminal is None:
            return writer.write(taken.rows), False
        if terminal.outcome is Outcome.COMPLETED:
            return writer.write(taken.rows) + writer.close(terminal.usage), True
        if not call.status:
            raise EndedBadly(terminal)
        piece = writer.write(taken.rows)
    except MeshError as error:
        # What came cannot be written: our peer's mistake, found only now.
        exchange.fail(error.info)
        terminal = Terminal(outcome=Outcome.FAILED, error=error.info)
        if not call.status:
            raise EndedBadly(terminal) from None
        piece = b""
    info = ended_by(terminal)
    return piece + writer.fail(info, status_of(terminal.outcome, info.code), call.request_id), True


def _ended_well(exchange: Exchange) -> bool:
    return exchange.terminal is not None and exchange.terminal.outcome is Outcome.COMPLETED


async def collect(exchange: Exchange, add: Callable[[list[Row]], None]) -> Terminal:
    """Collect everything, and give the terminal of a request that ended well.

    Raises:
        EndedBadly: If it did not.
        MeshError: If what came cannot be used.
    """
    while True:
        taken = await exchange.take()
        if taken.terminal is not None and taken.terminal.outcome is not Outcome.COMPLETED:
            raise EndedBadly(taken.terminal)
        try:
            add(taken.rows)
        except MeshError as error:
            exchange.fail(error.info)
            raise EndedBadly(Terminal(outcome=Outcome.FAILED, error=error.info)) from None
        exchange.settle(taken.rows)
        if taken.terminal is not None:
            return taken.terminal
