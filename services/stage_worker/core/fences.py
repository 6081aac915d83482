"""Short memories with a bound: the highest epoch of each request, and slots that mean nothing."""

from collections.abc import Hashable
from typing import Final, Generic, TypeVar

__all__ = ["Fences", "Recent"]

FENCES_MAX: Final = 100_000
"""How many requests a worker remembers; the oldest are forgotten first."""

Item = TypeVar("Item", bound=Hashable)


class Fences:
    """The highest epoch seen of each request."""

    def __init__(self, requests_max: int = FENCES_MAX) -> None:
        self._requests_max = requests_max
        self._epochs: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._epochs)

    def epoch(self, request_id: str) -> int:
        """Give the highest epoch seen; 0 if the request is not remembered."""
        return self._epochs.get(request_id, 0)

    def raise_to(self, request_id: str, epoch: int) -> bool:
        """Note an epoch; False if a higher one was seen, which stays in force."""
        known = self._epochs.pop(request_id, 0)
        self._epochs[request_id] = max(known, epoch)
        if len(self._epochs) > self._requests_max:
            del self._epochs[next(iter(self._epochs))]
        return epoch >= known


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
