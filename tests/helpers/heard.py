"""What a worker's orchestrator hears of one slot, and whether it may hear it."""

from collections.abc import Mapping

from stagemesh.link.core import LaneJournal, Row, row_cost

__all__ = ["Heard"]


class Heard:
    """What one slot's orchestrator has heard, and what it may hear."""

    def __init__(
        self, lanes: tuple[int, ...], resume: Mapping[int, LaneJournal], window: tuple[int, int]
    ) -> None:
        self.lanes = lanes
        self.pos = {lane: resume[lane].next if lane in resume else 0 for lane in lanes}
        self.ended = {lane for lane in lanes if lane in resume and resume[lane].end}
        self.terminal = False
        self.fenced = False
        self.units_granted, self.bytes_granted = window
        self.units = self.bytes = 0
        self.input_next = 0

    @property
    def over(self) -> bool:
        """Whether the last of it was heard."""
        return self.terminal or self.ended == set(self.lanes)

    def take(self, row: Row) -> None:
        """Hear a row; everything that a receiver relies on is checked."""
        assert not self.over, "a row after the end"
        assert not self.fenced, "a row of an epoch that is over"
        assert row.lane not in self.ended
        assert row.pos == self.pos[row.lane]
        units, size = row_cost(row)
        if units or size:
            assert self.units < self.units_granted, "no credit in units"
            assert self.bytes < self.bytes_granted, "no credit in bytes"
        self.units += units
        self.bytes += size
        self.pos[row.lane] += row.units
        if row.end is not None:
            self.ended.add(row.lane)
