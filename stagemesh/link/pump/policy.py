"""What an operator may set of links, and the words for how they end."""

from dataclasses import dataclass
from enum import StrEnum

from stagemesh.link.core import MESSAGE_BYTES_MAX, MESSAGE_ROWS_MAX

__all__ = ["Backoff", "LinkEnd", "LinkPolicy"]


class LinkEnd(StrEnum):
    """Why a link ended; a reason is one of these words, mostly with `: ` and details after it."""

    CLOSED = "closed"
    """This end closed it."""
    PEER_CLOSED = "peer_closed"
    """The peer closed it; at a server also: the peer is gone, which gRPC may not tell apart."""
    BROKEN = "broken"
    """The stream broke, or could not be opened."""
    SILENT = "silent"
    """The peer said nothing for `peer_lost_s`, or took nothing for as long."""
    STOOD_STILL = "stood_still"
    """This process stood still for longer than `peer_lost_s`."""
    PROTOCOL = "protocol"
    """The peer broke a rule of the link."""
    OUTBOX_FULL = "outbox_full"
    """More waited to be written than `outbox_bytes_max`."""
    CANCELLED = "cancelled"
    """The task that served the link was cancelled; at a server also: the peer is gone."""
    FAULT = "fault"
    """An error of this program, which is raised to whoever runs the link."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkPolicy:
    """The timers and bounds of a link."""

    heartbeat_s: float = 2.0
    peer_lost_s: float = 6.0
    linger_s: float = 1.0
    """How long a link that is being closed may take to write what waits."""
    message_bytes_max: int = MESSAGE_BYTES_MAX
    message_rows_max: int = MESSAGE_ROWS_MAX
    outbox_bytes_max: int = 64 * 1024 * 1024
    """Only a peer that takes nothing lets so much wait: rows are bounded by credit."""

    def __post_init__(self) -> None:
        if not 0 < 2 * self.heartbeat_s <= self.peer_lost_s:
            raise ValueError("peer_lost_s must be at least twice heartbeat_s, and both above zero")
        if min(self.message_bytes_max, self.message_rows_max, self.outbox_bytes_max) < 1:
            raise ValueError("the bounds of messages and of the outbox must be above zero")


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """How long to wait between dials: doubled after each failure, and jittered."""

    first_s: float = 0.05
    longest_s: float = 1.0

    def delay_s(self, failures: int, draw: float) -> float:
        """The wait after `failures` failures in a row; `draw` is random, from 0 to 1."""
        full_s = min(self.longest_s, self.first_s * 2.0 ** min(failures, 32))
        return full_s * (0.5 + 0.5 * draw)
