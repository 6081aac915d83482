"""How much of everything the HTTP edge takes."""

from dataclasses import dataclass

__all__ = ["EdgeLimits"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeLimits:
    """Bounds of HTTP requests and answers."""

    body_bytes_max: int = 32 * 1024 * 1024
    """Of the body of one request."""
    bodies_bytes_max: int = 512 * 1024 * 1024
    """Of all bodies that are being read at once."""
    body_s: float = 60.0
    """How long a body may take to arrive."""
    reply_bytes_max: int = 64 * 1024 * 1024
    """Of a reply that is sent whole."""
    requests_max: int = 10_000
    """Requests that are being answered at once."""
    deadline_max_s: float = 3600.0
    """The longest time that a client may ask for in `X-Request-Timeout`."""
