"""How much of a reply may be collected before it is sent whole."""

from stagemesh.errors import MeshError
from stagemesh.outcome import error_for

__all__ = ["Bound"]


class Bound:
    """A budget of bytes for one reply that is not streamed."""

    __slots__ = ("_left",)

    def __init__(self, bytes_max: int) -> None:
        self._left = bytes_max

    def spend(self, size_bytes: int) -> None:
        """Count bytes that are to be kept.

        Raises:
            MeshError: With `OVERLOADED`, if the budget is spent.
        """
        self._left -= size_bytes
        if self._left < 0:
            raise MeshError(
                error_for(
                    "journal_full", "The reply is too large to be sent whole.", retryable=False
                )
            )
