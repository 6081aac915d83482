"""What a client of one request has given piece by piece: kept for the next owner."""

from stagemesh.link.core import INPUT_PIECE_BYTES, Row

__all__ = ["InputLog"]


class InputLog:
    """The pieces of one input, in order.

    Above its bound nothing is kept, and no other owner can go on with the request.
    """

    __slots__ = ("_bytes_max", "next", "rows", "size_bytes", "whole")

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self.next = 0
        """The position of the next piece."""
        self.rows: list[Row] = []
        self.size_bytes = 0
        self.whole = True

    def add(self, row: Row) -> None:
        """Keep the next piece."""
        self.next += row.units
        if not self.whole:
            return
        self.rows.append(row)
        self.size_bytes += INPUT_PIECE_BYTES + row.size_bytes
        if self.size_bytes > self._bytes_max:
            self.whole = False
            self.rows, self.size_bytes = [], 0
