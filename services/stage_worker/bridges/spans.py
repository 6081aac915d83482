"""Which units of a source some text covers, where the text is cut elsewhere than the source was."""

from collections import deque

__all__ = ["Spans"]


class _Piece:
    """A piece of the source's text, as far as it has not been taken."""

    __slots__ = ("chars", "end", "start", "units", "whole")

    def __init__(self, chars: int, start: int, units: int) -> None:
        self.chars = chars
        self.start = start
        self.units = units
        self.end = start + units
        self.whole = True


class Spans:
    """Takes the source's pieces as they come, and tells of each cut of their text where it was.

    A source can be sent again from the beginning of a piece only. So the span of a cut begins where
    one could begin again and come to the same cuts: at its own first piece if that begins with it,
    else where the span of the cut before it begins.
    """

    def __init__(self) -> None:
        self._pieces: deque[_Piece] = deque()
        self._start = 0

    def add(self, chars: int, start: int, units: int) -> None:
        """Take the next piece: its text's length, and the units that it covers."""
        self._pieces.append(_Piece(chars, start, units))

    def take(self, chars: int) -> tuple[int, tuple[int, int]]:
        """Cut off characters; give the units of the pieces that end in them, and their span."""
        pieces = self._pieces
        if pieces and pieces[0].whole:
            self._start = pieces[0].start
        units, end = 0, self._start
        while pieces and pieces[0].chars <= chars:
            piece = pieces.popleft()
            chars -= piece.chars
            units += piece.units
            end = piece.end
        if chars and pieces:
            pieces[0].chars -= chars
            pieces[0].whole = False
            end = pieces[0].end
        return units, (self._start, end)
