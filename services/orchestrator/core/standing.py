"""Where groups of a request stand, how they came to be lost, and how requests are going to end."""

from dataclasses import dataclass
from enum import Enum

from services.orchestrator.core.contracts import ResumeContract
from stagemesh.outcome import ErrorInfo, Outcome

__all__ = ["Loss", "Standing", "Verdict", "Way"]


@dataclass(slots=True, frozen=True)
class Verdict:
    """How a request is going to end."""

    outcome: Outcome
    error: ErrorInfo | None


class Standing(Enum):
    """Where a group stands."""

    WAITING = "waiting"
    """Its inputs do not allow it yet."""
    PENDING = "pending"
    """Wants a replica, or waits for its back-off."""
    LIVE = "live"
    LOST = "lost"
    """Was started, and what it has not given yet nobody is making."""
    OVER = "over"
    """Finished, or not needed any more."""


class Loss(Enum):
    """How a group came to be lost, the gravest last."""

    HANDED_BACK = 0
    """In good order; costs nothing."""
    INPUT = 1
    """What it had to read was gone; costs nothing."""
    WORK = 2
    """Its worker does not have it any more."""
    CRASH = 3
    """Its replica was lost, or stands still: perhaps because of what it was given."""


@dataclass(slots=True, frozen=True)
class Way:
    """How a lost group goes on.

    `start` is the first unit of its one stream input that it is sent. With `reset` everything that
    it gave, and what others made of it, is dropped first.
    """

    contract: ResumeContract
    start: int = 0
    reset: bool = False
