"""Outcomes, error codes and the one table that maps them to gRPC, HTTP and OpenAI's words."""

from stagemesh.outcome.reasons import REASONS, Reason, default_reason, error_for, is_retryable
from stagemesh.outcome.table import (
    NOT_ADMITTED_HEADER,
    RETRY_AFTER_HEADER,
    SHOULD_RETRY_HEADER,
    Status,
    is_client_error,
    outcome_of,
    refuses,
    retry_headers,
    status_of,
)
from stagemesh.outcome.values import (
    COMPLETED,
    End,
    ErrorCode,
    ErrorInfo,
    FinishReason,
    Outcome,
    Terminal,
    Timings,
    Usage,
)

__all__ = [
    "COMPLETED",
    "NOT_ADMITTED_HEADER",
    "REASONS",
    "RETRY_AFTER_HEADER",
    "SHOULD_RETRY_HEADER",
    "End",
    "ErrorCode",
    "ErrorInfo",
    "FinishReason",
    "Outcome",
    "Reason",
    "Status",
    "Terminal",
    "Timings",
    "Usage",
    "default_reason",
    "error_for",
    "is_client_error",
    "is_retryable",
    "outcome_of",
    "refuses",
    "retry_headers",
    "status_of",
]
