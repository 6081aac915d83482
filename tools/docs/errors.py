"""The page of errors: every code and every reason, as clients see them."""

from typing import Final

from stagemesh.outcome import REASONS, ErrorCode, Outcome, Status, is_retryable, status_of
from tools.docs.tables import code, table

__all__ = ["errors_page"]

_HEAD: Final = """\
# Errors

Generated from `stagemesh/outcome`; do not edit.

Every request ends once, with an outcome; if that is not `COMPLETED` there is a code, and a reason that is a stable word for programs.
An HTTP client finds the reason as `error.code` and the kind as `error.type` in OpenAI's error shape; a gRPC client finds both in the terminal, and the status on the call.

## Codes

A request that was rejected had not started; one that failed had.
Where two statuses are given, the first holds for a rejected request, and the second for a failed one.
"Not admitted" answers carry `x-stagemesh-not-admitted: 1` and may be tried elsewhere at once.

"""  # noqa: E501 - one sentence a line.

_REASONS: Final = """
## Reasons

"""


def errors_page() -> str:
    """Write the page."""
    codes = table(
        ("code", "HTTP", "gRPC", "OpenAI type", "retry", "not admitted"),
        [_code_row(one) for one in ErrorCode],
    )
    reasons = table(
        ("reason", "code", "meaning"),
        [(code(word), code(one.code.name), one.sentence) for word, one in REASONS.items()],
    )
    return f"{_HEAD}{codes}{_REASONS}{reasons}"


def _code_row(one: ErrorCode) -> tuple[str, ...]:
    both = [status_of(outcome, one) for outcome in (Outcome.REJECTED, Outcome.FAILED)]
    if both[0] == status_of(Outcome.REJECTED):
        del both[0]  # Only what has started can end so.

    def cell(of: str) -> str:
        return " / ".join(dict.fromkeys(code(getattr(status, of)) for status in both))

    return (
        code(one.name),
        cell("http"),
        cell("grpc"),
        cell("openai_type"),
        _retry(one, both[0]),
        "if rejected" if both[0].not_admitted else "",
    )


def _retry(one: ErrorCode, rejected: Status) -> str:
    if rejected.no_retry:
        return "no; `x-should-retry: false`"
    return "yes" if is_retryable(one) else "no"
