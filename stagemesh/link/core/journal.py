"""The journal of a request: what it has produced so far, as plain values.

The owner keeps one, the gateway keeps a prefix of it, and whoever gets it can go on from there. Its
messages are made by `stagemesh.link.pump.journals`: rows become columns there as on a link, and the
wire package knows no rows.
"""

import hashlib
from collections.abc import Iterable
from typing import Final

import msgspec

from stagemesh.link.core.rows import Row
from stagemesh.outcome import End

__all__ = [
    "JOURNAL_PART_BYTES_MAX",
    "Journal",
    "LaneDigest",
    "LaneJournal",
    "Placed",
    "join_journals",
    "split_journal",
]

JOURNAL_PART_BYTES_MAX: Final = 256 * 1024
"""A journal above this goes in parts."""

_DIGEST_BYTES: Final = 16
_ROW_BYTES: Final = 12
_ID_BYTES: Final = 4
_LANE_BYTES: Final = 128
_PLACED_BYTES: Final = 64


class Placed(msgspec.Struct, frozen=True, kw_only=True):
    """Where a role of a stage was given last."""

    stage: int
    role: int
    attempt: int
    replica_id: str
    incarnation: int


class LaneJournal(msgspec.Struct, kw_only=True):
    """One lane: `next` is the next position, `visible_pos` how far the client was given it.

    `ids` are all token ids of the lane, `ids[i]` that of position i; `rows` all its rows, from
    position 0 on. Either is empty where it is not kept, and so is `digest`, which is that of
    everything before `next`.

    Of a stage that runs once for each segment of a streamed input, `segments` runs are over and the
    next begins at `segment_pos`; then ids and digest are of what came after that.
    """

    lane: int
    next: int = 0
    ids: list[int] = []
    digest: bytes = b""
    end: End | None = None
    rows: list[Row] = []
    visible_pos: int = 0
    segments: int = 0
    segment_pos: int = 0

    @property
    def size_bytes(self) -> int:
        """About how much it takes on the wire."""
        rows = sum(_size_of(row) for row in self.rows)
        return _LANE_BYTES + _ID_BYTES * len(self.ids) + rows


class Journal(msgspec.Struct, kw_only=True):
    """All lanes of a request that have begun, and the last `Placed` of each stage and role.

    `revision` is that of the pipeline that made it; empty where that is not known.
    """

    lanes: list[LaneJournal] = []
    placed: list[Placed] = []
    revision: str = ""

    @property
    def size_bytes(self) -> int:
        """About how much it takes on the wire."""
        return _PLACED_BYTES * len(self.placed) + sum(lane.size_bytes for lane in self.lanes)

    def __bool__(self) -> bool:
        """Whether there is anything in it."""
        return bool(self.lanes or self.placed)


class LaneDigest:
    """BLAKE2b-128 over a lane's text in UTF-8 and its inline bytes, in order, as it grows.

    How the lane was cut into rows does not matter; bytes behind a handle count by its digest.
    """

    __slots__ = ("_hash", "_known")

    def __init__(self, known: bytes | None = None) -> None:
        """Begin at position 0; or, with `known`, where a journal of somebody else stands.

        From there the digest cannot be carried on: it is known until the lane grows.
        """
        self._hash = None if known is not None else hashlib.blake2b(digest_size=_DIGEST_BYTES)
        self._known = known or b""

    def add(self, row: Row) -> None:
        """Take the next row of the lane."""
        if row.text:
            self.add_bytes(row.text.encode("utf-8", "surrogatepass"))
        body = row.body
        if body is not None:
            self.add_bytes(body.inline if body.handle is None else body.handle.digest)

    def add_bytes(self, data: bytes | memoryview) -> None:
        """Take the next bytes of the lane."""
        if self._hash is not None:
            self._hash.update(data)
        elif data:
            self._known = b""

    @property
    def value(self) -> bytes:
        """The digest of everything so far; empty where it is not known."""
        return self._known if self._hash is None else self._hash.digest()


def split_journal(journal: Journal, bytes_max: int = JOURNAL_PART_BYTES_MAX) -> list[Journal]:
    """Cut a journal into parts of about `bytes_max` at most, for `join_journals` to put together.

    A lane may go on in the next part; a row is never cut, so a part of one large row may be larger.
    """
    parts = [Journal(lanes=[], placed=journal.placed, revision=journal.revision)]
    room = bytes_max - parts[0].size_bytes
    for lane in journal.lanes:
        for piece in _pieces(lane, bytes_max):
            if piece.size_bytes > room and parts[-1]:
                parts.append(Journal(lanes=[]))
                room = bytes_max
            parts[-1].lanes.append(piece)
            room -= piece.size_bytes
    return parts


def join_journals(parts: Iterable[Journal]) -> Journal:
    """Put the parts of a journal together; the last piece of a lane says how far it came."""
    lanes: dict[int, LaneJournal] = {}
    placed: list[Placed] = []
    revision = ""
    for part in parts:
        placed += part.placed
        revision = revision or part.revision
        for piece in part.lanes:
            lane = lanes.get(piece.lane)
            if lane is None:
                lanes[piece.lane] = msgspec.structs.replace(
                    piece, ids=[*piece.ids], rows=[*piece.rows]
                )
                continue
            lane.ids += piece.ids
            lane.rows += piece.rows
            lane.next, lane.visible_pos = piece.next, piece.visible_pos
            lane.digest, lane.end = piece.digest, piece.end
            lane.segments, lane.segment_pos = piece.segments, piece.segment_pos
    return Journal(lanes=list(lanes.values()), placed=placed, revision=revision)


def _pieces(lane: LaneJournal, bytes_max: int) -> Iterable[LaneJournal]:
    """Cut one lane: its ids first, then its rows; the last piece is the whole lane's head."""
    ids_max = max(1, (bytes_max - _LANE_BYTES) // _ID_BYTES)
    ids, rows = lane.ids, lane.rows
    while len(ids) > ids_max:
        yield LaneJournal(lane=lane.lane, ids=ids[:ids_max])
        ids = ids[ids_max:]
    piece: list[Row] = []
    room = bytes_max - _LANE_BYTES - _ID_BYTES * len(ids)
    for row in rows:
        if _size_of(row) > room and (piece or ids):
            yield LaneJournal(lane=lane.lane, ids=ids, rows=piece)
            piece, ids, room = [], [], bytes_max - _LANE_BYTES
        piece.append(row)
        room -= _size_of(row)
    yield msgspec.structs.replace(lane, ids=ids, rows=piece)


def _size_of(row: Row) -> int:
    """About what a row of a journal takes; what lies behind a handle is not in it."""
    size = _ROW_BYTES + len(row.text)
    if row.body is not None:
        size += _LANE_BYTES + len(row.body.inline)
    return size
