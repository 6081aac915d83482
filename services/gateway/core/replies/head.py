"""What every piece of one reply repeats, and how errors are written."""

from typing import Any, Final

import msgspec

from stagemesh.outcome import ErrorInfo, Status

__all__ = [
    "DONE",
    "ReplyHead",
    "encode",
    "error_body",
    "error_event",
    "event",
]

_ENCODER: Final = msgspec.json.Encoder()

DONE: Final = b"data: [DONE]\n\n"
"""The last event of a stream that ended well."""


class ReplyHead(msgspec.Struct, frozen=True, kw_only=True):
    """The identity of one reply; `created_s` is Unix time."""

    request_id: str
    created_s: int
    model: str

    def name(self, prefix: str) -> str:
        """Give the reply's id as OpenAI writes it, for example `chatcmpl-…`."""
        return f"{prefix}-{self.request_id.removeprefix('req_')}"


def encode(value: Any) -> bytes:
    """Write JSON."""
    return _ENCODER.encode(value)


def event(value: Any) -> bytes:
    """Write one server-sent event."""
    return b"data: %b\n\n" % encode(value)


def error_body(info: ErrorInfo, status: Status, request_id: str) -> bytes:
    """Write an error as OpenAI does, with the request's id, and the stage where one is at fault."""
    error: dict[str, Any] = {
        "message": info.message,
        "type": status.openai_type,
        "param": info.param or None,
        "code": info.reason or None,
        "request_id": request_id,
    }
    if info.stage:
        error["stage"] = info.stage
    return encode({"error": error})


def error_event(info: ErrorInfo, status: Status, request_id: str) -> bytes:
    """Write an error after the first byte: the last event of its stream, without `[DONE]`."""
    return b"data: %b\n\n" % error_body(info, status, request_id)
