"""The exceptions of the mesh.

`MeshError` carries an `ErrorInfo`, so that a cause raised anywhere reaches the client typed. What a
program does wrong at start-up (`BadSettings`, a bad mesh file) is a `ValueError` of its own kind.
"""

from stagemesh.outcome import ErrorCode, ErrorInfo

__all__ = ["BadSettings", "MeshError", "invalid", "unsupported"]


class MeshError(Exception):
    """A request, an attempt or a call failed for the reason in `info`."""

    def __init__(self, info: ErrorInfo) -> None:
        super().__init__(info.message)
        self.info = info


class BadSettings(ValueError):
    """A setting is unknown, missing or out of range; the message names the key."""


def invalid(message: str, *, param: str = "", reason: str = "invalid_value") -> MeshError:
    """Make the error for a request whose field `param` is wrong."""
    return MeshError(
        ErrorInfo(code=ErrorCode.INVALID_ARGUMENT, reason=reason, message=message, param=param)
    )


def unsupported(message: str, *, param: str = "", reason: str = "unsupported_value") -> MeshError:
    """Make the error for a request that asks for what this model or build cannot do."""
    return MeshError(
        ErrorInfo(code=ErrorCode.UNSUPPORTED, reason=reason, message=message, param=param)
    )
