"""Credit: how far a sender may run ahead of its receiver, in units and in bytes.

Both ends count totals since the key began, so a grant that is repeated or late does no harm, and
nothing has to be taken back when a key ends.
"""

from collections import deque
from typing import Final

import msgspec

from stagemesh.link.core.rows import Row, row_cost

__all__ = ["WINDOW_BYTES", "WINDOW_UNITS", "Meter", "Sender", "Window"]

WINDOW_UNITS: Final = 64
WINDOW_BYTES: Final = 1024 * 1024
"""The first window of a key, where nobody sets another."""


class Window:
    """A sender's account of one key: it may send while both sums are above zero.

    The last thing sent may overrun either sum by itself.
    """

    __slots__ = ("_bytes_left", "_bytes_total", "_units_left", "_units_total")

    def __init__(self, units: int, bytes: int) -> None:
        self._units_left = self._units_total = units
        self._bytes_left = self._bytes_total = bytes

    @property
    def open(self) -> bool:
        """Whether something may go now."""
        return self._units_left > 0 and self._bytes_left > 0

    def spend(self, units: int, bytes: int) -> None:
        """Count something that was sent."""
        self._units_left -= units
        self._bytes_left -= bytes

    def grant(self, units_total: int, bytes_total: int) -> None:
        """Raise the totals; a total that is not higher than the last one changes nothing."""
        if units_total > self._units_total:
            self._units_left += units_total - self._units_total
            self._units_total = units_total
        if bytes_total > self._bytes_total:
            self._bytes_left += bytes_total - self._bytes_total
            self._bytes_total = bytes_total


class Sender:
    """A sender's account of one key, and the rows that wait for it, in one queue over all lanes.

    A text row that adjoins the last one waiting is joined to it, up to half a window, so that one
    step past a full window costs no row of its own. Nothing waits once it may go. A row that costs
    nothing (a bare end) needs no credit, but never overtakes.
    """

    __slots__ = (
        "_held", "_join_bytes_max", "_join_units_max", "_tail_is_ours", "_window", "held_bytes",
        "held_units",
    )  # fmt: skip

    def __init__(self, units: int, bytes: int) -> None:
        self._window = Window(units, bytes)
        self._held: deque[Row] = deque()
        self._join_units_max = max(1, units // 2)
        self._join_bytes_max = max(1, bytes // 2)
        self._tail_is_ours = False
        self.held_units = 0
        self.held_bytes = 0

    def offer(self, row: Row) -> list[Row]:
        """Take one more row; return what may go now, in order."""
        units, size = row_cost(row)
        window = self._window
        if not self._held and (window.open or not (units or size)):
            window.spend(units, size)
            return [row]
        self.held_units += units
        self.held_bytes += size
        if not self._join(row):
            self._held.append(row)
            self._tail_is_ours = False
        return []

    def grant(self, units_total: int, bytes_total: int) -> list[Row]:
        """Raise the totals; return what may go now, in order."""
        window = self._window
        window.grant(units_total, bytes_total)
        released: list[Row] = []
        while self._held:
            units, size = row_cost(self._held[0])
            if not window.open and (units or size):
                break
            window.spend(units, size)
            self.held_units -= units
            self.held_bytes -= size
            released.append(self._held.popleft())
        return released

    def overrun(self, row: Row) -> None:
        """Count a row that goes whatever the totals, since its receiver has room for it."""
        self._window.spend(*row_cost(row))

    def release(self) -> list[Row]:
        """Give everything that waits, in order, whatever the totals: the key is about to end."""
        released = list(self._held)
        self._held.clear()
        self.held_units = self.held_bytes = 0
        return released

    def _join(self, row: Row) -> bool:
        """Join a row to the last one waiting, if it continues that one's text."""
        if not self._held:
            return False
        tail = self._held[-1]
        if (
            tail.lane != row.lane
            or tail.pos + tail.units != row.pos
            or tail.kind != row.kind
            or tail.visible != row.visible
            or tail.end is not None
            or tail.segment_end
            or tail.origin != row.origin
            or tail.body is not None
            or row.body is not None
            or (tail.ids is None) != (row.ids is None)
            or tail.units + row.units > self._join_units_max
            or tail.size_bytes + row.size_bytes > self._join_bytes_max
        ):
            return False
        if not self._tail_is_ours:
            # Whoever offered the tail may still read it: the journal keeps the same objects.
            tail = msgspec.structs.replace(tail, ids=None if tail.ids is None else [*tail.ids])
            self._held[-1] = tail
            self._tail_is_ours = True
        tail.units += row.units
        tail.text += row.text
        tail.end = row.end
        tail.segment_end = row.segment_end
        if tail.ids is not None and row.ids is not None:
            tail.ids += row.ids
        return True


class Meter:
    """A receiver's account of one key: it tells when it is worth granting more.

    A grant is due once half a window was taken since the last one: often enough that the sender
    never waits for a receiver that keeps up, and seldom enough to cost nothing. Where a grant also
    confirms what was taken, it is due `each` time.
    """

    __slots__ = (
        "_bytes_granted", "_bytes_step", "_bytes_taken", "_bytes_window", "_units_granted",
        "_units_step", "_units_taken", "_units_window",
    )  # fmt: skip

    def __init__(self, window_units: int, window_bytes: int, *, each: bool = False) -> None:
        self._units_window = window_units
        self._bytes_window = window_bytes
        self._units_step = 1 if each else max(1, window_units // 2)
        self._bytes_step = 1 if each else max(1, window_bytes // 2)
        self._units_taken = self._units_granted = 0
        self._bytes_taken = self._bytes_granted = 0

    def took(self, units: int, bytes: int) -> tuple[int, int] | None:
        """Count what was taken; return the totals to grant, if a grant is due."""
        self._units_taken += units
        self._bytes_taken += bytes
        if (
            self._units_taken - self._units_granted < self._units_step
            and self._bytes_taken - self._bytes_granted < self._bytes_step
        ):
            return None
        self._units_granted = self._units_taken
        self._bytes_granted = self._bytes_taken
        return self._units_taken + self._units_window, self._bytes_taken + self._bytes_window
