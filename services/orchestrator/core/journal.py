"""What is remembered of a lane's outputs, so that another attempt can go on behind them."""

from array import array

from services.orchestrator.core.contracts import ResumeContract
from stagemesh.link.core import LaneDigest, LaneJournal, Row
from stagemesh.media import Modality

__all__ = ["LaneLog", "covers", "tail_of"]


class LaneLog:
    """The token ids of a lane, its digest, and the last input that it was made of.

    Which of them is kept follows from the contract of the lane's stage. Ids that are not there for
    every position are worth nothing and are dropped.
    """

    __slots__ = ("digest", "ids", "ids_counted", "origin", "origin_pos", "start")

    def __init__(self, start: int = 0) -> None:
        self.start = start
        """Where the run began that it is of."""
        self.ids: array[int] | None = None
        self.ids_counted = 0
        """How many of the ids the request's bound counts."""
        self.digest: LaneDigest | None = None
        self.origin: tuple[int, int] | None = None
        self.origin_pos = 0
        """Where the outputs of that input begin."""

    @classmethod
    def begun(
        cls, contract: ResumeContract, modality: Modality, next_pos: int, start: int = 0
    ) -> "LaneLog | None":
        """Make the log of a lane of which nothing was kept before; None where none is needed.

        `start` is where the present run of its stage began.
        """
        log = cls(start)
        if contract is ResumeContract.TOKENS and modality is Modality.TEXT:
            log.ids = array("I") if next_pos == start else None
        elif contract in (ResumeContract.REPLAY, ResumeContract.PER_INPUT):
            log.digest = LaneDigest() if next_pos == start else LaneDigest(b"")
        else:
            return None
        return log

    @classmethod
    def given(cls, lane: LaneJournal) -> "LaneLog":
        """Make the log of a lane that another owner journaled."""
        log = cls(lane.segment_pos)
        if lane.ids and len(lane.ids) == lane.next - lane.segment_pos:
            log.ids = array("I", lane.ids)
        elif lane.next == lane.segment_pos:
            log.ids = array("I") if lane.segments else None
        if covers(lane.rows, lane.next):
            log.digest = LaneDigest()
            for row in lane.rows:
                if row.pos >= lane.segment_pos:
                    log.digest.add(row)
        else:
            log.digest = LaneDigest(lane.digest)
        return log

    def add(self, row: Row) -> None:
        """Take the next output of the lane."""
        ids = self.ids
        if ids is not None and row.units:
            if (
                row.ids is not None
                and len(row.ids) == row.units
                and len(ids) == row.pos - self.start
            ):
                ids.extend(row.ids)
            else:
                self.ids = None
        if self.digest is not None:
            self.digest.add(row)
        # Several outputs of one input share where it begins, not where they end.
        if row.origin is not None and (self.origin is None or row.origin[0] != self.origin[0]):
            self.origin = row.origin
            self.origin_pos = row.pos

    def cut(self) -> None:
        """Forget what a lane that is set back cannot keep."""
        self.digest = LaneDigest(b"")
        self.ids = None
        self.origin = None


def covers(rows: list[Row], next_pos: int) -> bool:
    """Whether rows are all of a lane, from position 0 to the next one."""
    at = 0
    for row in rows:
        if row.pos != at:
            return False
        at += row.units
    return at == next_pos


def tail_of(lane: int, next_pos: int, log: LaneLog | None, contract: ResumeContract) -> LaneJournal:
    """Tell a worker where a lane stands, with what the contract needs of what was before.

    Positions are those of its present run, which is all that a worker knows of.
    """
    start = 0 if log is None else log.start
    mark = LaneJournal(lane=lane, next=next_pos)
    if log is None or next_pos == 0:
        return mark
    if contract is ResumeContract.TOKENS:
        mark.ids = [*log.ids] if log.ids is not None else []
    elif contract is ResumeContract.PER_INPUT:
        mark.next = log.origin_pos - start
    elif log.digest is not None:
        mark.digest = log.digest.value
    return mark
