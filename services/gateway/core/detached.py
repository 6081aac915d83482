"""A request that may outlive its gateway: who has it, and how far it is committed."""

from collections.abc import Iterable, Sequence

import msgspec

from stagemesh.link.core import Row
from stagemesh.outcome import End

__all__ = ["LanePosition", "OwnerName", "moved"]


class OwnerName(msgspec.Struct, frozen=True):
    """One life of one orchestrator: another incarnation has nothing of what this one had."""

    id: str
    incarnation: int


class LanePosition(msgspec.Struct, frozen=True):
    """How far a visible lane is committed: up to `next`, and with its end if it has one."""

    lane: int
    next: int
    end: End | None = None


def moved(lanes: Iterable[LanePosition], rows: Sequence[Row]) -> tuple[LanePosition, ...]:
    """Give the positions of all lanes after some rows more, in the order in which they began."""
    positions = {one.lane: one for one in lanes}
    for row in rows:
        positions[row.lane] = LanePosition(row.lane, row.pos + row.units, row.end)
    return tuple(positions.values())
