"""The outbox of one link: what waits to be written, cut into bounded messages.

A message is applied as rows, then frames, then grants. So a row may join the open message unless
that message already holds a frame of the row's slot; then a new message begins. Rows keep their
order among themselves over all slots, so do frames, and a slot sees everything in the order given.
"""

from collections import deque
from collections.abc import Collection, Iterable
from typing import Any, Final

from stagemesh.link.core.rows import REQUEST_SOURCE, Grant, Row
from stagemesh.outcome import End

__all__ = [
    "MESSAGE_BYTES_MAX",
    "MESSAGE_FRAMES_MAX",
    "MESSAGE_ROWS_MAX",
    "NO_ORIGIN",
    "Batch",
    "Outbox",
]

MESSAGE_BYTES_MAX: Final = 256 * 1024
MESSAGE_ROWS_MAX: Final = 4096
MESSAGE_FRAMES_MAX: Final = 16
"""Rows with a body not counted. A frame may cost its reader a quarter of a millisecond, in which it
does nothing else."""
NO_ORIGIN: Final = (0, 0)
"""The origin of a row that tells none, in a message where others do."""

# Estimates of what a thing takes on the wire besides its text and bytes: bounds need no exactness.
_ROW_BYTES: Final = 12
_BODY_BYTES: Final = 96
_GRANT_BYTES: Final = 16
# Above this many rows it costs less to begin a new message than to look through the open one.
_SCAN_ROWS_MAX: Final = 256


class Batch:
    """One message to be: rows in columns, then frames, then grants.

    A column has one entry a row; `id_counts`, `kinds`, `visible` and `origins` are empty while
    every row has their default. `frames` holds what `put_frame` was given, and each `Row` that has
    a body or is a client's input.
    """

    __slots__ = (
        "ends", "frames", "grants", "id_counts", "ids", "kinds", "lanes", "orders", "origins",
        "positions", "segment_ends", "size_bytes", "slots", "texts", "units", "visible",
    )  # fmt: skip

    def __init__(self) -> None:
        self.slots: list[int] = []
        self.lanes: list[int] = []
        self.positions: list[int] = []
        self.units: list[int] = []
        self.texts: list[str] = []
        self.ids: list[int] = []
        self.id_counts: list[int] = []
        self.kinds: list[int] = []
        self.visible: list[bool] = []
        self.origins: list[tuple[int, int]] = []
        self.ends: list[tuple[int, End]] = []
        self.segment_ends: list[int] = []
        self.frames: list[Any] = []
        self.orders = 0
        self.grants: dict[tuple[int, int], Grant] = {}
        self.size_bytes = 0

    def add_frame(self, frame: Any, size_bytes: int) -> None:
        """Add a frame, or a row with a body; `orders` counts the former."""
        self.frames.append(frame)
        self.orders += not isinstance(frame, Row)
        self.size_bytes += size_bytes

    def add_rare(self, row: Row) -> None:
        """Add to the columns that only few messages have, for the row just added."""
        before = len(self.slots) - 1
        if row.kind and not self.kinds:
            self.kinds = [0] * before
        if self.kinds or row.kind:
            self.kinds.append(row.kind)
        if not row.visible and not self.visible:
            self.visible = [True] * before
        if self.visible or not row.visible:
            self.visible.append(row.visible)
        if row.origin is not None and not self.origins:
            self.origins = [NO_ORIGIN] * before
        if self.origins or row.origin is not None:
            self.origins.append(row.origin or NO_ORIGIN)


