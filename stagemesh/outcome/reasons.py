"""The registry of reason words: what programs read, shown as `code` in OpenAI's error body.

A word is never renamed and never changes its code. A new cause is one new line here.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import msgspec

from stagemesh.outcome.values import ErrorCode, ErrorInfo

__all__ = ["REASONS", "Reason", "default_reason", "error_for", "is_retryable"]


class Reason(msgspec.Struct, frozen=True):
    """A reason's code, and one sentence for people."""

    code: ErrorCode
    sentence: str


_C = ErrorCode

REASONS: Final[Mapping[str, Reason]] = MappingProxyType(
    {
        # The client's move.
        "invalid_value": Reason(_C.INVALID_ARGUMENT, "A field has a value that is not allowed."),
        "invalid_type": Reason(_C.INVALID_ARGUMENT, "A field is of the wrong type."),
        "invalid_json": Reason(_C.INVALID_ARGUMENT, "The body is not well-formed JSON."),
        "missing_required_parameter": Reason(_C.INVALID_ARGUMENT, "A required field is missing."),
        "unknown_parameter": Reason(_C.INVALID_ARGUMENT, "A field is not known here."),
        "context_length_exceeded": Reason(
            _C.INVALID_ARGUMENT, "The prompt and the answer do not fit into the model's context."
        ),
        "undecodable_audio": Reason(_C.INVALID_ARGUMENT, "The audio could not be decoded."),
        "unsupported_value": Reason(_C.UNSUPPORTED, "This model cannot do what was asked."),
        "unsupported_parameter": Reason(_C.UNSUPPORTED, "A field is not served here."),
        "method_not_allowed": Reason(_C.UNSUPPORTED, "This path does not take this method."),
        "unsupported_modality": Reason(
            _C.UNSUPPORTED, "This model neither takes nor gives such a modality."
        ),
        "not_found": Reason(_C.NOT_FOUND, "There is nothing under this name."),
        "model_not_found": Reason(_C.NOT_FOUND, "No pipeline is published under this name."),
        "adapter_not_found": Reason(_C.NOT_FOUND, "No adapter is loaded under this name."),
        "request_not_found": Reason(_C.NOT_FOUND, "No request with this id is known here."),
        "invalid_api_key": Reason(_C.UNAUTHENTICATED, "The key is missing or not valid."),
        "permission_denied": Reason(_C.PERMISSION_DENIED, "The key may not do this."),
        "host_not_allowed": Reason(_C.PERMISSION_DENIED, "This host or origin is not allowed."),
        "body_too_large": Reason(_C.PAYLOAD_TOO_LARGE, "The request is larger than the limit."),
        "content_filter": Reason(_C.GUARDRAIL, "A guardrail refused the content."),
        "conflict": Reason(_C.CONFLICT, "The object is not in a state that allows this."),
        "taken_over": Reason(_C.CONFLICT, "Another gateway has taken the request over."),
        "rate_limit_exceeded": Reason(_C.RATE_LIMITED, "The tenant has used up its rate."),
        # Room, or an operator's will.
        "queue_full": Reason(_C.OVERLOADED, "As many requests wait as may wait."),
        "no_slot": Reason(_C.OVERLOADED, "The replica has no room for another attempt."),
        "journal_full": Reason(_C.OVERLOADED, "The request has outgrown its journal."),
        "input_log_full": Reason(
            _C.OVERLOADED, "More of the client's input waits than a request may keep."
        ),
        "payload_store_full": Reason(_C.OVERLOADED, "The payload store has no room."),
        "no_replica": Reason(_C.NO_REPLICA, "No replica of a pool that is needed can be used."),
        "paused": Reason(_C.PAUSED, "An operator has paused a pool that is needed."),
        "asleep": Reason(_C.ASLEEP, "A pool that is needed is asleep."),
        "draining": Reason(_C.DRAINING, "The process is being stopped and takes nothing new."),
        # Ours.
        "replica_lost": Reason(_C.REPLICA_LOST, "The replica was lost and cannot be replaced."),
        "replay_diverged": Reason(
            _C.REPLICA_LOST, "What a replica made again is not what another one had made."
        ),
        "handle_lost": Reason(_C.REPLICA_LOST, "The bytes behind a handle could not be had."),
        "link_lost": Reason(_C.LINK_LOST, "The connection to the service was lost."),
        "no_orchestrator": Reason(_C.LINK_LOST, "The gateway has no orchestrator to turn to."),
        "stalled": Reason(_C.STALLED, "The engine has work and makes no step."),
        "slow_consumer": Reason(_C.SLOW_CONSUMER, "The client reads more slowly than it may."),
        "deadline_exceeded": Reason(_C.DEADLINE, "The request's time is up."),
        "aborted": Reason(_C.ABORTED, "The request was aborted."),
        "stopped_by_operator": Reason(
            _C.ABORTED, "An operator paused a pool, and what ran there was aborted."
        ),
        "engine_error": Reason(_C.ENGINE_ERROR, "The engine failed."),
        "protocol_error": Reason(_C.PROTOCOL, "A peer broke the protocol."),
        "internal_error": Reason(_C.INTERNAL, "Something that must not happen has happened."),
    }
)

# A code's first word in the list is its plainest, so the last one written here wins.
_DEFAULTS: Final[Mapping[ErrorCode, str]] = MappingProxyType(
    {reason.code: word for word, reason in reversed(list(REASONS.items()))}
)

_RETRYABLE: Final = frozenset(
    {
        _C.RATE_LIMITED,
        _C.OVERLOADED,
        _C.NO_REPLICA,
        _C.PAUSED,
        _C.ASLEEP,
        _C.DRAINING,
        _C.REPLICA_LOST,
        _C.LINK_LOST,
        _C.STALLED,
    }
)


def default_reason(code: ErrorCode) -> str:
    """Give the word for a code of which nothing more is known."""
    return _DEFAULTS[code]


def is_retryable(code: ErrorCode) -> bool:
    """Tell whether the same request may succeed later, unchanged."""
    return code in _RETRYABLE


def error_for(
    reason: str,
    message: str = "",
    *,
    stage: str = "",
    pool: str = "",
    replica_id: str = "",
    attempt: int = 0,
    retryable: bool | None = None,
    retry_after_s: float | None = None,
    param: str = "",
) -> ErrorInfo:
    """Make the cause for a registered reason; what is not said comes from the registry.

    Raises:
        KeyError: If the word is not registered.
    """
    known = REASONS[reason]
    return ErrorInfo(
        code=known.code,
        reason=reason,
        message=message or known.sentence,
        stage=stage,
        pool=pool,
        replica_id=replica_id,
        attempt=attempt,
        retryable=is_retryable(known.code) if retryable is None else retryable,
        retry_after_s=retry_after_s,
        param=param,
    )
