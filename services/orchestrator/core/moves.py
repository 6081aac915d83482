"""The states of requests, groups and attempts, and every move between them, as tables.

The code moves by these tables and the docs draw them; a move that is not listed is our bug.
"""

from enum import Enum
from typing import Final, Generic, NamedTuple, TypeVar

__all__ = [
    "ATTEMPT_MOVES",
    "GROUP_MOVES",
    "REQUEST_MOVES",
    "AttemptState",
    "IllegalMove",
    "Move",
    "Moves",
    "RequestState",
    "Standing",
]


class RequestState(Enum):
    """Where a request stands."""

    QUEUED = "queued"
    """Let in by the door; waits for admission."""
    RUNNING = "running"
    STOPPING = "stopping"
    """Has its verdict; waits for its attempts to let go."""
    ORPHANED = "orphaned"
    """Its gateway is lost; it starts nothing and waits to be opened under a higher epoch."""
    DONE = "done"


class AttemptState(Enum):
    """Where an attempt stands."""

    PENDING = "pending"
    """Wants a replica, or waits for its back-off."""
    SUBMITTED = "submitted"
    STREAMING = "streaming"
    STOPPING = "stopping"
    """Was told to stop; holds its engine slot until the worker answers."""
    FINISHED = "finished"
    FAILED = "failed"
    REFUSED = "refused"
    """Found no room; not counted."""
    CANCELLED = "cancelled"
    LOST = "lost"


class Standing(Enum):
    """Where a group stands: one choice of a stage with its companions."""

    WAITING = "waiting"
    """Its inputs do not allow it yet."""
    PENDING = "pending"
    """Wants a replica, or waits for its back-off."""
    LIVE = "live"
    LOST = "lost"
    """Was started, and what it has not given yet nobody is making."""
    OVER = "over"
    """Finished, or not needed any more; what it gave may yet have to be made again."""


S = TypeVar("S", RequestState, AttemptState, Standing)


class IllegalMove(RuntimeError):
    """The core wanted a move that its table does not have."""


class Move(NamedTuple, Generic[S]):
    """One legal move."""

    source: S
    to: S
    why: str


class Moves(Generic[S]):
    """A table of moves; things begin in `start`."""

    def __init__(self, title: str, start: S, *moves: Move[S]) -> None:
        self.title = title
        self.start: S = start
        self.moves: tuple[Move[S], ...] = moves
        self._legal: frozenset[tuple[S, S]] = frozenset((move.source, move.to) for move in moves)

    def check(self, source: S, to: S) -> S:
        """Give the new state.

        Raises:
            IllegalMove: If the table has no such move.
        """
        if (source, to) not in self._legal:
            raise IllegalMove(f"{self.title}: from {source.name} to {to.name}")
        return to


def _request_moves() -> Moves[RequestState]:
    r = RequestState
    away = "handed back, opened under a higher epoch, fenced"
    return Moves(
        "request",
        r.QUEUED,
        Move(r.QUEUED, r.RUNNING, "admitted"),
        Move(r.QUEUED, r.STOPPING, "abort, deadline, failure, drain"),
        Move(r.RUNNING, r.STOPPING, "abort, deadline, failure, drain"),
        Move(r.RUNNING, r.DONE, f"everything given, all attempts ended or usage_wait_s; {away}"),
        Move(r.STOPPING, r.DONE, "all attempts ended, abort_ack_s, gateway link lost, fenced"),
        Move(r.QUEUED, r.ORPHANED, "gateway link lost"),
        Move(r.RUNNING, r.ORPHANED, "gateway link lost"),
        Move(r.QUEUED, r.DONE, away),
        Move(r.ORPHANED, r.QUEUED, "another gateway took it over (detachable)"),
        Move(r.ORPHANED, r.RUNNING, "another gateway took it over (detachable)"),
        Move(
            r.ORPHANED,
            r.DONE,
            "orphan_s (detachable: detach_s), deadline, drain, opened under a higher epoch, fenced",
        ),
    )


def _attempt_moves() -> Moves[AttemptState]:
    a = AttemptState
    lost = "link lost, stalled, unknown to the worker, or set aside by recovery"
    return Moves(
        "attempt",
        a.PENDING,
        Move(a.PENDING, a.SUBMITTED, "placed"),
        Move(a.PENDING, a.CANCELLED, "the request stops, or nobody needs it"),
        Move(a.SUBMITTED, a.STREAMING, "first output"),
        Move(a.SUBMITTED, a.REFUSED, "no room; a new attempt follows"),
        Move(a.SUBMITTED, a.STOPPING, "abort sent"),
        Move(a.SUBMITTED, a.FAILED, "the worker failed it, or broke the protocol"),
        Move(a.SUBMITTED, a.CANCELLED, "the worker gave it up, or handed it back"),
        Move(a.SUBMITTED, a.LOST, lost),
        Move(a.STREAMING, a.FINISHED, "all its lanes ended"),
        Move(a.STREAMING, a.STOPPING, "abort sent"),
        Move(a.STREAMING, a.FAILED, "the worker failed it, or broke the protocol"),
        Move(a.STREAMING, a.CANCELLED, "the worker gave it up, or handed it back"),
        Move(a.STREAMING, a.LOST, lost),
        Move(a.STOPPING, a.CANCELLED, "the worker answered, was lost, or the request ended"),
    )


def _group_moves() -> Moves[Standing]:
    s = Standing
    needless = "nobody needs it, or the request ends"
    lost = "an attempt of it was lost or handed back, or its input or output is to be made again"
    again = "what it reads begins again"
    return Moves(
        "group",
        s.WAITING,
        Move(s.WAITING, s.PENDING, "its inputs allow it"),
        Move(s.WAITING, s.LOST, "another owner began it"),
        Move(s.WAITING, s.OVER, f"another owner had it whole; {needless}"),
        Move(s.PENDING, s.LIVE, "placed"),
        Move(s.PENDING, s.LOST, lost),
        Move(s.PENDING, s.WAITING, again),
        Move(s.PENDING, s.OVER, needless),
        Move(s.LIVE, s.PENDING, "refused, or some of it wants another replica"),
        Move(s.LIVE, s.LOST, lost),
        Move(s.LIVE, s.WAITING, again),
        Move(s.LIVE, s.OVER, f"all its lanes ended; {needless}"),
        Move(s.LOST, s.PENDING, "it can go on"),
        Move(s.LOST, s.WAITING, again),
        Move(s.LOST, s.OVER, needless),
        Move(s.OVER, s.LOST, "its output is to be made again"),
        Move(s.OVER, s.WAITING, again),
    )


REQUEST_MOVES: Final = _request_moves()
GROUP_MOVES: Final = _group_moves()
ATTEMPT_MOVES: Final = _attempt_moves()
