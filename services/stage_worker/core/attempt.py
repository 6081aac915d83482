"""One attempt: its lanes, its credit both ways, and the table of its moves."""

from collections import deque
from collections.abc import Mapping
from enum import Enum
from typing import Final

from services.stage_worker.core.events import InteractAsked
from services.stage_worker.core.submission import RoleSpec, Submission
from services.stage_worker.engines.base import Piece, ResumeContract
from stagemesh.link.core import Cursor, Grant, LaneJournal, Meter, Row, Sender, Step
from stagemesh.media import Modality, split_lane
from stagemesh.outcome import End, ErrorInfo, FinishReason, Terminal, Timings, Usage, error_for

__all__ = ["ENDS", "MOVES", "Attempt", "State"]


class State(Enum):
    """How far an attempt has come, as its orchestrator sees it."""

    WAITING = "waiting"
    """The bridge has not yet given the engine anything."""
    RUNNING = "running"
    STOPPING = "stopping"
    """An abort was asked for, and the engine has not answered."""
    FLUSHING = "flushing"
    """The engine is done, and outputs wait for credit."""
    ORPHANED = "orphaned"
    """Nobody hears it any more; it ends soon."""
    FINISHED = "finished"
    FAILED = "failed"
    CANCELLED = "cancelled"
    HANDED_BACK = "handed_back"
    """It goes on at another worker."""


ENDS: Final = frozenset({State.FINISHED, State.FAILED, State.CANCELLED, State.HANDED_BACK})

MOVES: Final[Mapping[State, frozenset[State]]] = {
    State.WAITING: frozenset({State.RUNNING, State.FLUSHING, *ENDS}),
    State.RUNNING: frozenset({State.STOPPING, State.FLUSHING, State.ORPHANED, *ENDS}),
    State.STOPPING: frozenset({State.FAILED, State.CANCELLED}),
    State.FLUSHING: ENDS,
    State.ORPHANED: frozenset({State.CANCELLED}),
    State.FINISHED: frozenset(),
    State.FAILED: frozenset(),
    State.CANCELLED: frozenset(),
    State.HANDED_BACK: frozenset(),
}
"""The legal moves; whatever is not here is a bug of ours."""


class _Lane:
    """One lane that an attempt was asked for.

    `ended` is what the engine said; `silent` means that its orchestrator knows its end already, so
    that nothing more of it is sent.
    """

    __slots__ = ("ended", "number", "pos", "silent")

    def __init__(self, number: int, journal: LaneJournal | None) -> None:
        self.number = number
        self.pos = 0 if journal is None else journal.next
        self.ended = False
        self.silent = journal is not None and journal.end is not None


