"""Attempts that nobody hears any more: kept for a while, then stopped."""

from collections import deque

__all__ = ["Orphans"]


class Orphans:
    """When each orphan's time is up; time is an argument. They all get the same."""

    def __init__(self, orphan_s: float) -> None:
        self._orphan_s = orphan_s
        self._ends: deque[tuple[float, int]] = deque()

    @property
    def next_s(self) -> float | None:
        """When the first one's time is up; it may have ended before."""
        return self._ends[0][0] if self._ends else None

    def add(self, attempt: int, now_s: float) -> None:
        """Note that nobody hears an attempt from now on."""
        self._ends.append((now_s + self._orphan_s, attempt))

    def due(self, now_s: float) -> list[int]:
        """Take the attempts whose time is up."""
        due: list[int] = []
        while self._ends and self._ends[0][0] <= now_s:
            due.append(self._ends.popleft()[1])
        return due
