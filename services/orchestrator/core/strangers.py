"""Slots that mean nothing here: each is answered once."""

from collections import OrderedDict
from typing import Final

__all__ = ["Strangers"]

COUNT_MAX: Final = 1024


class Strangers:
    """The unknown slots of one link that were answered; only the last ones are remembered."""

    __slots__ = ("_slots",)

    def __init__(self) -> None:
        self._slots: OrderedDict[int, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._slots)

    def is_new(self, slot: int) -> bool:
        """Tell once for each slot that it was not answered yet."""
        if slot in self._slots:
            return False
        self._slots[slot] = None
        if len(self._slots) > COUNT_MAX:
            self._slots.popitem(last=False)
        return True
