"""The attempts of a worker, found by slot and by number, and how much room there is."""

import heapq
from collections.abc import Iterator

from services.stage_worker.core.attempt import Attempt, State
from services.stage_worker.engines.base import LoadReport

__all__ = ["AttemptTable"]


class AttemptTable:
    """Every attempt that a link still speaks of, or that the engine has not let go of."""

    def __init__(self) -> None:
        self._by_slot: dict[tuple[int, int], Attempt] = {}
        self._by_number: dict[int, Attempt] = {}
        self._deadlines: list[tuple[float, int]] = []
        self._last_number = 0

    def __len__(self) -> int:
        return len(self._by_number)

    @property
    def open(self) -> int:
        """How many attempts a link still waits for."""
        return len(self._by_slot)

    @property
    def waiting(self) -> int:
        """How many attempts have a place in the engine that they do not use yet."""
        return sum(attempt.state is State.WAITING for attempt in self._by_number.values())

    @property
    def running(self) -> int:
        """How many attempts the engine has."""
        return sum(attempt.in_engine for attempt in self._by_number.values())

    @property
    def occupied(self) -> int:
        """How many places in the engine are taken, used or not."""
        return sum(
            attempt.in_engine or attempt.state is State.WAITING
            for attempt in self._by_number.values()
        )

    @property
    def busy(self) -> bool:
        """Whether the engine has an attempt that waits for nothing but the engine."""
        return any(
            attempt.in_engine and attempt.input_closed for attempt in self._by_number.values()
        )

    def load(self, steps: int) -> LoadReport:
        """Tell how busy the worker is; `steps` is the engine's count."""
        return LoadReport(running=self.running, waiting=self.waiting, steps=steps)

    @property
    def held_bytes(self) -> int:
        """The memory of all outputs that wait for credit."""
        return sum(attempt.held_bytes for attempt in self._by_slot.values())

    def next_number(self) -> int:
        """Mint the worker's own number of an attempt; never used again."""
        self._last_number += 1
        return self._last_number

    def add(self, attempt: Attempt) -> None:
        """Add an attempt that has just begun."""
        self._by_slot[attempt.link, attempt.slot] = attempt
        self._by_number[attempt.number] = attempt
        if attempt.deadline_s is not None:
            heapq.heappush(self._deadlines, (attempt.deadline_s, attempt.number))
        if len(self._deadlines) > 2 * len(self._by_number) + 64:
            self._forget_deadlines()

    def at(self, link: int, slot: int) -> Attempt | None:
        """Find an attempt that its link still speaks of."""
        return self._by_slot.get((link, slot))

    def get(self, number: int) -> Attempt | None:
        """Find an attempt by the worker's own number."""
        return self._by_number.get(number)

    def let_go(self, attempt: Attempt) -> None:
        """Drop an attempt as far as it is over: for its link, for the engine, or both."""
        if attempt.ended:
            self._by_slot.pop((attempt.link, attempt.slot), None)
            if not attempt.in_engine:
                self._by_number.pop(attempt.number, None)

    def spoken_of(self) -> Iterator[Attempt]:
        """Give the attempts whose links wait for them; the table may be changed meanwhile."""
        yield from list(self._by_slot.values())

    def of_request(self, request_id: str) -> list[Attempt]:
        """Find the open attempts of a request."""
        return [a for a in self._by_slot.values() if a.submission.request_id == request_id]

    def below(self, request_id: str, epoch: int) -> list[Attempt]:
        """Find those of lower epochs that were not told to stop.

        Who asked for a stop may still be there, and holds an engine slot until it is told.
        """
        return [
            attempt
            for attempt in self.of_request(request_id)
            if attempt.submission.epoch < epoch and attempt.state is not State.STOPPING
        ]

    def of_link(self, link: int) -> list[Attempt]:
        """Find the open attempts of a link."""
        return [attempt for attempt in self._by_slot.values() if attempt.link == link]

    def next_deadline_s(self) -> float | None:
        """Tell when the next open attempt runs out of time."""
        while self._deadlines:
            attempt = self._by_number.get(self._deadlines[0][1])
            if attempt is not None and not attempt.ended:
                return self._deadlines[0][0]
            heapq.heappop(self._deadlines)
        return None

    def late(self, now_s: float) -> list[Attempt]:
        """Take the open attempts whose time is up."""
        found: list[Attempt] = []
        while (deadline_s := self.next_deadline_s()) is not None and deadline_s <= now_s:
            number = heapq.heappop(self._deadlines)[1]
            found.append(self._by_number[number])
        return found

    def _forget_deadlines(self) -> None:
        """Drop the deadlines of attempts that ended long before theirs."""
        self._deadlines = [entry for entry in self._deadlines if entry[1] in self._by_number]
        heapq.heapify(self._deadlines)
