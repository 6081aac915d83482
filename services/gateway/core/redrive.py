"""When a request that lost its owner is given to another, and when it is given up."""

from dataclasses import dataclass
from enum import Enum

from stagemesh.outcome import ErrorCode, ErrorInfo, Outcome, Terminal, error_for, refuses

__all__ = ["Loss", "LossKind", "Redrive", "RedrivePolicy", "is_refusal"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RedrivePolicy:
    """How long, how often and how fast."""

    redrive_s: float = 10.0
    """How long a request may be without an owner."""
    epochs_max: int = 4
    """How many owners it may lose; one that hands it back or refuses it does not count."""
    jitter_s: float = 0.05
    """Within this, at random, it goes to the next; doubled for each that would not have it."""
    jitter_max_s: float = 1.0
    """What that is doubled up to."""


class LossKind(Enum):
    """How an owner was lost: also the label under which it is counted."""

    LINK = "link_lost"
    """Its link is over."""
    UNKNOWN = "unknown"
    """It says that it has no such request."""
    HANDED_BACK = "handed_back"
    """It gave the request up in good order."""
    REFUSED = "refused"
    """It had no room for it, or was being stopped."""
    HANDLE = "handle_lost"
    """It believes the request complete, but bytes of the answer are gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """One owner that a request has no longer, and the cause to give if there is no other."""

    kind: LossKind
    info: ErrorInfo


class Redrive:
    """The re-drives of one request; time in seconds on any steady clock, draws from 0 to 1."""

    __slots__ = (
        "_handles",
        "_info",
        "_losses",
        "_opened_s",
        "_policy",
        "_since_s",
        "_tries",
        "epoch",
    )

    def __init__(self, policy: RedrivePolicy) -> None:
        self.epoch = 0
        self._policy = policy
        self._losses = 0
        self._handles = 0
        self._tries = 0
        self._opened_s = 0.0
        self._since_s: float | None = None
        self._info: ErrorInfo | None = None

    @property
    def proven(self) -> bool:
        """Whether the owner has shown that it works on the request."""
        return self._since_s is None and self._tries == 0

    @property
    def ends_s(self) -> float:
        """When a request without an owner is given up."""
        return (self._since_s or 0.0) + self._policy.redrive_s

    def opened(self, now_s: float) -> int:
        """Count the next owner, and return the epoch that it has the request under."""
        self.epoch += 1
        self._opened_s = now_s
        return self.epoch

    def minted(self, epoch: int) -> None:
        """Note the epoch under which the next owner has it, where others mint those."""
        self.epoch = epoch - 1

    def progress(self) -> None:
        """Note that the owner works on the request: what comes next is a new loss."""
        self._since_s = None
        self._tries = 0

    def lost(self, loss: Loss, now_s: float) -> ErrorInfo | None:
        """Count a loss; return the cause of the end if it is the last that is borne."""
        held = self.proven or now_s - self._opened_s >= self._policy.redrive_s
        given_up = loss.kind in {LossKind.HANDED_BACK, LossKind.REFUSED}
        if not given_up or held:
            self._since_s = now_s
            self._tries = 0
        elif self._since_s is None:
            self._since_s = now_s
        self._tries += 1
        self._info = loss.info
        if not given_up:
            self._losses += 1
            if self._losses >= self._policy.epochs_max:
                return loss.info
        return None

    def handle_lost(self, info: ErrorInfo) -> ErrorInfo | None:
        """Count bytes that were lost; return the cause of the end if these are the last borne."""
        self._handles += 1
        return info if self._handles >= self._policy.epochs_max else None

    def none_found(self, info: ErrorInfo) -> None:
        """Note why nobody could be given the request."""
        if info.code is ErrorCode.DRAINING:
            self._info = info

    def delay_s(self, draw: float) -> float:
        """How long to wait before the next try."""
        policy = self._policy
        return draw * min(policy.jitter_max_s, policy.jitter_s * 2.0 ** (max(1, self._tries) - 1))

    def verdict(self) -> ErrorInfo:
        """The cause of the end when nobody was found in time."""
        return self._info or error_for("link_lost")


def is_refusal(terminal: Terminal, epoch: int) -> bool:
    """Tell whether an owner's end only means: not here.

    A first owner's refusal is the client's answer, unless that owner was just being stopped.
    """
    error = terminal.error
    if terminal.outcome is not Outcome.REJECTED or error is None:
        return False
    return error.code is ErrorCode.DRAINING or (epoch > 1 and refuses(error.code))
