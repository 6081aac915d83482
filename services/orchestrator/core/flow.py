"""Lanes on their way: positions, the rows that stages read, and credit.

An output is *settled*, and its worker gets credit for more, when (a) the client's window took it,
if the client is to see it, and (b) every running consumer whose only stream input is this lane has
been sent it. What consumers may have to be sent, for the first time or again, is kept in the lane.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from stagemesh.link.core import INPUT_PIECE_BYTES, Cursor, Row, row_cost
from stagemesh.media import INLINE_BYTES_MAX, Modality
from stagemesh.outcome import End

if TYPE_CHECKING:
    from services.orchestrator.core.feeds import Feed
    from services.orchestrator.core.intake import Intake
    from services.orchestrator.core.journal import LaneLog
    from services.orchestrator.core.request import Attempt, Group

__all__ = ["JOIN_BYTES_MAX", "Lane", "inline_bytes", "one_of"]

JOIN_BYTES_MAX: Final = INLINE_BYTES_MAX
PACK_ROWS: Final = 32
"""So many rows of text that everybody was sent are made one."""


def inline_bytes(row: Row) -> int:
    """Tell how much of a row is kept in memory here: a handle's bytes are elsewhere."""
    size = len(row.text)
    if row.ids is not None:
        size += 4 * len(row.ids)
    if row.body is not None:
        size += len(row.body.inline)
    return size


