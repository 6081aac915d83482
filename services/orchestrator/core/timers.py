"""What is to happen at an instant: a heap whose cancelled entries go when they are many."""

from dataclasses import dataclass
from enum import Enum, auto
from heapq import heapify, heappop, heappush
from typing import Any, Final

__all__ = ["Due", "Timer", "Timers"]

_SLACK: Final = 64


class Due(Enum):
    """What a timer is for."""

    DEADLINE = auto()
    ABORT_ACK = auto()
    USAGE_WAIT = auto()
    SLOW_CLIENT = auto()
    RENEWAL = auto()
    PLACEMENT = auto()
    STALL = auto()
    DRAIN = auto()
    TOMBSTONES = auto()
    RELEASE = auto()
    ORPHAN = auto()
    JOIN = auto()
    CONTROL = auto()


@dataclass(slots=True, eq=False)
class Timer:
    """One instant on the clock of `now_s`; a cancelled one has no target."""

    when_s: float
    due: Due
    target: Any


class Timers:
    """All timers of the core."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Timer]] = []
        self._count = 0
        self._cancelled = 0

    def __len__(self) -> int:
        return len(self._heap) - self._cancelled

    @property
    def entries(self) -> int:
        """How many timers take up memory, cancelled ones among them."""
        return len(self._heap)

    @property
    def next_s(self) -> float | None:
        """When the next one is due."""
        heap = self._heap
        while heap and heap[0][2].target is None:
            heappop(heap)
            self._cancelled -= 1
        return heap[0][0] if heap else None

    def at(self, when_s: float, due: Due, target: Any) -> Timer:
        """Set a timer; those for one instant fire in the order they were set."""
        timer = Timer(when_s, due, target)
        self._count += 1
        heappush(self._heap, (when_s, self._count, timer))
        return timer

    def cancel(self, timer: Timer | None) -> None:
        """Let a timer never fire; one that has fired, or is none, is left alone."""
        if timer is None or timer.target is None:
            return
        timer.target = None
        self._cancelled += 1
        if self._cancelled > _SLACK and self._cancelled * 2 > len(self._heap):
            self._heap = [entry for entry in self._heap if entry[2].target is not None]
            heapify(self._heap)
            self._cancelled = 0

    def take_due(self, now_s: float) -> tuple[Due, Any] | None:
        """Take the next timer that is due, if any: what it is for, and its target."""
        when_s = self.next_s
        if when_s is None or when_s > now_s:
            return None
        timer = heappop(self._heap)[2]
        target, timer.target = timer.target, None
        return timer.due, target
