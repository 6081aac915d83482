"""Errors as gRPC shows them: one way out, one way back in.

The status code follows the table of outcomes. The whole `ErrorInfo` travels beside it, serialized
in the trailing metadata `stagemesh-error-bin`, so that a peer gets back exactly what was raised.
What proxies and other clients need to know about trying again stands in plain trailers.
"""

from typing import Any, Final, Never

import grpc
from google.protobuf.message import DecodeError
from grpc import aio

from stagemesh.api.types.v1 import outcome_pb2
from stagemesh.outcome import ErrorInfo, Outcome, error_for, outcome_of, retry_headers
from stagemesh.outcome import status_of as table_status_of
from stagemesh.wire import error_from_proto, error_to_proto

__all__ = ["ERROR_TRAILER", "abort", "error_of"]

ERROR_TRAILER: Final = "stagemesh-error-bin"

_PUSHBACK_TRAILER: Final = "grpc-retry-pushback-ms"
_DETAILS_CHARS_MAX: Final = 512

# What a bare status means, where the peer was not one of ours or could not say more.
_REASONS: Final = {
    grpc.StatusCode.CANCELLED: "aborted",
    grpc.StatusCode.INVALID_ARGUMENT: "invalid_value",
    grpc.StatusCode.OUT_OF_RANGE: "invalid_value",
    grpc.StatusCode.FAILED_PRECONDITION: "conflict",
    grpc.StatusCode.ALREADY_EXISTS: "conflict",
    grpc.StatusCode.ABORTED: "conflict",
    grpc.StatusCode.DEADLINE_EXCEEDED: "deadline_exceeded",
    grpc.StatusCode.NOT_FOUND: "not_found",
    grpc.StatusCode.PERMISSION_DENIED: "permission_denied",
    grpc.StatusCode.UNAUTHENTICATED: "invalid_api_key",
    grpc.StatusCode.RESOURCE_EXHAUSTED: "queue_full",
    grpc.StatusCode.UNIMPLEMENTED: "unsupported_value",
    grpc.StatusCode.UNAVAILABLE: "link_lost",
    # gRPC itself says INTERNAL when a stream is reset under a call.
    grpc.StatusCode.INTERNAL: "link_lost",
}


async def abort(
    context: aio.ServicerContext[Any, Any],
    info: ErrorInfo,
    *,
    outcome: Outcome | None = None,
) -> Never:
    """End a call with an error; without an outcome the code tells it.

    Raises:
        grpc.aio.AbortError: Always; gRPC takes it from there.
    """
    status = table_status_of(outcome or outcome_of(info.code), info.code)
    trailers: list[tuple[str, str | bytes]] = [
        (ERROR_TRAILER, error_to_proto(info).SerializeToString())
    ]
    trailers += retry_headers(status, info).items()
    if info.retry_after_s is not None:
        trailers.append((_PUSHBACK_TRAILER, str(int(info.retry_after_s * 1000))))
    await context.abort(
        grpc.StatusCode[status.grpc], info.message[:_DETAILS_CHARS_MAX], tuple(trailers)
    )
    raise AssertionError("abort returned")


def error_of(error: aio.AioRpcError) -> ErrorInfo:
    """Tell why a call failed: what the peer said, else what the bare status means."""
    for key, value in error.trailing_metadata() or ():
        if key == ERROR_TRAILER and isinstance(value, bytes):
            try:
                return error_from_proto(outcome_pb2.ErrorInfo.FromString(value))
            except DecodeError:
                break
    return _guess(error.code(), error.details() or "")


def _guess(code: grpc.StatusCode, details: str) -> ErrorInfo:
    text = details[:_DETAILS_CHARS_MAX]
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED and "larger than max" in details:
        return error_for("body_too_large", text)
    if code is grpc.StatusCode.INTERNAL and "serializing" in details:
        return error_for("protocol_error", text)
    return error_for(_REASONS.get(code, "internal_error"), text)
