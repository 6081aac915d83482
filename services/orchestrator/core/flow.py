"""Lanes on their way: positions, the journal, and credit.

An output is *settled*, and its worker gets credit for more, when (a) the client's window took it,
if the client is to see it, and (b) every running consumer whose only stream input is this lane has
been sent it. What other consumers have not been sent waits in the lane's journal.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from stagemesh.link.core import Cursor, Row, Window, row_cost
from stagemesh.media import INLINE_BYTES_MAX, Modality

if TYPE_CHECKING:
    from services.orchestrator.core.request import Attempt

__all__ = ["Feed", "Lane", "inline_bytes"]

JOIN_BYTES_MAX: Final = INLINE_BYTES_MAX


def inline_bytes(row: Row) -> int:
    """Tell how much of a row is kept in memory here: a handle's bytes are elsewhere."""
    size = len(row.text)
    if row.ids is not None:
        size += 4 * len(row.ids)
    if row.body is not None:
        size += len(row.body.inline)
    return size


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
    sent_units: int = 0
    sent_bytes: int = 0
    accepted: bool = False
    """The worker has taken the attempt, so nothing of its input will be asked for again."""

    @property
    def complete(self) -> bool:
        """Whether the attempt has been sent the whole lane."""
        return self.lane.cursor.ended and self.next == self.lane.end

    def keeps_up(self) -> bool:
        """Whether the next row can be sent at once and need not be kept for anybody."""
        return self.accepted and not self.lane.rows and self.window.open

    def send(self, row: Row, units: int, size: int, out: list[Row]) -> None:
        """Send a row past the journal; for an attempt that keeps up."""
        lane = self.lane
        lane.base += 1
        self.next = lane.sent = lane.base
        self._spend(units, size)
        out.append(self._copy(row))

    def pump(self, out: list[Row]) -> None:
        """Send what credit allows. Text that waited is joined; a bare end needs no credit."""
        lane, window = self.lane, self.window
        while self.next < lane.end:
            first = lane.rows[self.next - lane.base]
            units, size = row_cost(first)
            if not window.open and (units or size):
                return
            row = self._joined(first)
            self._spend(*row_cost(row))
            out.append(row)

    def _copy(self, row: Row) -> Row:
        return Row(
            self.slot, row.lane, row.pos, row.units, row.text,
            row.ids, row.kind, True, row.body, row.end,
        )  # fmt: skip

    def _spend(self, units: int, size: int) -> None:
        self.window.spend(units, size)
        self.sent_units += units
        self.sent_bytes += size

    def _joined(self, first: Row) -> Row:
        """Copy the next row for this attempt, with what adjoins it and is text of its kind."""
        lane = self.lane
        start = self.next - lane.base
        stop, units, size = start + 1, first.units, len(first.text)
        last = first
        while last.body is None and last.end is None and stop < len(lane.rows):
            more = lane.rows[stop]
            units += more.units
            size += len(more.text)
            if (
                more.body is not None
                or more.kind != first.kind
                or (more.ids is None) != (first.ids is None)
                or units > self.join_units_max
                or size > JOIN_BYTES_MAX
            ):
                break
            last = more
            stop += 1
        self.next = lane.base + stop
        row = self._copy(first)
        row.end = last.end
        if last is not first:
            joined = lane.rows[start:stop]
            row.units = last.pos + last.units - first.pos
            row.text = "".join(part.text for part in joined)
            if first.ids is not None:
                row.ids = [number for part in joined for number in part.ids or ()]
        return row


@dataclass(slots=True, eq=False)
class Lane:
    """One lane of a request.

    `rows` begins at index `base` and ends at `end`; of it the part from `sent` on has not been sent
    to all who read it. `unfed` counts the groups that read it and do not run yet.
    """

    number: int
    modality: Modality
    visible: bool
    direct: bool
    """The client alone reads it."""
    unfed: int
    attempt: "Attempt | None" = None
    cursor: Cursor = field(default_factory=Cursor)
    delivered: int = 0
    rows: list[Row] = field(default_factory=list)
    base: int = 0
    sent: int = 0
    feeds: list[Feed] = field(default_factory=list)
    taken_units: int = 0
    taken_bytes: int = 0
    passed_units: int = 0
    passed_bytes: int = 0
    settled_units: int = 0
    settled_bytes: int = 0

    @property
    def end(self) -> int:
        """The index behind its last row."""
        return self.base + len(self.rows)

    def keep(self, row: Row) -> int:
        """Add a row to the journal; return by how many bytes the unsent part grew."""
        self.rows.append(row)
        return inline_bytes(row)

    def trim(self) -> int:
        """Note what has been sent and drop what nobody needs; return the change in unsent bytes."""
        base, end = self.base, self.end
        sent = base if self.unfed else min((feed.next for feed in self.feeds), default=end)
        before, self.sent = self.sent, sent
        if sent >= before:
            change = -sum(map(inline_bytes, self.rows[before - base : sent - base]))
        else:
            change = sum(map(inline_bytes, self.rows[sent - base : before - base]))
        if all(feed.accepted for feed in self.feeds) and sent > base:
            del self.rows[: sent - base]
            self.base = sent
        return change

    def clear(self) -> None:
        """Forget the journal and who reads it."""
        self.rows.clear()
        self.feeds.clear()
        self.unfed = 0
        self.base = self.sent = 0

    def settle(self) -> tuple[int, int]:
        """Tell what has been settled since this was last asked: units and bytes."""
        units, size = self.taken_units, self.taken_bytes
        if self.visible:
            units, size = self.passed_units, self.passed_bytes
        for feed in self.feeds:
            if feed.paces:
                units = feed.sent_units if feed.sent_units < units else units
                size = feed.sent_bytes if feed.sent_bytes < size else size
        new_units, new_bytes = units - self.settled_units, size - self.settled_bytes
        if new_units > 0:
            self.settled_units = units
        if new_bytes > 0:
            self.settled_bytes = size
        return (new_units if new_units > 0 else 0), (new_bytes if new_bytes > 0 else 0)
