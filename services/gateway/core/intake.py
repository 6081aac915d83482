"""What the gateway takes of one request's outputs, lane by lane."""

from collections.abc import Sequence

from stagemesh.link.core import Cursor, Row, Step
from stagemesh.media import Modality

__all__ = ["Intake"]


class Intake:
    """The lanes of one request: only those that it asked for, each in order and without gaps."""

    __slots__ = ("_choices", "_cursors", "_modalities")

    def __init__(self, choices: int, modalities: Sequence[Modality]) -> None:
        self._choices = choices
        self._modalities = frozenset(int(modality) for modality in modalities)
        self._cursors: dict[int, Cursor] = {}

    def check(self, row: Row) -> Step:
        """Judge a row; a lane that was not asked for is as wrong as a gap."""
        cursor = self._cursors.get(row.lane)
        if cursor is None:
            if not self._asked_for(row.lane):
                return Step.GAP
            cursor = self._cursors[row.lane] = Cursor()
        return cursor.check(row)

    def expected(self, lane: int) -> int:
        """Give the next position of a lane, for the log."""
        cursor = self._cursors.get(lane)
        return cursor.next if cursor else 0

    def _asked_for(self, lane: int) -> bool:
        return (
            lane & 0xF in self._modalities
            and lane >> 4 & 0xFFFF < self._choices
            # One stage gives one modality, so no choice has two lanes of one.
            and not any(other & 0xFFFFF == lane & 0xFFFFF for other in self._cursors)
        )
