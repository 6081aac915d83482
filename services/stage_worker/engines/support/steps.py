"""Carries what an engine made to the worker's event loop, one list for each wake-up."""

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence

from services.stage_worker.engines.base import Piece

__all__ = ["Steps"]


class Steps:
    """A queue of pieces with any number of writing threads and one reading task.

    A writer wakes the reader only if nobody has since the reader last looked, so a burst of steps
    costs one wake-up. It is bounded by what the engine's slots can produce: a slot that ended its
    attempt writes no more.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pieces: list[Piece] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._loop_thread = 0
        self._ready = asyncio.Event()
        self._error: BaseException | None = None
        self._closed = False
        self.count = 0

    def bind(self) -> None:
        """Name the running loop as the reader's; call it before the first `put`."""
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()

    def put(self, pieces: Sequence[Piece]) -> None:
        """Add what one engine step made; an empty step counts as progress all the same."""
        with self._lock:
            self.count += 1
            wake = bool(pieces) and not self._pieces
            self._pieces.extend(pieces)
        if wake:
            self._wake()

    def fail(self, error: BaseException) -> None:
        """Make the reader raise once it has read what is left: the engine is broken as a whole."""
        with self._lock:
            self._error = self._error or error
        self._wake()

    def close(self) -> None:
        """End the reader once it has read what is left."""
        with self._lock:
            self._closed = True
        self._wake()

    async def read(self) -> AsyncIterator[list[Piece]]:
        """Yield all waiting pieces, again and again, until `close` or `fail`."""
        while True:
            await self._ready.wait()
            with self._lock:
                self._ready.clear()
                pieces, self._pieces = self._pieces, []
                error, closed = self._error, self._closed
            if pieces:
                yield pieces
            if error is not None:
                raise error
            if closed:
                return

    def _wake(self) -> None:
        if threading.get_ident() == self._loop_thread:
            self._ready.set()
        elif self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._ready.set)