class Outbox:
    """What waits to be written on one link. Nothing is lost, doubled or put before its cause."""

    def __init__(
        self, *, bytes_max: int = MESSAGE_BYTES_MAX, rows_max: int = MESSAGE_ROWS_MAX
    ) -> None:
        self._bytes_max = bytes_max
        self._rows_max = rows_max
        self._closed: deque[Batch] = deque()
        self._closed_bytes = 0
        self._open = Batch()
        self._framed: set[int] = set()  # The slots that have a frame in the open message.

    @property
    def waiting_bytes(self) -> int:
        """About how much waits, in bytes on the wire."""
        return self._closed_bytes + self._open.size_bytes

    def put_rows(self, rows: Iterable[Row]) -> None:
        """Add rows; they are copied into columns, except those that go as frames."""
        batch = self._open
        framed = self._framed
        for row in rows:
            if row.body is not None or row.lane == REQUEST_SOURCE:
                inline = len(row.text) if row.body is None else len(row.body.inline)
                self.put_frame(row, (row.slot,), _BODY_BYTES + inline)
                batch, framed = self._open, self._framed
                continue
            ids = row.ids
            size = _ROW_BYTES + len(row.text) + (3 * len(ids) if ids else 0)
            if (
                batch.size_bytes + size > self._bytes_max
                or len(batch.slots) >= self._rows_max
                or (framed and row.slot in framed)
            ):
                batch = self._begin()
                framed = self._framed
            batch.size_bytes += size
            batch.slots.append(row.slot)
            batch.lanes.append(row.lane)
            batch.positions.append(row.pos)
            batch.units.append(row.units)
            batch.texts.append(row.text)
            if ids:
                if not batch.ids:
                    batch.id_counts = [0] * (len(batch.slots) - 1)
                batch.ids += ids
                batch.id_counts.append(len(ids))
            elif batch.ids:
                batch.id_counts.append(0)
            if row.end is not None:
                batch.ends.append((len(batch.slots) - 1, row.end))
            elif row.segment_end:
                batch.segment_ends.append(len(batch.slots) - 1)
            if (
                row.kind
                or not row.visible
                or row.origin is not None
                or batch.kinds
                or batch.visible
                or batch.origins
            ):
                batch.add_rare(row)

    def put_frame(self, frame: Any, slots: Collection[int] = (), size_bytes: int = 64) -> None:
        """Add a frame that concerns `slots`: none of their later rows goes before it."""
        batch = self._open
        if self._fits_before(slots, size_bytes):
            before = self._closed[-1]
            before.add_frame(frame, size_bytes)
            self._closed_bytes += size_bytes
            return
        full = batch.orders >= MESSAGE_FRAMES_MAX and not isinstance(frame, Row)
        if full or batch.size_bytes + size_bytes > self._bytes_max:
            batch = self._begin()
        batch.add_frame(frame, size_bytes)
        self._framed.update(slots)

    def put_grants(self, grants: Iterable[Grant]) -> None:
        """Add grants; a later one for the same key and source takes an earlier one's place."""
        batch = self._open
        for grant in grants:
            if batch.size_bytes + _GRANT_BYTES > self._bytes_max:
                batch = self._begin()
            key = (grant.slot, grant.source)
            if key not in batch.grants:
                batch.size_bytes += _GRANT_BYTES
            batch.grants[key] = grant

    def take(self) -> Batch | None:
        """Take the next message, or None if nothing waits."""
        if self._closed:
            batch = self._closed.popleft()
            self._closed_bytes -= batch.size_bytes
            return batch
        batch = self._open
        if not (batch.slots or batch.frames or batch.grants):
            return None
        self._open = Batch()
        self._framed = set()
        return batch

    def _begin(self) -> Batch:
        """Close the open message, unless it is empty, and begin the next."""
        batch = self._open
        if batch.slots or batch.frames or batch.grants:
            self._closed.append(batch)
            self._closed_bytes += batch.size_bytes
            self._open = Batch()
            self._framed = set()
        return self._open

    def _fits_before(self, slots: Collection[int], size_bytes: int) -> bool:
        """Whether a frame may join the message before the open one.

        So a burst of frames, each followed by rows of its slot, makes two messages and not one for
        each: all frames in the first, all rows in the second.
        """
        batch = self._open
        if not self._closed or batch.frames or len(batch.slots) > _SCAN_ROWS_MAX:
            return False
        before = self._closed[-1]
        if before.size_bytes + size_bytes > self._bytes_max:
            return False
        if before.orders >= MESSAGE_FRAMES_MAX:
            return False
        return all(slot not in batch.slots for slot in slots)
