"""Requests whose journal or input comes in parts, until everything of them is there."""

from dataclasses import dataclass, field
from typing import Final

from stagemesh.api.types.v1 import link_pb2
from stagemesh.errors import MeshError
from stagemesh.link.core import INPUT_PIECE_BYTES, Row
from stagemesh.outcome import error_for

__all__ = ["Opening", "Openings"]

BYTES_MAX: Final = 64 * 1024 * 1024
"""What the openings of one link may hold: many times the journal of one request."""


@dataclass(slots=True)
class Opening:
    """One request, its journal's parts, and the pieces of input that an earlier owner was given."""

    frame: link_pb2.Open
    parts: list[link_pb2.JournalPart] = field(default_factory=list)
    inputs: list[Row] = field(default_factory=list)
    size_bytes: int = 0


class Openings:
    """The openings of one gateway link that are under way, by slot."""

    def __init__(self) -> None:
        self._openings: dict[int, Opening] = {}
        self._size_bytes = 0

    def __len__(self) -> int:
        return len(self._openings)

    def begin(self, frame: link_pb2.Open) -> bool:
        """Wait for the rest of a request; False if there is none.

        Raises:
            MeshError: If more is under way than a link may have.
        """
        if not frame.more:
            return False
        self._grow(frame.slot, frame.ByteSize(), Opening(frame))
        return True

    def add(self, part: link_pb2.JournalPart) -> None:
        """Take a part; one of a slot that nobody opened is dropped.

        Raises:
            MeshError: If more is under way than a link may have.
        """
        opening = self._openings.get(part.slot)
        if opening is not None:
            opening.parts.append(part)
            self._grow(part.slot, part.ByteSize(), opening)

    def add_input(self, row: Row) -> bool:
        """Take a piece of input; False if its slot is not under way.

        Raises:
            MeshError: If more is under way than a link may have.
        """
        opening = self._openings.get(row.slot)
        if opening is None:
            return False
        opening.inputs.append(row)
        self._grow(row.slot, INPUT_PIECE_BYTES + row.size_bytes, opening)
        return True

    def take(self, slot: int) -> Opening | None:
        """Give a request with all that came of it, and forget it; None if it is not under way."""
        opening = self._openings.pop(slot, None)
        if opening is None:
            return None
        self._size_bytes -= opening.size_bytes
        return opening

    def _grow(self, slot: int, size_bytes: int, opening: Opening) -> None:
        self.take(slot)
        opening.size_bytes += size_bytes
        if self._size_bytes + opening.size_bytes > BYTES_MAX:
            text = f"The journals under way on this link take more than {BYTES_MAX} bytes."
            raise MeshError(error_for("protocol_error", text))
        self._openings[slot] = opening
        self._size_bytes += opening.size_bytes
