"""What a client gives piece by piece: the account of it, and whose turn it is.

A conversation has a *place* from its door to its terminal. It has a running slot of its pipeline
only while there is something to do for it: from an append until every stage has been sent it and
waits for the next one. So a client that thinks keeps nobody else waiting.
"""

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from stagemesh.link.core import REQUEST_SOURCE, Grant, Meter, Row, Window, row_cost

if TYPE_CHECKING:
    from services.orchestrator.core.request import Group, OpenRequest

__all__ = ["Intake", "Turn"]


class Turn(Enum):
    """Whether a conversation may be worked on."""

    TAKEN = "taken"
    """It has a running slot."""
    IDLE = "idle"
    """It waits for its client."""
    QUEUED = "queued"
    """There is something to do, and it waits for a running slot."""


@dataclass(slots=True, eq=False)
class Intake:
    """The streamed input of one request: its client's credit, and its turn.

    `opened_bytes` is the size of what came with the request; `paced_by` are the groups that read
    the input as a stream, which the client waits for.
    """

    request: "OpenRequest"
    opened_bytes: int
    meter: Meter
    window: Window
    paced_by: list["Group"] = field(default_factory=list)
    turn: Turn = Turn.TAKEN

    @classmethod
    def begun(cls, request: "OpenRequest", window: tuple[int, int]) -> "Intake":
        """Make the intake of a new request, whose client may give so much at first."""
        return cls(request, request.input_bytes, Meter(*window), Window(*window))

    def spend(self, row: Row) -> bool:
        """Count a piece that came; False if its client had no credit for it."""
        units, size = row_cost(row)
        if not self.window.open and (units or size):
            return False
        self.window.spend(units, size)
        return True

    def took(self, units: int, size: int) -> Grant | None:
        """Count what readers took; give the credit that is due for it, if any is."""
        totals = self.meter.took(units, size)
        if totals is None:
            return None
        self.window.grant(*totals)
        return Grant(self.request.slot, REQUEST_SOURCE, *totals)

    @property
    def held_back(self) -> bool:
        """Whether some reader does not run yet, so that its client has to wait."""
        return any(group.unfed for group in self.paced_by)
