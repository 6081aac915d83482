"""One attempt in a compute thread: its inputs as they come, and the wish to stop it."""

import queue
from collections.abc import Hashable, Iterator

from services.stage_worker.engines.base import EngineInput, Piece, Work
from stagemesh.outcome import End, FinishReason, Usage, error_for

__all__ = ["Job"]

_END_OF_INPUT = None


class Job:
    """Written by the event loop, read by a compute thread; what a run tells of itself, in turn."""

    def __init__(self, work: Work, key: Hashable = None) -> None:
        self.work = work
        self.key = key
        self.aborted = False
        self.ended = False
        self.usage = Usage()
        """What was used so far, if a run cares to say so."""
        self.taken = 0
        """How many appended inputs were taken since the last step."""
        self._later: queue.SimpleQueue[EngineInput | None] = queue.SimpleQueue()
        if not work.streamed:
            self._later.put(_END_OF_INPUT)

    def append(self, piece: EngineInput) -> None:
        """Add the next input of a streamed attempt."""
        self._later.put(piece)

    def close_input(self) -> None:
        """Mark the input as complete."""
        self._later.put(_END_OF_INPUT)

    def abort(self) -> None:
        """Ask the thread to stop at its next step, also if it waits for input."""
        self.aborted = True
        self._later.put(_END_OF_INPUT)

    def inputs(self) -> Iterator[EngineInput]:
        """Yield the input and what is appended to it; blocks the compute thread in between."""
        yield self.work.input
        while not self.aborted and (piece := self._later.get()) is not _END_OF_INPUT:
            self.taken += 1
            yield piece

    def taken_pieces(self) -> Iterator[Piece]:
        """Tell of the inputs that were taken, once."""
        if self.taken:
            yield Piece(attempt=self.work.attempt, taken=self.taken)
            self.taken = 0

    def aborted_piece(self) -> Piece:
        """Make the last piece of an aborted attempt, with what it used."""
        end = End(finish_reason=FinishReason.ABORT, usage=self.usage)
        return Piece(
            attempt=self.work.attempt,
            end=None if self.usage == Usage() else end,
            error=error_for("aborted"),
        )
