"""Queues for engine slots: who goes on after a loss first, then downstream stages, then by age."""

from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from services.orchestrator.core.request import Group

__all__ = ["Ticket", "TicketQueue"]

_SLACK: Final = 64


@dataclass(slots=True, eq=False)
class Ticket:
    """A group's place in a queue; void once the group holds another one, or none."""

    key: tuple[bool, int, int, int]
    group: "Group"

    def __lt__(self, other: "Ticket") -> bool:
        return self.key < other.key

    @property
    def valid(self) -> bool:
        """Whether the group still waits in this place."""
        return self.group.ticket is self


class TicketQueue:
    """The groups that wait for a slot somewhere, in order; void tickets go when they are many."""

    def __init__(self) -> None:
        self._heap: list[Ticket] = []
        self._sweep_at = _SLACK

    def __len__(self) -> int:
        return len(self._heap)

    def push(self, ticket: Ticket) -> None:
        """Add a ticket."""
        if len(self._heap) >= self._sweep_at:
            self._heap = self.valid()
            heapify(self._heap)
            self._sweep_at = max(_SLACK, 2 * len(self._heap))
        heappush(self._heap, ticket)

    def head(self) -> Ticket | None:
        """Give the first ticket that is valid, and leave it there."""
        heap = self._heap
        while heap and not heap[0].valid:
            heappop(heap)
        return heap[0] if heap else None

    def pop(self) -> None:
        """Take the first ticket away."""
        heappop(self._heap)

    def valid(self) -> list[Ticket]:
        """Give all that are valid, in no order."""
        return [ticket for ticket in self._heap if ticket.valid]

    def drain(self) -> list[Ticket]:
        """Take all that are valid away."""
        tickets, self._heap = self.valid(), []
        return tickets
