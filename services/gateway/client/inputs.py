"""The streamed input of one exchange: kept for whoever owns it next, and sent as credit allows."""

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from services.gateway.core.inputs import InputLog
from stagemesh.link.core import INPUT_END, REQUEST_SOURCE, Grant, Row, Window, row_cost
from stagemesh.media import Body
from stagemesh.outcome import End

__all__ = ["ExchangeInput"]

Send = Callable[[Sequence[Row]], None]


class ExchangeInput:
    """What one client gives piece by piece. Between two owners nothing may be given."""

    def __init__(self, log: InputLog) -> None:
        self.log = log
        self._slot = 0
        self._send: Send | None = None
        self._window = Window(0, 0)
        self._over = False
        self._roomy = asyncio.Event()

    async def room(self) -> None:
        """Wait until more may be given; after the end of the request at once."""
        while not (self._over or self._window.open):
            self._roomy.clear()
            await self._roomy.wait()

    def append(
        self, text: str = "", audio: Body | None = None, *, segment_end: bool = False
    ) -> None:
        """Give a piece, or the end of a segment, for which there was room."""
        self._give(1, text, audio, segment_end=segment_end)

    def close(self) -> None:
        """Say that no more comes."""
        self._give(0, end=INPUT_END)

    def opened(self, slot: int, send: Send, window: tuple[int, int]) -> None:
        """Go on with a new owner, which was given everything up to now."""
        self._slot, self._send = slot, send
        self._window = Window(*window)
        self._roomy.set()

    def left(self) -> None:
        """Wait for the next owner."""
        self._send = None
        self._window = Window(0, 0)

    def end(self) -> None:
        """Take nothing more: the request is over."""
        self._send, self._over = None, True
        self.log.rows = []
        self._roomy.set()

    def granted(self, grant: Grant) -> None:
        """Take the owner's credit."""
        self._window.grant(grant.units, grant.bytes)
        self._roomy.set()

    def replayed(self, slot: int) -> list[Row]:
        """Give all pieces so far, for a new owner."""
        return [msgspec.structs.replace(row, slot=slot) for row in self.log.rows]

    def _give(
        self,
        units: int,
        text: str = "",
        audio: Body | None = None,
        *,
        segment_end: bool = False,
        end: End | None = None,
    ) -> None:
        if self._over:
            return
        row = Row(
            self._slot, REQUEST_SOURCE, self.log.next, units, text,
            body=audio, end=end, segment_end=segment_end,
        )  # fmt: skip
        self.log.add(row)
        self._window.spend(*row_cost(row))
        if self._send is not None:
            self._send((row,))
