"""Ends, errors and terminals: `outcome.proto` and the two messages that carry a terminal."""

from collections.abc import Mapping
from typing import Final

from stagemesh.api.orchestrator.v1 import orchestrator_service_pb2
from stagemesh.api.types.v1 import link_pb2, outcome_pb2
from stagemesh.errors import MeshError
from stagemesh.outcome import (
    End,
    ErrorCode,
    ErrorInfo,
    FinishReason,
    Outcome,
    Terminal,
    Timings,
    Usage,
    error_for,
)

__all__ = [
    "end_from_proto",
    "end_to_proto",
    "error_from_proto",
    "error_to_proto",
    "request_terminal_from_proto",
    "request_terminal_to_proto",
    "terminal_from_proto",
    "terminal_to_proto",
    "timings_from_proto",
    "timings_to_proto",
    "usage_from_proto",
    "usage_to_proto",
]

_CODES: Final[Mapping[int, ErrorCode]] = {int(code): code for code in ErrorCode}
_NO_USAGE: Final = Usage()
_NO_TIMINGS: Final = Timings()


def usage_to_proto(usage: Usage) -> outcome_pb2.Usage:
    """Encode what was used."""
    return outcome_pb2.Usage(
        prompt_tokens=usage.prompt_tokens,
        cached_tokens=usage.cached_tokens,
        completion_tokens=usage.completion_tokens,
        audio_input_samples=usage.audio_input_samples,
        audio_output_samples=usage.audio_output_samples,
        images=usage.images,
        complete=usage.complete,
    )


def usage_from_proto(message: outcome_pb2.Usage) -> Usage:
    """Decode what was used."""
    return Usage(
        prompt_tokens=message.prompt_tokens,
        cached_tokens=message.cached_tokens,
        completion_tokens=message.completion_tokens,
        audio_input_samples=message.audio_input_samples,
        audio_output_samples=message.audio_output_samples,
        images=message.images,
        complete=message.complete,
    )


def timings_to_proto(timings: Timings) -> outcome_pb2.Timings:
    """Encode where the time went."""
    return outcome_pb2.Timings(
        queue_s=timings.queue_s,
        first_output_s=timings.first_output_s,
        compute_s=timings.compute_s,
        total_s=timings.total_s,
        transfer_s=timings.transfer_s,
    )


def timings_from_proto(message: outcome_pb2.Timings) -> Timings:
    """Decode where the time went."""
    return Timings(
        queue_s=message.queue_s,
        first_output_s=message.first_output_s,
        compute_s=message.compute_s,
        total_s=message.total_s,
        transfer_s=message.transfer_s,
    )


def error_to_proto(info: ErrorInfo) -> outcome_pb2.ErrorInfo:
    """Encode a cause."""
    return outcome_pb2.ErrorInfo(
        code=outcome_pb2.ErrorCode.ValueType(info.code),
        reason=info.reason,
        message=info.message,
        stage=info.stage,
        pool=info.pool,
        replica_id=info.replica_id,
        attempt=info.attempt,
        retryable=info.retryable,
        retry_after_s=info.retry_after_s,
        param=info.param,
    )


def error_from_proto(message: outcome_pb2.ErrorInfo) -> ErrorInfo:
    """Decode a cause; a code that is not known here, from a newer peer, is read as `INTERNAL`."""
    return ErrorInfo(
        code=_CODES.get(message.code, ErrorCode.INTERNAL),
        reason=message.reason,
        message=message.message,
        stage=message.stage,
        pool=message.pool,
        replica_id=message.replica_id,
        attempt=message.attempt,
        retryable=message.retryable,
        retry_after_s=message.retry_after_s if message.HasField("retry_after_s") else None,
        param=message.param,
    )


def end_to_proto(end: End) -> outcome_pb2.End:
    """Encode the end of a lane."""
    return outcome_pb2.End(
        finish_reason=outcome_pb2.FinishReason.ValueType(end.finish_reason),
        stop_match=end.stop_match,
        usage=None if end.usage == _NO_USAGE else usage_to_proto(end.usage),
        timings=None if end.timings == _NO_TIMINGS else timings_to_proto(end.timings),
    )


def end_from_proto(message: outcome_pb2.End) -> End:
    """Decode the end of a lane.

    Raises:
        MeshError: With `PROTOCOL`, if it names no finish reason that is known here.
    """
    return End(
        finish_reason=_finish_reason(message.finish_reason),
        stop_match=message.stop_match,
        usage=usage_from_proto(message.usage) if message.HasField("usage") else _NO_USAGE,
        timings=timings_from_proto(message.timings) if message.HasField("timings") else _NO_TIMINGS,
    )


def terminal_to_proto(slot: int, terminal: Terminal) -> link_pb2.Terminal:
    """Encode the end of what `slot` stands for on a link."""
    return link_pb2.Terminal(
        slot=slot,
        outcome=outcome_pb2.Outcome.ValueType(terminal.outcome),
        error=error_to_proto(terminal.error) if terminal.error else None,
        usage=None if terminal.usage == _NO_USAGE else usage_to_proto(terminal.usage),
        timings=None if terminal.timings == _NO_TIMINGS else timings_to_proto(terminal.timings),
    )


def terminal_from_proto(
    message: link_pb2.Terminal | orchestrator_service_pb2.RequestTerminal,
) -> Terminal:
    """Decode the end of a request or an attempt; its slot, if any, stays in the message.

    Raises:
        MeshError: With `PROTOCOL`, if it names no outcome that is known here.
    """
    return Terminal(
        outcome=_outcome(message.outcome),
        error=error_from_proto(message.error) if message.HasField("error") else None,
        usage=usage_from_proto(message.usage) if message.HasField("usage") else _NO_USAGE,
        timings=timings_from_proto(message.timings) if message.HasField("timings") else _NO_TIMINGS,
    )


def request_terminal_to_proto(terminal: Terminal) -> orchestrator_service_pb2.RequestTerminal:
    """Encode the end of a request for a gRPC client, with every part that a reader may look for."""
    return orchestrator_service_pb2.RequestTerminal(
        outcome=outcome_pb2.Outcome.ValueType(terminal.outcome),
        error=error_to_proto(terminal.error) if terminal.error else None,
        usage=usage_to_proto(terminal.usage),
        timings=timings_to_proto(terminal.timings),
    )


def request_terminal_from_proto(message: orchestrator_service_pb2.RequestTerminal) -> Terminal:
    """Decode the end of a request, as a gRPC client gets it.

    Raises:
        MeshError: With `PROTOCOL`, if it names no outcome that is known here.
    """
    return terminal_from_proto(message)


def _finish_reason(number: int) -> FinishReason:
    try:
        return FinishReason(number)
    except ValueError:
        raise MeshError(error_for("protocol_error", f"no finish reason {number}")) from None


def _outcome(number: int) -> Outcome:
    try:
        return Outcome(number)
    except ValueError:
        raise MeshError(error_for("protocol_error", f"no outcome {number}")) from None
