"""Positions: what a receiver takes of a lane, and what it drops."""

from enum import Enum

from stagemesh.link.core.rows import Row

__all__ = ["Cursor", "Step"]


class Step(Enum):
    """What becomes of a row."""

    ACCEPT = "accept"
    DROP = "drop"
    """Wholly below the cursor: had already, to be counted."""
    GAP = "gap"
    """Anything else: somebody's bug, which ends the attempt with `PROTOCOL`."""


class Cursor:
    """How far one lane has come.

    `next` is the next position; its owner may set it back when the bytes of a handle were lost
    before they were delivered.
    """

    __slots__ = ("ended", "next")

    def __init__(self, next: int = 0, *, ended: bool = False) -> None:
        self.next = next
        self.ended = ended

    def check(self, row: Row) -> Step:
        """Judge a row of the lane, and move past it if it is accepted."""
        beyond = row.pos + row.units
        if row.pos == self.next and not self.ended:
            self.next = beyond
            if row.end is not None:
                self.ended = True
            return Step.ACCEPT
        if beyond > self.next or (row.end is not None and not self.ended):
            return Step.GAP
        return Step.DROP
