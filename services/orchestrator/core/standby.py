"""What an owner keeps of a detachable request for the gateway that comes after this one."""

from collections import deque
from collections.abc import Iterable, Mapping

import msgspec

from stagemesh.link.core import LaneJournal, Row, Sender, confirming_cost

__all__ = ["ParkedSender", "Standby"]


class Standby:
    """The outputs that a gateway was sent and has not confirmed, in the order of sending.

    A gateway confirms by credit (`confirming_cost`): its totals tell how much it has for good.
    """

    __slots__ = ("_bytes", "_rows", "_units", "detach_s", "taken_over")

    def __init__(self, detach_s: float, *, taken_over: bool = False) -> None:
        self.detach_s = detach_s
        """How long it waits for a gateway."""
        self.taken_over = taken_over
        """Its gateway has no journal, only what the client was given."""
        self._rows: deque[tuple[int, int, Row]] = deque()
        self._units = 0
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._rows)

    def sent(self, row: Row) -> None:
        """Keep a row that goes to the gateway."""
        units, size = confirming_cost(row)
        self._units += units
        self._bytes += size
        self._rows.append((self._units, self._bytes, row))

    def confirm(self, units: int, size: int) -> bool:
        """Forget what the gateway has taken, of all that it was sent; tell if that was any."""
        rows, before = self._rows, len(self._rows)
        while rows and rows[0][0] <= units and rows[0][1] <= size:
            rows.popleft()
        return len(rows) < before

    def behind(
        self, positions: Iterable[LaneJournal], sent_to: Mapping[int, int]
    ) -> list[Row] | None:
        """Give what is to be sent to a gateway that stands at these positions, None if it is gone.

        `sent_to` tells of each visible lane how far it was sent. The rows are copies: those that
        were sent may still wait on another gateway's link.
        """
        at = {lane: (0, False) for lane in sent_to}
        at.update((lane.lane, (lane.next, lane.end is not None)) for lane in positions)
        rows: list[Row] = []
        for _, _, row in self._rows:
            pos, ended = at[row.lane]
            stop = row.pos + row.units
            if ended or (stop <= pos and row.pos < pos and row.end is None):
                continue
            if row.pos != pos:
                return None
            at[row.lane] = (stop, row.end is not None)
            rows.append(msgspec.structs.replace(row))
        whole = all(at[lane][0] == pos for lane, pos in sent_to.items()) and len(at) == len(sent_to)
        return rows if whole else None


class ParkedSender(Sender):
    """A sender without a receiver: everything waits."""

    __slots__ = ()

    def __init__(self, rows: Iterable[Row]) -> None:
        super().__init__(0, 0)
        self._held.extend(rows)

    def offer(self, row: Row) -> list[Row]:
        """Keep one more row."""
        self._held.append(row)
        return []