class Attempt:
    """One attempt on one link.

    Its lanes begin where earlier attempts came to; nothing before that is sent. `in_engine` is true
    from the moment the engine took it until the engine let go of it, whatever became of the attempt
    meanwhile: that long it holds an engine slot.
    """

    __slots__ = (
        "_by_handle_bytes", "_first_s", "_lanes", "_meters", "_sender", "_started_s",
        "_submitted_s", "_transfer_s", "_unbegun", "_untold", "_usage", "_window", "cursors",
        "deadline_s", "has_sent", "in_engine", "input_closed", "lanes_awaited", "lanes_open",
        "link", "number", "prompts", "role", "slot", "state", "submission", "terminal",
    )  # fmt: skip

    def __init__(
        self,
        *,
        number: int,
        link: int,
        submission: Submission,
        role: RoleSpec,
        output_window: tuple[int, int],
        input_window: tuple[int, int],
        now_s: float,
    ) -> None:
        self.number = number
        self.link = link
        self.slot = role.slot
        self.submission = submission
        self.role = role
        self.state = State.WAITING
        self.in_engine = False
        self.input_closed = False
        self.terminal: Terminal | None = None
        self.prompts: list[InteractAsked] = []
        """Those that came before it began."""
        left_s = submission.deadline_left_s
        self.deadline_s = now_s + left_s if left_s > 0 else None
        self.has_sent = False
        self._lanes = {
            split_lane(lane).modality: _Lane(lane, submission.resume.get(lane))
            for lane in role.lanes
        }
        self.lanes_open = len(self._lanes)
        self.lanes_awaited = sum(not lane.silent for lane in self._lanes.values())
        """Those of which the orchestrator has not heard the end."""
        self.cursors = {source.lane: Cursor() for source in submission.sources_of(role)}
        # Only by this contract does an input begin in the middle: where its first row says.
        per_input = submission.contract is ResumeContract.PER_INPUT
        self._unbegun = set(self.cursors) if per_input else set()
        self._meters: dict[int, Meter] = {}
        self._window = input_window
        self._sender = Sender(*output_window)
        self._by_handle_bytes = 0
        self._untold: deque[str] = deque()
        self._usage = Usage()
        self._submitted_s = now_s
        self._started_s = now_s
        self._first_s: float | None = None
        self._transfer_s = 0.0

    @property
    def ended(self) -> bool:
        """Whether its orchestrator has heard the last of it."""
        return self.state in ENDS

    @property
    def flushed(self) -> bool:
        """Whether nothing waits for credit."""
        return not (self._sender.held_units or self._sender.held_bytes)

    @property
    def held_bytes(self) -> int:
        """The memory of outputs that wait for credit; what a payload store holds is not counted."""
        return self._sender.held_bytes - self._by_handle_bytes

    @property
    def untold(self) -> tuple[str, ...]:
        """The handles in outputs that wait for credit: nobody else knows of them yet."""
        return tuple(self._untold)

    @property
    def wanted(self) -> frozenset[Modality]:
        """The modalities that it was asked for."""
        return frozenset(self._lanes)

    def move(self, to: State) -> None:
        """Make a legal move.

        Raises:
            ValueError: If the table has no such move.
        """
        if to not in MOVES[self.state]:
            raise ValueError(f"attempt {self.number}: no move from {self.state} to {to}")
        self.state = to

    def started(self, now_s: float, transfer_s: float = 0.0) -> None:
        """Note that the engine took it, and what the fetch of its input took until then."""
        self._transfer_s = transfer_s
        self.move(State.RUNNING)
        self.in_engine = True
        self._started_s = now_s

    def take(self, piece: Piece, now_s: float) -> list[Row]:
        """Take one piece of the result; return the rows that may go now."""
        lane = self._lanes.get(piece.modality)
        if lane is None or lane.ended:
            return []
        if self._first_s is None:
            self._first_s = now_s
        end = piece.end
        if end is not None:
            lane.ended = True
            self.lanes_open -= 1
            end = self._timed(end, now_s)
        if lane.silent:
            return []
        if end is not None:
            self.lanes_awaited -= 1
        row = Row(
            self.slot, lane.number, lane.pos, piece.units, piece.text,
            piece.ids if self.role.token_ids else None,
            piece.kind, True, piece.body, end, piece.origin,
        )  # fmt: skip
        lane.pos += piece.units
        ready = self._sender.offer(row)
        self.has_sent = self.has_sent or bool(ready)
        if not ready and row.body is not None and row.body.handle is not None:
            self._by_handle_bytes += row.size_bytes
            self._untold.append(row.body.handle.handle_id)
        return ready

    def discard(self, piece: Piece) -> None:
        """Take a piece of an attempt that is being stopped: only what it says of the end counts."""
        lane = self._lanes.get(piece.modality)
        if piece.end is None or lane is None or lane.ended:
            return
        lane.ended = True
        self.lanes_open -= 1
        self._usage = _sum(self._usage, piece.end.usage)

    @property
    def goes_on(self) -> bool:
        """Whether a lane that has not ended begins after outputs of earlier attempts."""
        return any(lane.pos and not lane.silent for lane in self._lanes.values())

    def end_empty(self, now_s: float) -> list[Row]:
        """End every lane that is still open without another output."""
        rows: list[Row] = []
        for modality, lane in self._lanes.items():
            if not lane.ended:
                usage = Usage(
                    audio_output_samples=lane.pos if modality is Modality.AUDIO else 0,
                    images=lane.pos if modality is Modality.IMAGE else 0,
                )
                end = End(finish_reason=FinishReason.STOP, usage=usage)
                rows += self.take(Piece(attempt=self.number, modality=modality, end=end), now_s)
        return rows

    def granted(self, grant: Grant) -> list[Row]:
        """Raise the credit for outputs; return the rows that may go now."""
        return self._told(self._sender.grant(grant.units, grant.bytes))

    def release(self) -> list[Row]:
        """Give the rows that wait for credit, which they get no more."""
        return self._told(self._sender.release())

    def _told(self, rows: list[Row]) -> list[Row]:
        self.has_sent = self.has_sent or bool(rows)
        if self._untold:
            for row in rows:
                if row.body is not None and row.body.handle is not None:
                    self._by_handle_bytes -= row.size_bytes
                    self._untold.popleft()
        return rows

    def check(self, row: Row) -> Step | None:
        """Judge an input by its position; None if the lane is none of its sources."""
        cursor = self.cursors.get(row.lane)
        if cursor is None:
            return None
        if row.lane in self._unbegun:
            self._unbegun.discard(row.lane)
            cursor.next = row.pos
        return cursor.check(row)

    def input_error(self, row: Row) -> ErrorInfo:
        """Say what is wrong with an input, with both numbers."""
        cursor = self.cursors.get(row.lane)
        if cursor is None:
            return error_for("protocol_error", f"lane {row.lane} is no source of this attempt")
        return error_for(
            "protocol_error", f"input of lane {row.lane} at {row.pos}, but {cursor.next} is next"
        )

    def took(self, lane: int, units: int, size_bytes: int) -> Grant | None:
        """Count an input that was taken; return what to grant for its source, if it is due."""
        meter = self._meters.get(lane)
        if meter is None:
            meter = self._meters[lane] = Meter(*self._window)
        totals = meter.took(units, size_bytes)
        return None if totals is None else Grant(self.slot, lane, *totals)

    def usage(self) -> Usage:
        """Give what the ends that came so far say was used."""
        return self._usage

    def timings(self, now_s: float) -> Timings:
        """Tell where the time went so far."""
        first_s = self._first_s
        return Timings(
            queue_s=self._started_s - self._submitted_s,
            first_output_s=0.0 if first_s is None else first_s - self._submitted_s,
            compute_s=now_s - self._started_s if self.state is not State.WAITING else 0.0,
            total_s=now_s - self._submitted_s,
            transfer_s=self._transfer_s,
        )

    def _timed(self, end: End, now_s: float) -> End:
        """Count an end's usage, and give it timings where the engine measured none itself."""
        self._usage = _sum(self._usage, end.usage)
        if end.timings != Timings():
            return end
        return End(
            finish_reason=end.finish_reason,
            stop_match=end.stop_match,
            usage=end.usage,
            timings=self.timings(now_s),
        )


def _sum(one: Usage, other: Usage) -> Usage:
    """Add up the ends of an attempt's lanes; its one prompt counts once."""
    return Usage(
        prompt_tokens=max(one.prompt_tokens, other.prompt_tokens),
        cached_tokens=max(one.cached_tokens, other.cached_tokens),
        completion_tokens=one.completion_tokens + other.completion_tokens,
        audio_input_samples=max(one.audio_input_samples, other.audio_input_samples),
        audio_output_samples=one.audio_output_samples + other.audio_output_samples,
        images=one.images + other.images,
        complete=one.complete and other.complete,
    )
