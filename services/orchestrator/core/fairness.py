"""Weighted fair queueing: whose turn it is among tenants.

Start-time fair queueing. Every tenant has a *start*, a point in virtual time; the least start is
next, and being served moves it on by the cost over the tenant's weight. Virtual time is the start
of whoever was served last, and nobody starts behind it: who was away has no claim to catch up. So
between two turns of a tenant every other one has a bounded number of turns, and tenants that
always wait are served in the proportion of their weights.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Final, Generic, TypeVar

__all__ = ["FairQueue"]

_SLACK: Final = 64
_GONE_MAX: Final = 1024

T = TypeVar("T")


@dataclass(slots=True)
class _Entry(Generic[T]):
    """One item that waits."""

    tenant: str
    cost: float
    item: T


@dataclass(slots=True, eq=False)
class _Line:
    """What waits of one tenant: a heap of places, most urgent first, in which some may be void."""

    start: float
    places: list[tuple[int, int]] = field(default_factory=list)
    count: int = 0
    turn: tuple[float, int] | None = None
    """Its place among the tenants; None while it has nothing, or may not go."""


class FairQueue(Generic[T]):
    """Items that wait, by tenant; within a tenant the higher priority first, then by number.

    Numbers are unique. Each call is O(log n), but for those that give everything. What is kept of
    tenants that have nothing here is bounded, and goes as soon as nobody waits.
    """

    def __init__(self, weights: Mapping[str, float]) -> None:
        self._weights = weights
        self._now = 0.0
        self._turns_given = 0
        self._entries: dict[int, _Entry[T]] = {}
        self._lines: dict[str, _Line] = {}
        self._turns: list[tuple[float, int, str]] = []
        self._gone: dict[str, float] = {}
        """Where tenants start that left while others waited."""

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def kept(self) -> int:
        """How many tenants and places take up memory, void ones among them."""
        places = sum(len(line.places) for line in self._lines.values())
        return places + len(self._lines) + len(self._turns) + len(self._gone)

    def items(self) -> list[T]:
        """Give everything that waits, in the order in which it came."""
        return [entry.item for entry in self._entries.values()]

    def push(self, tenant: str, *, priority: int, number: int, cost: float, item: T) -> None:
        """Let an item wait."""
        line = self._lines.get(tenant)
        if line is None:
            line = self._lines[tenant] = _Line(max(self._now, self._gone.pop(tenant, 0.0)))
            self._take_turn(tenant, line)
        self._entries[number] = _Entry(tenant, cost, item)
        line.count += 1
        heappush(line.places, (-priority, number))

    def pop(self, may: Callable[[str], bool]) -> T | None:
        """Take the next item of a tenant that may go; one that may not waits for `let`."""
        while self._turns:
            start, turn, tenant = heappop(self._turns)
            line = self._lines.get(tenant)
            if line is None or line.turn != (start, turn):
                continue
            line.turn = None
            if may(tenant):
                return self._serve(tenant, line)
        return None

    def let(self, tenant: str) -> None:
        """Let a tenant's turn come again that was not allowed to go."""
        line = self._lines.get(tenant)
        if line is not None and line.turn is None:
            line.start = max(line.start, self._now)
            self._take_turn(tenant, line)

    def remove(self, number: int) -> bool:
        """Take an item out of the queue; whether it was there."""
        entry = self._entries.pop(number, None)
        if entry is None:
            return False
        line = self._lines[entry.tenant]
        line.count -= 1
        if len(line.places) > _SLACK + 2 * line.count:
            line.places = [place for place in line.places if place[1] in self._entries]
            heapify(line.places)
        self._tidy(entry.tenant, line)
        return True

    def _serve(self, tenant: str, line: _Line) -> T:
        while (number := heappop(line.places)[1]) not in self._entries:
            pass
        entry = self._entries.pop(number)
        line.count -= 1
        self._now = line.start
        line.start += entry.cost / self._weights.get(tenant, 1.0)
        if line.count:
            self._take_turn(tenant, line)
        self._tidy(tenant, line)
        return entry.item

    def _take_turn(self, tenant: str, line: _Line) -> None:
        if len(self._turns) > _SLACK + 2 * len(self._lines):
            self._turns = [turn for turn in self._turns if self._is_valid(turn)]
            heapify(self._turns)
        self._turns_given += 1
        line.turn = (line.start, self._turns_given)
        heappush(self._turns, (line.start, self._turns_given, tenant))

    def _is_valid(self, turn: tuple[float, int, str]) -> bool:
        line = self._lines.get(turn[2])
        return line is not None and line.turn == turn[:2]

    def _tidy(self, tenant: str, line: _Line) -> None:
        """Keep of a tenant that has nothing here where it starts; of an empty queue, nothing."""
        if not line.count:
            del self._lines[tenant]
            self._gone[tenant] = line.start
            if len(self._gone) > _GONE_MAX:
                del self._gone[next(iter(self._gone))]
        if not self._entries:
            self._now, self._turns_given = 0.0, 0
            for kept in (self._lines, self._turns, self._gone):
                kept.clear()
