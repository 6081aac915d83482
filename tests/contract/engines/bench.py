"""An engine under test, and what it gives."""

import asyncio
from collections import defaultdict

from services.stage_worker.engines.base import Engine, EngineInput, Piece
from stagemesh.media import Modality
from tests.contract.engines.case import EngineCase, work

__all__ = ["Bench"]


class Bench:
    """A loaded engine, and what it gives, sorted by attempt."""

    def __init__(self, engine: Engine, case: EngineCase) -> None:
        self.engine = engine
        self.case = case
        self.pieces: dict[int, list[Piece]] = defaultdict(list)
        self.lag_s = 0.0
        self._number = 0
        self._changed = asyncio.Event()

    async def consume(self) -> None:
        """Take every step."""
        async for step in self.engine.outputs():
            assert step
            for piece in step:
                self.pieces[piece.attempt].append(piece)
            self._changed.set()

    async def watch(self) -> None:
        """Measure how long the event loop stands still."""
        loop = asyncio.get_running_loop()
        while True:
            before_s = loop.time()
            await asyncio.sleep(0.01)
            self.lag_s = max(self.lag_s, loop.time() - before_s - 0.01)

    def next(self) -> int:
        """Mint an attempt's number."""
        self._number += 1
        return self._number

    def submit(self, given: EngineInput, *, streamed: bool = False, lasting: bool = False) -> int:
        """Start an attempt; give its number."""
        number = self.next()
        params = self.case.lasting_params if lasting else self.case.params
        self.engine.submit(work(self.case, number, given, params=params, streamed=streamed))
        return number

    def over(self, number: int) -> bool:
        """Whether an attempt has ended all its lanes, or failed."""
        pieces = self.pieces[number]
        ended = {piece.modality for piece in pieces if piece.end is not None}
        return ended == self.case.wanted or any(piece.error for piece in pieces)

    async def until_over(self, *numbers: int) -> None:
        """Wait for the ends of attempts."""
        await self.until(lambda: all(self.over(number) for number in numbers))

    async def until(self, holds: object) -> None:
        """Wait until something holds of the pieces."""
        assert callable(holds)
        async with asyncio.timeout(self.case.answer_s):
            while not holds():
                self._changed.clear()
                await self._changed.wait()

    def result(self, number: int) -> dict[Modality, tuple[int, str, bytes]]:
        """Sum up what an attempt gave: units, text and bytes of each lane."""
        return {
            modality: (
                sum(piece.units for piece in lane),
                "".join(piece.text for piece in lane),
                b"".join(piece.body.inline for piece in lane if piece.body),
            )
            for modality in self.case.wanted
            for lane in [[p for p in self.pieces[number] if p.modality == modality]]
        }
