"""Serves the handles of a store to readers on other hosts."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from typing import Any, Final

from grpc import aio

from stagemesh.api.stage.v1 import payload_service_pb2, payload_service_pb2_grpc
from stagemesh.errors import MeshError
from stagemesh.payload.store import DIGEST_BYTES, PayloadStore
from stagemesh.rpc import abort

__all__ = ["CHUNK_BYTES", "PayloadServicer"]

CHUNK_BYTES: Final = 256 * 1024


class PayloadServicer(payload_service_pb2_grpc.PayloadServiceServicer):
    """`PayloadService` over one store."""

    def __init__(self, store: PayloadStore) -> None:
        self._store = store

    async def Fetch(  # noqa: N802 - the name is the proto's.
        self,
        request: payload_service_pb2.FetchRequest,
        context: aio.ServicerContext[Any, Any],
    ) -> AsyncIterator[payload_service_pb2.FetchResponse]:
        """Stream a handle's bytes from an offset; the last message has the digest.

        It is the digest of all bytes even where the offset is not 0: a reader that resumes goes on
        hashing where its last stream broke.
        """
        try:
            whole = self._store.read(request.handle_id, request.request_id)
        except MeshError as error:
            await abort(context, error.info)
        digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
        if request.offset:
            await asyncio.to_thread(digest.update, whole[: request.offset])
        for start in range(request.offset, len(whole), CHUNK_BYTES):
            chunk = whole[start : start + CHUNK_BYTES]
            digest.update(chunk)
            yield payload_service_pb2.FetchResponse(data=bytes(chunk))
        yield payload_service_pb2.FetchResponse(digest=digest.digest())

    async def Release(  # noqa: N802
        self,
        request: payload_service_pb2.ReleaseRequest,
        context: aio.ServicerContext[Any, Any],
    ) -> payload_service_pb2.ReleaseResponse:
        """Drop handles before their lease ends."""
        del context
        released = self._store.release(request.request_id, request.handle_ids)
        return payload_service_pb2.ReleaseResponse(released=released)
