"""What is remembered of requests that are over."""

from collections import OrderedDict
from typing import NamedTuple

__all__ = ["Tombstone", "Tombstones"]


class Tombstone(NamedTuple):
    """The highest epoch seen of a request, and whether it was aborted by its id.

    `work_epoch` is the one under which workers know what they keep for it.
    """

    epoch: int
    aborted: bool
    until_s: float
    work_epoch: int = 0


class Tombstones:
    """Tombstones of the last while; beyond the bound the oldest go first."""

    def __init__(self, *, count_max: int, keep_s: float) -> None:
        self._count_max = count_max
        self._keep_s = keep_s
        self._stones: OrderedDict[str, Tombstone] = OrderedDict()

    def __len__(self) -> int:
        return len(self._stones)

    def put(
        self, request_id: str, *, epoch: int, aborted: bool, now_s: float, work_epoch: int = 0
    ) -> None:
        """Remember a request; an abort is not forgotten by what follows it."""
        old = self._stones.pop(request_id, None)
        if old is not None:
            epoch, aborted = max(epoch, old.epoch), aborted or old.aborted
        self._stones[request_id] = Tombstone(epoch, aborted, now_s + self._keep_s, work_epoch)
        if len(self._stones) > self._count_max:
            self._stones.popitem(last=False)

    def find(self, request_id: str, now_s: float) -> Tombstone | None:
        """Look a request up."""
        stone = self._stones.get(request_id)
        return stone if stone is not None and stone.until_s > now_s else None

    def sweep(self, now_s: float) -> float | None:
        """Drop those whose time is over; tell when the next one's will be."""
        while self._stones:
            request_id, stone = next(iter(self._stones.items()))
            if stone.until_s > now_s:
                return stone.until_s
            del self._stones[request_id]
        return None
