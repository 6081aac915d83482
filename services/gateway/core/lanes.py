"""One lane of a request's journal: its positions, and what is kept of its rows."""

from array import array
from collections.abc import Sequence
from itertools import groupby
from typing import Final, Self

from services.gateway.core.detached import LanePosition
from stagemesh.link.core import Cursor, LaneDigest, LaneJournal, Row, Step
from stagemesh.media import Modality
from stagemesh.outcome import End

__all__ = ["KeptLane"]

_TEXT: Final = int(Modality.TEXT)
_ID_BYTES: Final = 4
_ROW_BYTES: Final = 12
_FRESH_ROWS_MAX: Final = 256
_FRESH_CHARS_MAX: Final = 64 * 1024


class KeptLane:
    """The rows of a lane are kept if it is hidden, since a stage reads it, or text; else a digest.

    Rows of text are put aside as they come, and joined in bulk: that costs less than one by one,
    and a long text takes little more than its characters.
    """

    __slots__ = (
        "_digest", "_dropped", "_end", "_fresh", "_fresh_chars", "_ids", "_next", "_rows",
        "_segment_pos", "_segments", "cursor", "number", "size_bytes", "skipping", "visible",
        "waiting",
    )  # fmt: skip

    def __init__(self, number: int, *, visible: bool) -> None:
        self.number = number
        self.visible = visible
        self.waiting = 0
        """How many rows were taken and are not delivered."""
        self.size_bytes = 0
        """What is kept, about."""
        self.skipping = False
        """Whether rows beyond the next position are on their way that are of no use."""
        self.cursor = Cursor()
        """How far it came, what waits included."""
        self._next = 0
        self._segments = 0
        self._segment_pos = 0
        self._end: End | None = None
        # The ids of all positions so far; None once a position had none.
        self._ids: array[int] | None = array("I")
        self._dropped = False
        kept = not visible or number & 0xF == _TEXT
        self._digest = None if kept else LaneDigest()
        self._rows: list[Row] = []
        self._fresh: list[Row] = []
        self._fresh_chars = 0

    @classmethod
    def begun(cls, position: LanePosition) -> Self:
        """Go on with a visible lane of which nothing is known but its position."""
        lane = cls(position.lane, visible=True)
        lane.cursor = Cursor(position.next, ended=position.end is not None)
        lane._next, lane._end = position.next, position.end
        lane.drop()
        return lane

    @property
    def next(self) -> int:
        """How far it was delivered."""
        fresh = self._fresh
        return fresh[-1].pos + fresh[-1].units if fresh else self._next

    def skip(self, step: Step) -> Step:
        """Judge again what was judged while rows of no use are on their way."""
        if step is Step.GAP:
            return Step.DROP
        self.skipping = step is not Step.ACCEPT
        return step

    def keep(self, row: Row) -> int:
        """Keep the next row that was delivered; return about how much more is kept."""
        plain = row.body is None and row.origin is None and not row.segment_end
        if plain and self._digest is None:
            fresh = self._fresh
            fresh.append(row)
            self._fresh_chars += len(row.text)
            if len(fresh) < _FRESH_ROWS_MAX and self._fresh_chars < _FRESH_CHARS_MAX:
                return 0
            return self.join()
        return self.join() + self._keep_apart(row)

    def join(self) -> int:
        """Join the rows that were put aside; return about how much more is kept."""
        rows, self._fresh = self._fresh, []
        self._fresh_chars = 0
        grown = 0
        for _, group in groupby(rows, lambda row: row.kind):
            grown += self._keep_joined(list(group))
        self.size_bytes += grown
        return grown

    def take_back(self) -> None:
        """Stand again where the lane was delivered to."""
        self.waiting = 0
        self.skipping = False
        self.join()
        self.cursor.next = self._next
        self.cursor.ended = self._end is not None

    def drop(self) -> None:
        """Keep nothing of the lane but its position, now and from now on."""
        self.join()
        self._dropped = True
        self._ids = None
        self._digest = LaneDigest(b"")
        self._rows = []

    def export(self) -> LaneJournal:
        """Give the lane as another owner needs it; its rows have no ids beside the lane's."""
        self.join()
        return LaneJournal(
            lane=self.number,
            next=self._next,
            ids=list(self._ids or ()),
            digest=b"" if self._digest is None else self._digest.value,
            end=self._end,
            rows=[*self._rows],
            visible_pos=self._next if self.visible else 0,
            segments=self._segments,
            segment_pos=self._segment_pos,
        )

    def _keep_joined(self, rows: Sequence[Row]) -> int:
        """Keep rows of text of one kind, as one."""
        first, last = rows[0], rows[-1]
        text = "".join([row.text for row in rows])
        grown = self._advance(rows)
        self._rows.append(
            Row(0, self.number, first.pos, self._next - first.pos, text, None, first.kind,
                self.visible, None, last.end)
        )  # fmt: skip
        return grown + _ROW_BYTES + len(text)

    def _keep_apart(self, row: Row) -> int:
        grown = self._advance((row,))
        if self._digest is not None:
            self._digest.add(row)
        else:
            self._rows.append(
                Row(0, self.number, row.pos, row.units, row.text, None, row.kind, self.visible,
                    row.body, row.end, row.origin, row.segment_end)
            )  # fmt: skip
            inline = len(row.body.inline) if row.body is not None else 0
            grown += _ROW_BYTES + len(row.text) + inline
        if row.segment_end:
            grown -= self._end_segment()
        self.size_bytes += grown
        return grown

    def _end_segment(self) -> int:
        """Begin with ids and digest anew, for the next run; return how much less is kept."""
        self._segments += 1
        self._segment_pos = self._next
        if self._dropped:
            return 0
        if self._digest is not None:
            self._digest = LaneDigest()
        given, self._ids = self._ids or (), array("I")
        return _ID_BYTES * len(given)

    def _advance(self, rows: Sequence[Row]) -> int:
        """Move past rows, and keep their ids; return how much more is kept by that."""
        first, last = rows[0], rows[-1]
        self._next = last.pos + last.units
        if last.end is not None:
            self._end = last.end
        kept = self._ids
        if kept is None or self._next == first.pos:
            return 0
        ids = [token for row in rows for token in row.ids or ()]
        if len(ids) != self._next - first.pos or len(kept) != first.pos - self._segment_pos:
            self._ids = None
            return -_ID_BYTES * len(kept)
        kept.extend(ids)
        return _ID_BYTES * len(ids)
