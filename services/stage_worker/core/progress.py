"""Whether the engine makes steps while it has work."""

from typing import Final

__all__ = ["Progress"]

CHECKS_PER_STALL: Final = 4


class Progress:
    """Watches the engine's count of steps; time is an argument."""

    def __init__(self, stall_s: float) -> None:
        self._stall_s = stall_s
        self._steps = 0
        self._moved_s = 0.0
        self._next_s: float | None = None

    @property
    def next_check_s(self) -> float | None:
        """When to look again; None while the engine has nothing that it must get on with."""
        return self._next_s

    def moved(self, now_s: float) -> None:
        """Note a step that was seen from its outputs."""
        self._moved_s = now_s

    def look(self, steps: int, *, busy: bool, now_s: float) -> bool:
        """Look at the count of steps; True if there was work and no step for too long."""
        if steps != self._steps or self._next_s is None or not busy:
            self._steps = steps
            self._moved_s = now_s
        if not busy:
            self._next_s = None
            return False
        self._next_s = now_s + self._stall_s / CHECKS_PER_STALL
        return now_s - self._moved_s >= self._stall_s

    def watch(self, now_s: float) -> None:
        """Begin to watch, if nothing is watched yet: the engine has just got work."""
        if self._next_s is None:
            self._moved_s = now_s
            self._next_s = now_s + self._stall_s / CHECKS_PER_STALL
