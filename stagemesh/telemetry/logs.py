"""Logs: one JSON object a line on stderr, with the request id and never with content."""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from pythonjsonlogger.json import JsonFormatter

__all__ = ["configure_logs", "current_request_id", "request_logs"]

_request_id: ContextVar[str] = ContextVar("stagemesh_request_id", default="")


def configure_logs(service: str, id: str, *, level: str = "INFO") -> None:
    """Send every logger of the process to stderr as JSON that names the service and its id.

    What else a line may say goes into `extra`, as fields of their own.
    """
    out = logging.StreamHandler(sys.stderr)
    out.setFormatter(_Formatter(service, id))
    logging.basicConfig(level=level.upper(), handlers=[out], force=True)
    # No line shows its place in the code, so nobody needs to walk the stack for it: the way that
    # the logging HOWTO gives under "Optimization".
    logging._srcfile = None


def current_request_id() -> str:
    """Give the id of the request that the current task works for, or nothing."""
    return _request_id.get()


@contextmanager
def request_logs(request_id: str) -> Iterator[None]:
    """Put `request_id` on every line logged inside, by this task and the tasks that it starts."""
    token = _request_id.set(request_id)
    try:
        yield
    finally:
        _request_id.reset(token)


class _Formatter(JsonFormatter):
    """Formats one record; ISO time in UTC first, so that lines of several processes sort."""

    def __init__(self, service: str, id: str) -> None:
        super().__init__(
            ["levelname", "name", "message"],
            rename_fields={"levelname": "level", "name": "logger"},
            static_fields={"service": service, "id": id},
            timestamp="time",
        )

    def process_log_record(self, log_data: dict[str, Any]) -> dict[str, Any]:
        """Add the request id, unless the line names one itself."""
        if (request_id := _request_id.get()) and "request_id" not in log_data:
            log_data["request_id"] = request_id
        return super().process_log_record(log_data)
