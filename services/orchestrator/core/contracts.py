"""How a stage whose replica was lost may go on, by what the replica's engine promises."""

from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from services.orchestrator.core.replicas import WorkerCard

__all__ = ["ResumeContract", "effective"]


class ResumeContract(IntEnum):
    """How a lost attempt may be continued: the same numbers as in `link.proto`."""

    TOKENS = 1
    """After the token ids so far."""
    PER_INPUT = 2
    """From the first input whose outputs were not all given."""
    REPLAY = 3
    """By doing all of it again, without what was given."""
    RESTART = 4
    """From the beginning, if nothing was given."""
    NONE = 5
    """Not at all."""


def effective(card: "WorkerCard") -> ResumeContract:
    """Give the contract that holds: a replay of an engine that is not deterministic is none."""
    if card.resume_contract is ResumeContract.REPLAY and not card.deterministic:
        return ResumeContract.RESTART
    return card.resume_contract
