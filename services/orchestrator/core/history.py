"""What happened to one request: a bounded list of entries, none of them per output."""

from collections import deque
from enum import IntEnum
from typing import Final

import msgspec

from stagemesh.outcome import Timings

__all__ = ["ENTRIES_MAX", "Entry", "History", "Kind"]

_FIRST_MAX: Final = 32
_LAST_MAX: Final = 96
ENTRIES_MAX: Final = _FIRST_MAX + _LAST_MAX
"""How many entries are kept of a request: its first ones and its last ones."""


class Kind(IntEnum):
    """What an entry tells, as in `orchestrator_service.proto`."""

    OPENED = 1
    ADMITTED = 2
    PENDING = 3
    SUBMITTED = 4
    STREAMING = 5
    FIRST_OUTPUT = 6
    ATTEMPT_ENDED = 7
    REDRIVEN = 8
    RESET = 9
    STOPPING = 10
    ORPHANED = 11
    DONE = 12


class Entry(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One thing that happened, on the core's clock.

    `seconds` is how long what ended with it took: a wait, a delay, or the life of an attempt.
    """

    at_s: float
    kind: Kind
    stage: str = ""
    role: int = 0
    attempt: int = 0
    replica_id: str = ""
    incarnation: int = 0
    state: str = ""
    cause: str = ""
    seconds: float = 0.0
    timings: Timings | None = None


class History:
    """The entries of one request. Where there are too many, those in the middle go."""

    __slots__ = ("_count", "_first", "_last")

    def __init__(self) -> None:
        self._first: list[Entry] = []
        self._last: deque[Entry] = deque(maxlen=_LAST_MAX)
        self._count = 0

    def add(self, entry: Entry) -> None:
        """Write an entry."""
        self._count += 1
        if len(self._first) < _FIRST_MAX:
            self._first.append(entry)
        else:
            self._last.append(entry)

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Give what is kept, in order."""
        return (*self._first, *self._last)

    @property
    def dropped(self) -> int:
        """How many entries are not kept."""
        return self._count - len(self._first) - len(self._last)
