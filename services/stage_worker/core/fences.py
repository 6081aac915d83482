"""Short memories with a bound: the highest epoch of each request, and slots that mean nothing."""

from collections.abc import Hashable
from typing import Final, Generic, TypeVar

__all__ = ["Fences", "Recent"]

FENCES_MAX: Final = 100_000
"""How many requests a worker remembers; the oldest are forgotten first."""

FENCE_S: Final = 30.0
"""How long it remembers one of which it hears nothing more: longer than an owner that is cut off
can begin anything, which is `peer_lost_s`, and then go on, which is `orphan_s`."""

Item = TypeVar("Item", bound=Hashable)


class Fences:
    """The highest epoch seen of each request; time is an argument."""

    def __init__(self, requests_max: int = FENCES_MAX, keep_s: float = FENCE_S) -> None:
        self._requests_max = requests_max
        self._keep_s = keep_s
        self._seen: dict[str, tuple[int, float]] = {}
        """Epochs, and when they were last heard of: who was heard of longest ago comes first."""

    def __len__(self) -> int:
        return len(self._seen)

    def epoch(self, request_id: str) -> int:
        """Give the highest epoch seen; 0 if the request is not remembered."""
        return self._seen.get(request_id, (0, 0.0))[0]

    def raise_to(self, request_id: str, epoch: int, now_s: float) -> bool:
        """Note an epoch; False if a higher one was seen, which stays in force."""
        known, _ = self._seen.pop(request_id, (0, now_s))
        self._seen[request_id] = (max(known, epoch), now_s)
        self._forget(now_s)
        return epoch >= known

    def _forget(self, now_s: float) -> None:
        """Forget what is too much, and too old; the one that was just heard of stays."""
        oldest = next(iter(self._seen))
        while len(self._seen) > self._requests_max or self._seen[oldest][1] < now_s - self._keep_s:
            del self._seen[oldest]
            oldest = next(iter(self._seen))


class Recent(Generic[Item]):
    """A set of at most `items_max` items; the oldest are forgotten first."""

    def __init__(self, items_max: int) -> None:
        self._items_max = items_max
        self._items: dict[Item, None] = {}

    def __contains__(self, item: Item) -> bool:
        return item in self._items

    def __len__(self) -> int:
        return len(self._items)

    def add(self, item: Item) -> bool:
        """Remember an item; False if it was known."""
        if item in self._items:
            return False
        self._items[item] = None
        if len(self._items) > self._items_max:
            del self._items[next(iter(self._items))]
        return True

    def discard(self, item: Item) -> bool:
        """Forget an item; False if it was not known."""
        return self._items.pop(item, self) is None
