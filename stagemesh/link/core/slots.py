"""Slots: the numbers of requests and attempts on one link."""

from typing import Final

__all__ = ["SlotMint"]

_SLOT_MAX: Final = 0xFFFF_FFFF


class SlotMint:
    """Mints the slots of one link: from 1, and none twice.

    A late row must meet an unknown slot, never somebody else's.
    """

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last = 0

    def next(self) -> int:
        """Mint a slot.

        Raises:
            OverflowError: If the link has used up its 2^32 - 1 slots and must be replaced.
        """
        if self._last == _SLOT_MAX:
            raise OverflowError("this link has no slot left")
        self._last += 1
        return self._last
