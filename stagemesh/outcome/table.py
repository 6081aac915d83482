"""The one table from outcome and code to gRPC, HTTP and OpenAI's error types.

Three rules make it. A client's error is never a 5xx, so that no proxy ejects a host for it. What
was not started for lack of room is 429, and says so in a header that proxies may act on. 502 and
504 are for what started and broke, 503 only for a gateway that has no orchestrator.
"""

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import msgspec

from stagemesh.outcome.values import ErrorCode, ErrorInfo, Outcome

__all__ = [
    "NOT_ADMITTED_HEADER",
    "RETRY_AFTER_HEADER",
    "SHOULD_RETRY_HEADER",
    "Status",
    "is_client_error",
    "outcome_of",
    "refuses",
    "retry_headers",
    "status_of",
]

RETRY_AFTER_HEADER: Final = "retry-after"
NOT_ADMITTED_HEADER: Final = "x-stagemesh-not-admitted"
SHOULD_RETRY_HEADER: Final = "x-should-retry"


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """How an end is shown; `grpc` is the name of a gRPC status code.

    `not_admitted` means that nothing was started, so that any proxy may try elsewhere. `no_retry`
    tells clients that retry by themselves to leave it.
    """

    grpc: str
    http: int
    openai_type: str
    not_admitted: bool = False
    no_retry: bool = False


_C = ErrorCode


def _status(grpc: str, http: int, openai_type: str, **flags: bool) -> Status:
    return Status(grpc=grpc, http=http, openai_type=openai_type, **flags)


_OK: Final = _status("OK", 200, "")
_CANCELLED: Final = _status("CANCELLED", 499, "cancelled_error")
_DEADLINE: Final = _status("DEADLINE_EXCEEDED", 504, "timeout_error")
_INTERNAL: Final = _status("INTERNAL", 500, "server_error")
_BROKE: Final = _status("UNAVAILABLE", 502, "server_error")
_NO_ROOM: Final = _status("RESOURCE_EXHAUSTED", 429, "overloaded_error", not_admitted=True)
_NO_ORCHESTRATOR: Final = _status("UNAVAILABLE", 503, "server_error", not_admitted=True)

# What is the client's doing. The gRPC codes are those that proxies count as 4xx.
_CLIENT: Final[Mapping[ErrorCode, Status]] = MappingProxyType(
    {
        _C.INVALID_ARGUMENT: _status("INVALID_ARGUMENT", 400, "invalid_request_error"),
        _C.UNSUPPORTED: _status("INVALID_ARGUMENT", 400, "invalid_request_error"),
        _C.NOT_FOUND: _status("NOT_FOUND", 404, "invalid_request_error"),
        _C.UNAUTHENTICATED: _status("UNAUTHENTICATED", 401, "authentication_error"),
        _C.PERMISSION_DENIED: _status("PERMISSION_DENIED", 403, "permission_error"),
        _C.PAYLOAD_TOO_LARGE: _status("INVALID_ARGUMENT", 413, "invalid_request_error"),
        _C.GUARDRAIL: _status("FAILED_PRECONDITION", 400, "invalid_request_error"),
        _C.CONFLICT: _status("ALREADY_EXISTS", 409, "conflict_error", no_retry=True),
        _C.RATE_LIMITED: _status("RESOURCE_EXHAUSTED", 429, "rate_limit_error"),
        _C.SLOW_CONSUMER: _status("ABORTED", 408, "invalid_request_error", no_retry=True),
        _C.ABORTED: _CANCELLED,
    }
)

# What had started and then broke.
_FAILED: Final[Mapping[ErrorCode, Status]] = MappingProxyType(
    {
        _C.OVERLOADED: _BROKE,
        _C.NO_REPLICA: _BROKE,
        _C.PAUSED: _BROKE,
        _C.ASLEEP: _BROKE,
        _C.DRAINING: _BROKE,
        _C.REPLICA_LOST: _BROKE,
        _C.LINK_LOST: _BROKE,
        _C.STALLED: _status("UNAVAILABLE", 504, "server_error"),
        _C.DEADLINE: _DEADLINE,
        _C.ENGINE_ERROR: _status("INTERNAL", 502, "server_error"),
        _C.PROTOCOL: _status("INTERNAL", 502, "server_error"),
        _C.INTERNAL: _INTERNAL,
    }
)

# What was never started. A cause that only running work can have is not here: it is our bug.
_REJECTED: Final[Mapping[ErrorCode, Status]] = MappingProxyType(
    {
        _C.OVERLOADED: _NO_ROOM,
        _C.NO_REPLICA: _NO_ROOM,
        _C.PAUSED: _NO_ROOM,
        _C.ASLEEP: _NO_ROOM,
        _C.DRAINING: _NO_ROOM,
        _C.STALLED: _NO_ROOM,
        _C.LINK_LOST: _NO_ORCHESTRATOR,
        _C.DEADLINE: _DEADLINE,
    }
)

_BY_OUTCOME: Final[Mapping[Outcome, Status]] = MappingProxyType(
    {Outcome.CANCELLED: _CANCELLED, Outcome.DEADLINE_EXCEEDED: _DEADLINE}
)


def status_of(outcome: Outcome, code: ErrorCode | None = None) -> Status:
    """Tell how an end is shown to a client; total over outcomes and codes.

    A completed request is a success whatever else was noted. A client's error is shown as such
    under every other outcome. No code means that we do not know what went wrong.
    """
    if outcome is Outcome.COMPLETED:
        return _OK
    if code is not None and code in _CLIENT:
        return _CLIENT[code]
    if outcome in _BY_OUTCOME:
        return _BY_OUTCOME[outcome]
    if code is None:
        return _INTERNAL
    if outcome is Outcome.REJECTED:
        return _REJECTED.get(code, _INTERNAL)
    return _FAILED[code]


def is_client_error(code: ErrorCode) -> bool:
    """Tell whether the client caused it; if so it never counts against a replica."""
    return code in _CLIENT


def refuses(code: ErrorCode) -> bool:
    """Tell whether whoever says so took nothing, so that another may be asked at once."""
    return _REJECTED.get(code) is _NO_ROOM


def outcome_of(code: ErrorCode) -> Outcome:
    """Give the outcome of a call that failed before it did anything else."""
    if code is _C.ABORTED:
        return Outcome.CANCELLED
    if code is _C.DEADLINE:
        return Outcome.DEADLINE_EXCEEDED
    return Outcome.REJECTED if code in _CLIENT or code in _REJECTED else Outcome.FAILED


def retry_headers(status: Status, info: ErrorInfo | None) -> dict[str, str]:
    """Give the headers, or gRPC trailers, that tell clients and proxies about trying again.

    `retry-after` is in whole seconds, at least 1, and always there with 429 and 503.
    """
    headers: dict[str, str] = {}
    after_s = info.retry_after_s if info else None
    if after_s is not None or status.http in {429, 503}:
        headers[RETRY_AFTER_HEADER] = str(max(1, math.ceil(after_s or 0)))
    if status.not_admitted:
        headers[NOT_ADMITTED_HEADER] = "1"
    if status.no_retry:
        headers[SHOULD_RETRY_HEADER] = "false"
    return headers
