"""Names of the things that cross the mesh, and how they are minted."""

import secrets
from typing import NewType

__all__ = [
    "HandleId",
    "Incarnation",
    "ReplicaId",
    "RequestId",
    "new_handle_id",
    "new_incarnation",
    "new_request_id",
]

RequestId = NewType("RequestId", str)
ReplicaId = NewType("ReplicaId", str)
HandleId = NewType("HandleId", str)
Incarnation = NewType("Incarnation", int)


def new_request_id() -> RequestId:
    """Mint a request id: 128 random bits, as `req_` and 32 hex digits."""
    return RequestId(f"req_{secrets.token_hex(16)}")


def new_handle_id() -> HandleId:
    """Mint an unguessable handle id: 128 random bits."""
    return HandleId(f"h_{secrets.token_hex(16)}")


def new_incarnation() -> Incarnation:
    """Mint the mark of one start of one process: 64 random bits, never 0."""
    return Incarnation(secrets.randbits(64) or 1)
