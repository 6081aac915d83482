"""A lane as one attempt's input: its credit, and how far it was sent."""

from dataclasses import dataclass
from typing import Final

from services.orchestrator.core.flow import JOIN_BYTES_MAX, Lane, one_of
from stagemesh.link.core import Row, Window, row_cost
from stagemesh.outcome import End, FinishReason

__all__ = ["Feed"]

_SEGMENT_OVER: Final = End(finish_reason=FinishReason.STOP)


@dataclass(slots=True, eq=False)
class Feed:
    """One lane as one attempt's input: its credit, and how far it was sent.

    `paces` says that the lane's producer waits for it.
    """

    lane: "Lane"
    link: int
    slot: int
    window: Window
    join_units_max: int
    paces: bool
    next: int = 0
    stop: int | None = None
    """Behind the last row of the one segment that it is for."""
    shift: int = 0
    """Where the segment begins: to its attempt that is position 0."""
    sent_units: int = 0
    sent_bytes: int = 0
    accepted: bool = False
    """The worker has taken the attempt, so it can refuse it no more."""

    @property
    def complete(self) -> bool:
        """Whether the attempt has been sent the whole lane, or all of its segment."""
        if self.stop is not None:
            return self.next == self.stop
        return self.lane.closed and self.next == self.lane.end

    @property
    def starved(self) -> bool:
        """Whether the attempt has been sent all there is, and more is to come."""
        return self.stop is None and self.next == self.lane.end and not self.lane.closed

    def keeps_up(self) -> bool:
        """Whether the row that was kept last is the only one to send, and may go now."""
        return self.stop is None and self.next + 1 == self.lane.end and self.window.open

    def send(self, row: Row, out: list[Row]) -> None:
        """Send the row that was kept last; for an attempt that keeps up."""
        units, size = row_cost(row)
        self.next += 1
        self.window.spend(units, size)
        self.sent_units += units
        self.sent_bytes += size
        out.append(self._copy(row))

    def pump(self, out: list[Row]) -> None:
        """Send what credit allows. Text that waited is joined; a bare end needs no credit."""
        lane, window = self.lane, self.window
        end = lane.end if self.stop is None else self.stop
        while self.next < end:
            first = lane.rows[self.next - lane.base]
            units, size = row_cost(first)
            if not window.open and (units or size):
                return
            row = self._joined(first)
            units, size = row_cost(row)
            window.spend(units, size)
            self.sent_units += units
            self.sent_bytes += size
            out.append(row)

    def skip_to(self, index: int) -> None:
        """Begin with a later row, as if those before it had been sent."""
        lane = self.lane
        for row in lane.rows[self.next - lane.base : index - lane.base]:
            units, size = row_cost(row)
            self.sent_units += units
            self.sent_bytes += size
        self.next = index

    def _copy(self, row: Row) -> Row:
        return Row(
            self.slot, row.lane, row.pos - self.shift, row.units, row.text,
            row.ids, row.kind, True, row.body, row.end, None, row.segment_end,
        )  # fmt: skip

    def _joined(self, first: Row) -> Row:
        """Copy the next row for this attempt, with what adjoins it and is text of its kind."""
        lane = self.lane
        start = self.next - lane.base
        stop = lane.run_end(start, self.join_units_max, JOIN_BYTES_MAX)
        self.next = lane.base + stop
        row = self._copy(one_of(lane.rows[start:stop]))
        if self.next == self.stop:
            row.end, row.segment_end = row.end or _SEGMENT_OVER, False
        return row