@dataclass(slots=True, eq=False)
class Lane:
    """One lane of a request.

    `rows` begins at index `base` and ends at `end`. `unfed` counts the groups that read it and do
    not run, `keepers` those that may yet have to be sent it from the start; those that read it by
    segments are in `by_segment` instead, since they want the rows of their present segment only.
    """

    number: int
    modality: Modality
    visible: bool
    direct: bool
    """The client alone reads it."""
    unfed: int
    keepers: int = 0
    by_segment: list["Group"] = field(default_factory=list)
    segmented: bool = False
    """Its stage runs once for each segment: the end of a run is no end of the lane."""
    segments: int = 0
    """How many runs of its stage are over."""
    start: int = 0
    """Where the present run began."""
    marks: list[int] = field(default_factory=list)
    """The indices of the rows with which its segments end, from segment `marks_gone` on."""
    marks_gone: int = 0
    intake: "Intake | None" = None
    """Its client gives it; its bytes are counted apart from those of other lanes."""
    attempt: "Attempt | None" = None
    cursor: Cursor = field(default_factory=Cursor)
    finish: End | None = None
    log: "LaneLog | None" = None
    mirrored: bool = False
    """The gateway gets it hidden, before anybody reads it."""
    gated: bool = False
    """Who reads it gets no row before the client did."""
    closed: bool = False
    """Its end is among the rows."""
    missing: bool = False
    """Rows from before are gone, so that nobody can be sent all of it."""
    packs: bool = True
    delivered: int = 0
    rows: list[Row] = field(default_factory=list)
    base: int = 0
    packed: int = 0
    size_bytes: int = 0
    feeds: list["Feed"] = field(default_factory=list)
    taken_units: int = 0
    taken_bytes: int = 0
    passed_units: int = 0
    passed_bytes: int = 0
    settled_units: int = 0
    settled_bytes: int = 0
    debt_units: int = 0
    debt_bytes: int = 0
    """What attempts that are over sent and is not settled: nobody gets credit for it."""

    @property
    def end(self) -> int:
        """The index behind its last row."""
        return self.base + len(self.rows)

    @property
    def begun(self) -> bool:
        """Whether anything of it was given, in the present run of its stage."""
        return self.cursor.next > self.start or self.cursor.ended

    @property
    def held(self) -> bool:
        """Whether somebody could be sent all of it, as far as it goes, from the start."""
        return not (self.base or self.missing)

    def keep(self, row: Row) -> int:
        """Add a row; return by how many bytes what is kept has grown."""
        self.rows.append(row)
        if row.end is not None or row.segment_end:
            self._mark(row)
        size = inline_bytes(row)
        if self.intake is not None:
            self.size_bytes += size + INPUT_PIECE_BYTES
            return 0
        self.size_bytes += size
        return size

    def trim(self) -> int:
        """Drop what nobody can ask for any more; return the change in bytes, which is not above 0.

        A worker that has not taken its attempt yet may refuse it, so what it was sent is kept.
        """
        if self.keepers or self.unfed or not self.rows:
            return 0
        if not all(feed.accepted for feed in self.feeds):
            return 0
        count = min((feed.next for feed in self.feeds), default=self.end) - self.base
        if self.by_segment:
            count = min(
                count, min(self.segment_start(g.segment) for g in self.by_segment) - self.base
            )
        if count <= 0:
            return 0
        change = -sum(map(inline_bytes, self.rows[:count]))
        del self.rows[:count]
        self.base += count
        while len(self.marks) > 1 and self.marks[1] < self.base:
            del self.marks[0]  # The last one before the base says where a segment begins.
            self.marks_gone += 1
        self.packed = max(0, self.packed - count)
        self.size_bytes += change
        if self.intake is not None:
            self.size_bytes -= INPUT_PIECE_BYTES * count
            return 0
        return change

    @property
    def segments_there(self) -> int:
        """How many of its segments are complete."""
        return self.marks_gone + len(self.marks)

    def segment_start(self, number: int) -> int:
        """Give the index of the first row of a segment."""
        before = number - 1 - self.marks_gone
        if before >= len(self.marks):
            return self.end
        return self.marks[before] + 1 if before >= 0 else self.base

    def segment_stop(self, number: int) -> int:
        """Give the index behind the last row of a segment that is complete."""
        return self.marks[number - self.marks_gone] + 1

    def next_run(self) -> None:
        """Note that a run of its stage is over; what comes then belongs to the next."""
        self.segments += 1
        self.start = self.cursor.next
        self.log, self.attempt = None, None

    def _mark(self, row: Row) -> None:
        """Note an end. A bare one behind the end of a segment begins no other segment."""
        index = self.end - 1
        self.closed |= row.end is not None
        bare = not (row.units or row.text or row.body is not None)
        if not (bare and self.marks and self.marks[-1] == index - 1):
            self.marks.append(index)

    def pack(self) -> None:
        """Make few rows of many that every running reader has been sent."""
        if not self.packs or any(feed.next != self.end for feed in self.feeds):
            return
        rows, at, before = [*self.rows[: self.packed]], self.packed, len(self.rows)
        while at < before:
            stop = self.run_end(at, PACK_ROWS, JOIN_BYTES_MAX)
            rows.append(one_of(self.rows[at:stop]))
            at = stop
        self.rows = rows
        self.packed = len(rows)
        for feed in self.feeds:
            feed.next -= before - len(rows)

    def run_end(self, start: int, units_max: int, bytes_max: int) -> int:
        """Find where the rows stop that can be made one with the first."""
        rows = self.rows
        first = last = rows[start]
        stop, units, size = start + 1, first.units, len(first.text)
        while stop < len(rows) and last.body is None and last.end is None and not last.segment_end:
            more = rows[stop]
            units += more.units
            size += len(more.text)
            if (
                more.body is not None
                or more.kind != first.kind
                or (more.ids is None) != (first.ids is None)
                or units > units_max
                or size > bytes_max
            ):
                break
            last = more
            stop += 1
        return stop

    def index_at(self, pos: int) -> int | None:
        """Find the row that begins at a position."""
        for index, row in enumerate(self.rows, start=self.base):
            if row.pos >= pos:
                return index if row.pos == pos else None
        return None

    def clear(self) -> None:
        """Forget the rows and who reads them."""
        self.rows.clear()
        self.feeds.clear()
        self.unfed = self.keepers = 0
        self.by_segment.clear()
        self.marks.clear()
        self.base = self.packed = self.size_bytes = 0

    def cut(self, index: int) -> None:
        """Forget the rows from an index on: they will be made again. Nobody may be reading."""
        gone = self.rows[index - self.base :]
        del self.rows[index - self.base :]
        self.cursor = Cursor(gone[0].pos)
        self.finish, self.closed = None, False
        self.packed = min(self.packed, len(self.rows))
        self.size_bytes -= sum(map(inline_bytes, gone))
        for units, size in map(row_cost, gone):
            self.taken_units -= units
            self.taken_bytes -= size
        self.settled_units = min(self.settled_units, self.taken_units)
        self.settled_bytes = min(self.settled_bytes, self.taken_bytes)
        if self.log is not None:
            self.log.cut()

    def reset(self) -> None:
        """Begin anew: nothing of it was given to the client, and nobody is reading."""
        self.rows.clear()
        self.cursor = Cursor()
        self.finish, self.log, self.attempt = None, None, None
        self.closed = self.missing = False
        self.marks.clear()
        self.marks_gone = 0
        self.base = self.packed = self.size_bytes = self.delivered = 0
        self.taken_units = self.taken_bytes = self.passed_units = self.passed_bytes = 0
        self.settled_units = self.settled_bytes = self.debt_units = self.debt_bytes = 0

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

    @property
    def unsettled(self) -> tuple[int, int]:
        """How much of it waits for the client or for those who pace it: units and bytes."""
        if self.direct:
            units, size = self.passed_units, self.passed_bytes
        else:
            units, size = self.settled_units, self.settled_bytes
        return self.taken_units - units, self.taken_bytes - size

    def begin_attempt(self) -> None:
        """Leave what older attempts sent out of the credit of the next one."""
        self.debt_units, self.debt_bytes = self.unsettled

    def earned(self, units: int, size: int) -> tuple[int, int]:
        """Tell how much of what was settled its running attempt sent."""
        if self.debt_units or self.debt_bytes:
            paid_units, paid_bytes = min(units, self.debt_units), min(size, self.debt_bytes)
            self.debt_units -= paid_units
            self.debt_bytes -= paid_bytes
            return units - paid_units, size - paid_bytes
        return units, size


def one_of(rows: list[Row]) -> Row:
    """Make one row of adjoining ones; a single one stays as it is."""
    first, last = rows[0], rows[-1]
    if first is last:
        return first
    return Row(
        first.slot,
        first.lane,
        first.pos,
        last.pos + last.units - first.pos,
        "".join(row.text for row in rows),
        None if first.ids is None else [number for row in rows for number in row.ids or ()],
        first.kind,
        first.visible,
        None,
        last.end,
        None,
        last.segment_end,
    )
