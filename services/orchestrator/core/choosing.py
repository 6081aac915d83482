"""Which replica of a pool gets work that has no home yet: pure functions, one for each policy."""

from collections.abc import Sequence
from hashlib import blake2b
from typing import Final, Protocol, TypeVar

from stagemesh.media import MediaPart, Message

__all__ = ["Choosable", "least_loaded", "prefix_affinity", "prefix_of", "round_robin"]

PREFIX_CHARS: Final = 1024
"""So much of a conversation decides where it goes: what is shared is at its beginning."""

_OVERLOAD: Final = 1.25
"""How far above its share of all work a replica is taken for the sake of a prefix."""


class Choosable(Protocol):
    """What a policy looks at."""

    @property
    def replica_id(self) -> str:
        """Who it is, over restarts."""

    @property
    def busy(self) -> int:
        """How many attempts it has, those of other orchestrators included."""

    @property
    def slots(self) -> int:
        """How many it runs at once."""


R = TypeVar("R", bound=Choosable)


def least_loaded(room: Sequence[R]) -> R | None:
    """Choose the one with the least work for its size, of equal ones the first."""
    return min(room, key=lambda replica: replica.busy / max(1, replica.slots), default=None)


def round_robin(room: Sequence[R], last: str) -> R | None:
    """Choose the next behind the one that was chosen last, in the order of their ids."""
    behind = [replica for replica in room if replica.replica_id > last]
    return min(behind or room, key=lambda replica: replica.replica_id, default=None)


def prefix_affinity(room: Sequence[R], usable: Sequence[R], prefix: bytes, wanted: int) -> R | None:
    """Choose where the same prefix went before, unless that one has more than its share.

    Rendezvous hashing: a replica that comes or goes moves only the prefixes that it gets or had.
    What it has with `wanted` more may be a quarter above its share of all work of the pool, by its
    size; where every one with room has more than that, the least loaded gets it.
    """
    work = wanted + sum(replica.busy for replica in usable)
    share = _OVERLOAD * work / max(1, sum(replica.slots for replica in usable))
    fit = [r for r in room if r.busy + wanted <= max(wanted, share * r.slots)]
    if not fit:
        return least_loaded(room)
    return max(fit, key=lambda replica: _rank(prefix, replica.replica_id))


def prefix_of(messages: Sequence[Message]) -> bytes:
    """Give what stands for the beginning of a conversation."""
    digest, left = blake2b(digest_size=16), PREFIX_CHARS
    for message in messages:
        digest.update(b"\0" + message.role.encode())
        for part in message.parts:
            if left <= 0:
                return digest.digest()
            if isinstance(part, MediaPart):
                handle = part.body.handle
                digest.update(part.body.inline if handle is None else handle.digest)
                continue
            text = part.text[:left]
            left -= len(text)
            digest.update(text.encode("utf-8", "surrogatepass"))
    return digest.digest()


def _rank(prefix: bytes, replica_id: str) -> tuple[bytes, str]:
    """Give how much a replica is meant for a prefix."""
    key = replica_id.encode("utf-8", "surrogatepass")
    return blake2b(key, key=prefix, digest_size=8).digest(), replica_id
