"""Why a worker takes nothing, or not this."""

from collections.abc import Mapping
from enum import IntEnum
from typing import Final

from stagemesh.outcome import ErrorCode, ErrorInfo, Outcome, error_for, refuses

__all__ = ["ProcessState", "outcome_for", "refusal"]


class ProcessState(IntEnum):
    """Whether a worker takes attempts: the same numbers as in `link.proto`."""

    STARTING = 1
    READY = 2
    DRAINING = 3
    STALLED = 4
    PAUSED = 5
    ASLEEP = 6


_CLOSED: Final[Mapping[ProcessState, str]] = {
    ProcessState.STARTING: "no_replica",
    ProcessState.DRAINING: "draining",
    ProcessState.STALLED: "stalled",
    ProcessState.PAUSED: "paused",
    ProcessState.ASLEEP: "asleep",
}


def refusal(state: ProcessState, *, room: bool) -> ErrorInfo | None:
    """Give the cause for taking nothing now; None if there is room for it."""
    if (reason := _CLOSED.get(state)) is not None:
        return error_for(reason)
    return None if room else error_for("no_slot")


def outcome_for(code: ErrorCode, *, started: bool) -> Outcome:
    """Tell how an attempt ended that has this cause; engines refuse as their worker does."""
    if code is ErrorCode.ABORTED:
        return Outcome.CANCELLED
    if code is ErrorCode.DEADLINE:
        return Outcome.DEADLINE_EXCEEDED
    return Outcome.REJECTED if refuses(code) and not started else Outcome.FAILED
