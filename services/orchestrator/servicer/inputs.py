"""A client's request, made ready for the core: seed drawn, tenant set, large bytes put away."""

import secrets
from typing import Protocol

from stagemesh.api.types.v1 import media_pb2, request_pb2
from stagemesh.errors import invalid
from stagemesh.media import INLINE_BYTES_MAX, Handle
from stagemesh.wire import check_counts, handle_to_proto

__all__ = ["Store", "adopt"]

SEED_BITS = 32
"""Of a seed that nobody gave: every engine takes that many."""

TENANT = "default"


class Store(Protocol):
    """Where large bytes are put."""

    def put(self, data: bytes, request_id: str) -> Handle:
        """Keep bytes for a request, and give what stands for them."""
        ...


def adopt(request: request_pb2.Request, request_id: str, store: Store) -> None:
    """Turn what a client sent into what travels in the mesh, in place.

    Raises:
        MeshError: If a body is a handle, which clients cannot have, the store is full, or there is
            more in it than any request may have.
    """
    check_counts(request)
    request.tenant = TENANT  # There is no authentication on this port, so nobody else can be known,
    request.priority = 0  # and nobody goes before the others.
    if request.seed:
        request.seed_explicit = True  # Who writes one means it; only a 0 has to be said twice.
    elif not request.seed_explicit:
        request.seed = secrets.randbits(SEED_BITS)
    for index, message in enumerate(request.messages):
        for part_index, part in enumerate(message.parts):
            if part.HasField("media"):
                _refuse_handle(part.media, f"messages[{index}].parts[{part_index}]")
    for message in request.messages:
        for part in message.parts:
            if len(part.media.body.inline) > INLINE_BYTES_MAX:
                _put_away(part.media.body, request_id, store)


def _refuse_handle(media: request_pb2.MediaPart, param: str) -> None:
    if media.body.HasField("handle"):
        raise invalid("a client gives bytes, not handles", param=media.param or param)


def _put_away(body: media_pb2.Body, request_id: str, store: Store) -> None:
    body.handle.CopyFrom(handle_to_proto(store.put(body.inline, request_id)))
