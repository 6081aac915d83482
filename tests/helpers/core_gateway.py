"""What a gateway keeps of a request by the mirror rule, so that another owner can go on."""

from dataclasses import dataclass, field

import msgspec

from stagemesh.link.core import Cursor, Journal, LaneDigest, LaneJournal, Placed, Row, Step
from stagemesh.media import Modality, split_lane
from stagemesh.outcome import End

__all__ = ["GatewayJournal", "GatewayLane"]


@dataclass
class GatewayLane:
    """One lane: its position and, as its kind asks for it, ids, rows or a digest."""

    number: int
    visible: bool
    cursor: Cursor = field(default_factory=Cursor)
    end: End | None = None
    ids: list[int] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    digest: LaneDigest = field(default_factory=LaneDigest)
    segments: int = 0
    segment_pos: int = 0

    def take(self, row: Row) -> None:
        """Take the next row; any other is a breach of the protocol."""
        assert row.visible is self.visible, "a lane is either hidden or not"
        assert self.cursor.check(row) is Step.ACCEPT, "positions skipped or repeated"
        self.ids += row.ids or []
        self.digest.add(row)
        if row.end is not None:
            self.end = row.end
        if not self.visible or split_lane(self.number).modality is Modality.TEXT:
            self.rows.append(msgspec.structs.replace(row, slot=0))
        if row.segment_end:
            self.segments += 1
            self.segment_pos = self.cursor.next
            self.ids, self.digest = [], LaneDigest()

    def told(self) -> LaneJournal:
        """Give the lane as another owner gets it."""
        position = self.cursor.next
        return LaneJournal(
            lane=self.number,
            next=position,
            ids=[*self.ids] if len(self.ids) == position - self.segment_pos else [],
            digest=b"" if self.rows else self.digest.value,
            end=self.end,
            rows=[msgspec.structs.replace(row) for row in self.rows],
            visible_pos=position if self.visible else 0,
            segments=self.segments,
            segment_pos=self.segment_pos,
        )


@dataclass
class GatewayJournal:
    """All lanes of one request that have begun, and where its roles were given."""

    lanes: dict[int, GatewayLane] = field(default_factory=dict)
    placed: dict[tuple[int, int], Placed] = field(default_factory=dict)

    def take(self, row: Row) -> None:
        """Take a row."""
        lane = self.lanes.get(row.lane)
        if lane is None:
            lane = self.lanes[row.lane] = GatewayLane(row.lane, row.visible)
        lane.take(row)

    def reset(self, stages: tuple[int, ...]) -> None:
        """Drop the lanes of some stages, of which nothing may have been shown."""
        for number in [n for n in self.lanes if split_lane(n).stage in stages]:
            assert not self.lanes[number].visible, "what was shown is taken back"
            del self.lanes[number]

    def has(self, row: Row) -> bool:
        """Whether everything of a row is here, its end too."""
        lane = self.lanes.get(row.lane)
        if lane is None:
            return False
        return row.pos + row.units <= lane.cursor.next and (row.end is None or lane.cursor.ended)

    def told(self) -> Journal:
        """Give the journal as another owner gets it."""
        return Journal(
            lanes=[lane.told() for lane in self.lanes.values()], placed=[*self.placed.values()]
        )
