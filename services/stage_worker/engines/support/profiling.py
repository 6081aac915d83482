"""Whether an engine writes a profile."""

from stagemesh.errors import MeshError
from stagemesh.outcome import error_for

__all__ = ["Profiling"]


class Profiling:
    """An engine writes one profile at a time."""

    def __init__(self) -> None:
        self.running = False

    def check(self, *, begin: bool) -> None:
        """See whether a profile may begin, or end, now.

        Raises:
            MeshError: If one is being written already, or none is.
        """
        if self.running is begin:
            message = "A profile is being written." if begin else "No profile is being written."
            raise MeshError(error_for("conflict", message))
