"""What both variants of the chain share: a zero-compute engine and its tokens."""

import asyncio
import random
from collections.abc import Callable

from stagemesh.media import Modality, lane_of

__all__ = ["LANE", "WINDOW_BYTES", "WINDOW_UNITS", "WORDS", "Streams", "random_words"]

LANE = lane_of(0, 0, Modality.TEXT)
WINDOW_UNITS = 64
WINDOW_BYTES = 1 << 20
WORDS = 1024


def random_words(seed: int) -> list[str]:
    """Tokens of the sizes that language models write."""
    draw = random.Random(seed)
    letters = "abcdefghijklmnopqrstuvwxyz"
    return [" " + "".join(draw.choices(letters, k=draw.randint(1, 8))) for _ in range(WORDS)]


class Streams:
    """A zero-compute engine: one token a step for each stream that has room."""

    def __init__(self, step_s: float) -> None:
        self._step_s = step_s
        self.step: Callable[[], bool] = lambda: False
        self.wake = asyncio.Event()

    async def run(self) -> None:
        """Step for ever: at a fixed rate, or as fast as somebody has room."""
        loop = asyncio.get_running_loop()
        next_s = loop.time()
        while True:
            moved = self.step()
            if self._step_s:
                next_s = max(next_s + self._step_s, loop.time() - self._step_s)
                await asyncio.sleep(next_s - loop.time())
            elif moved:
                await asyncio.sleep(0)
            else:
                self.wake.clear()
                await self.wake.wait()
