"""What one request has produced so far, lane by lane: what is taken of it, and what is kept.

It is what another orchestrator goes on from when this request's owner is lost. A lane is a number
here: whether its rows are kept follows from what it carries, never from which stage made it.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Final

from services.gateway.core.detached import LanePosition
from services.gateway.core.lanes import KeptLane
from stagemesh.link.core import Journal, Placed, Row, Step
from stagemesh.media import Modality

__all__ = ["LANES_MAX", "RequestJournal"]

LANES_MAX: Final = 4096
"""Lanes of one request, hidden ones included."""


class RequestJournal:
    """The lanes of one request: each in order and without gaps, and only those that it asked for.

    A visible row whose bytes lie behind a handle is delivered once they were fetched; until then it
    and what follows it in its lane *wait*, and the journal stands before it.

    Of a request that another gateway had, only positions are known, of visible lanes, and only
    those are kept and exported: `begun` is where they stood. Its owner mirrors nothing.
    """

    __slots__ = (
        "_bare", "_bytes_max", "_choices", "_lanes", "_modalities", "_placed", "_whole",
        "revision", "size_bytes", "waiting",
    )  # fmt: skip

    def __init__(
        self,
        choices: int,
        modalities: Sequence[Modality],
        *,
        bytes_max: int,
        begun: Iterable[LanePosition] | None = None,
        revision: str = "",
    ) -> None:
        self._choices = choices
        self._modalities = frozenset(int(modality) for modality in modalities)
        self._bytes_max = bytes_max
        self.size_bytes = 0
        """About how much is kept, but for the last few rows."""
        self._bare = begun is not None
        self._lanes = {one.lane: KeptLane.begun(one) for one in begun or ()}
        self._placed: dict[tuple[int, int], Placed] = {}
        self._whole = not self._bare
        self.revision = revision
        """Of the pipeline that makes it."""
        self.waiting = 0
        """How many rows were taken and are not delivered yet."""

    @property
    def recoverable(self) -> bool:
        """Whether the journal is all that it may be: it has not outgrown its bound."""
        self._join()
        return self._whole or self._bare

    def opened(self, revision: str) -> None:
        """Note the revision that the next owner goes by; what was made before has its own."""
        self.revision = self.revision_at(revision)

    def revision_at(self, revision: str) -> str:
        """Give the revision that it has at an owner that goes by this one."""
        return self.revision if self._lanes or self._placed else revision

    def goes_on_at(self, revision: str) -> bool:
        """Whether an owner can go on from it whose pipeline has this revision."""
        return revision == self.revision_at(revision)

    def take(self, row: Row) -> Step:
        """Judge a row, and keep it if it is accepted; a lane not asked for is as wrong as a gap."""
        lane = self._lanes.get(row.lane)
        if lane is None:
            if not self._may_begin(row):
                return Step.GAP
            lane = self._lanes[row.lane] = KeptLane(row.lane, visible=row.visible)
            if not self._whole:
                lane.drop()
        elif lane.visible is not row.visible:
            return Step.GAP
        step = lane.cursor.check(row)
        if lane.skipping:
            step = lane.skip(step)
        if step is not Step.ACCEPT:
            return step
        if lane.waiting or (row.body is not None and row.visible and row.body.handle is not None):
            lane.waiting += 1
            self.waiting += 1
        else:
            self._keep(lane, row)
        return step

    def waits(self, lane: int) -> bool:
        """Whether rows of a lane wait to be delivered, the one that was taken last among them."""
        return self.waiting > 0 and self._lanes[lane].waiting > 0

    def deliver(self, row: Row) -> None:
        """Keep the first row of its lane that waits, as it came on the link."""
        lane = self._lanes[row.lane]
        lane.waiting -= 1
        self.waiting -= 1
        self._keep(lane, row)

    def take_back(self, lane: int) -> None:
        """Forget what waits of a lane, since its bytes are lost: it comes once more.

        What was on its way behind them is dropped until then.
        """
        self._forget(self._lanes[lane])
        self._lanes[lane].skipping = True

    def take_all_back(self) -> None:
        """Forget whatever waits: the next owner gives it again."""
        for lane in self._lanes.values():
            self._forget(lane)

    def reset(self, stages: Collection[int]) -> bool:
        """Drop the lanes of stages that start again; tell whether nothing of them was delivered."""
        lanes = [lane for lane in self._lanes.values() if lane.number >> 20 in stages]
        for lane in lanes:
            self._forget(lane)
            self.size_bytes -= lane.size_bytes
            del self._lanes[lane.number]
        return not any(lane.visible and lane.next for lane in lanes)

    def place(self, placed: Placed) -> None:
        """Note where a stage was given last; it is for the next owner, and means nothing here."""
        key = (placed.stage, placed.role)
        if self._bare:
            return
        if key in self._placed or len(self._placed) < LANES_MAX:
            self._placed[key] = placed

    def expected(self, lane: int) -> int:
        """Give the next position of a lane, for the log."""
        kept = self._lanes.get(lane)
        return kept.cursor.next if kept else 0

    def export(self) -> Journal:
        """Give what another orchestrator needs to go on; only a journal that is whole may be."""
        self._join()
        return Journal(
            lanes=[lane.export() for lane in self._lanes.values()],
            placed=list(self._placed.values()),
            revision=self.revision,
        )

    def _keep(self, lane: KeptLane, row: Row) -> None:
        grown = lane.keep(row)
        if grown:
            self._grow(grown)

    def _join(self) -> None:
        for lane in self._lanes.values():
            self._grow(lane.join())

    def _grow(self, size_bytes: int) -> None:
        self.size_bytes += size_bytes
        if self.size_bytes > self._bytes_max and self._whole:
            self._whole = False
            for lane in self._lanes.values():
                lane.drop()

    def _forget(self, lane: KeptLane) -> None:
        self.waiting -= lane.waiting
        self._grow(lane.join())
        lane.take_back()

    def _may_begin(self, row: Row) -> bool:
        """Whether a lane may begin with this row: one that is not shown may be any."""
        if len(self._lanes) >= LANES_MAX:
            return False
        if not row.visible:
            return not self._bare
        return (
            row.lane & 0xF in self._modalities
            and row.lane >> 4 & 0xFFFF < self._choices
            # One stage gives one modality, so no choice has two visible lanes of one.
            and not any(
                lane.visible and lane.number & 0xFFFFF == row.lane & 0xFFFFF
                for lane in self._lanes.values()
            )
        )
