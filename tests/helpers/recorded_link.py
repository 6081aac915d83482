"""A link that goes nowhere and remembers what was sent on it."""

from collections.abc import Sequence

from stagemesh.api.types.v1 import link_pb2
from stagemesh.link.core import Grant, Row
from stagemesh.link.pump import Link

__all__ = ["RecordedLink"]


class RecordedLink(Link):
    """Looks like an attached link to whoever is told of it."""

    def __init__(self, id: int, peer: link_pb2.Hello) -> None:
        self.id = id
        self.peer = peer
        self.attached = True
        self.sent: list[object] = []
        self.closed: list[str] = []

    def send_rows(self, rows: Sequence[Row]) -> None:
        """Remember rows."""
        self.sent.append(list(rows))

    def send_frame(self, frame: link_pb2.Frame, slots: Sequence[int] | None = None) -> None:
        """Remember a frame."""
        self.sent.append(frame)

    def send_grants(self, grants: Sequence[Grant]) -> None:
        """Remember grants."""
        self.sent.append(list(grants))

    def ping_now(self) -> None:
        """Remember that news were told."""
        self.sent.append("ping")

    def close(self, reason: str) -> None:
        """Remember why it was closed."""
        self.closed.append(reason)
