"""What engines say and do that go on with an answer which was begun elsewhere."""

from typing import Final

from stagemesh.errors import MeshError
from stagemesh.media import Sampling
from stagemesh.outcome import error_for

__all__ = ["refuse_uncounted", "seed_after"]

_MASK: Final = (1 << 64) - 1
_STRIDE: Final = 0x9E37_79B9_7F4A_7C15
"""2^64 over the golden ratio, so that no two seeds and positions that are near ever meet."""


def refuse_uncounted(sampling: Sampling, *names: str) -> None:
    """Refuse an answer whose tokens so far would not count for a parameter that is set.

    Raises:
        MeshError: With `REPLICA_LOST`, since the whole request may be tried again.
    """
    for name in names:
        if getattr(sampling, name):
            raise MeshError(
                error_for("replica_lost", f"this engine cannot go on with an answer under {name}")
            )


def seed_after(seed: int, tokens: int) -> int:
    """Give a seed for what follows so many tokens; that of the whole answer for none.

    The numbers that the first tokens were drawn with are not drawn again.
    """
    return seed ^ tokens * _STRIDE & _MASK
