"""How requests, attempts and lanes end: the same numbers as in `outcome.proto`."""

from enum import IntEnum
from typing import Final

import msgspec

__all__ = [
    "End",
    "ErrorCode",
    "ErrorInfo",
    "FinishReason",
    "Outcome",
    "Terminal",
    "Timings",
    "Usage",
]


class Outcome(IntEnum):
    """How a request or an attempt ended."""

    COMPLETED = 1
    FAILED = 2
    CANCELLED = 3
    DEADLINE_EXCEEDED = 4
    REJECTED = 5


class FinishReason(IntEnum):
    """Why one lane ended."""

    STOP = 1
    LENGTH = 2
    TOOL_CALLS = 3
    CONTENT_FILTER = 4
    ABORT = 5


class ErrorCode(IntEnum):
    """What went wrong, as one of a closed list."""

    INVALID_ARGUMENT = 1
    UNSUPPORTED = 2
    NOT_FOUND = 3
    UNAUTHENTICATED = 4
    PERMISSION_DENIED = 5
    PAYLOAD_TOO_LARGE = 6
    GUARDRAIL = 7
    CONFLICT = 8
    RATE_LIMITED = 9
    OVERLOADED = 10
    NO_REPLICA = 11
    PAUSED = 12
    ASLEEP = 13
    DRAINING = 14
    REPLICA_LOST = 15
    LINK_LOST = 16
    STALLED = 17
    SLOW_CONSUMER = 18
    DEADLINE = 19
    ABORTED = 20
    ENGINE_ERROR = 21
    PROTOCOL = 22
    INTERNAL = 23


class ErrorInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The cause of an end that was not a success; `message` is for people, `reason` for code."""

    code: ErrorCode
    reason: str
    message: str
    stage: str = ""
    pool: str = ""
    replica_id: str = ""
    attempt: int = 0
    retryable: bool = False
    retry_after_s: float | None = None
    param: str = ""


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """What was used. Outputs that the client was not given do not count."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    audio_input_samples: int = 0
    audio_output_samples: int = 0
    images: int = 0
    complete: bool = True


class Timings(msgspec.Struct, frozen=True, kw_only=True):
    """Where the time went, in seconds.

    `transfer_s` is the part of `queue_s` in which an attempt's input was fetched.
    """

    queue_s: float = 0.0
    first_output_s: float = 0.0
    compute_s: float = 0.0
    total_s: float = 0.0
    transfer_s: float = 0.0


class End(msgspec.Struct, frozen=True, kw_only=True):
    """The end of one lane; it travels with the lane's last output."""

    finish_reason: FinishReason
    stop_match: str = ""
    usage: Usage = Usage()
    timings: Timings = Timings()


class Terminal(msgspec.Struct, frozen=True, kw_only=True):
    """The last event of a request or of an attempt."""

    outcome: Outcome
    error: ErrorInfo | None = None
    usage: Usage = Usage()
    timings: Timings = Timings()


COMPLETED: Final = Terminal(outcome=Outcome.COMPLETED)
