"""Bytes beside the link: large inputs go by a store of our own, large outputs are fetched.

Nothing above `INLINE_BYTES_MAX` crosses an orchestrator.
"""

import asyncio
import time
from collections import Counter
from typing import Final

import msgspec

from stagemesh.api.stage.v1 import payload_service_pb2, payload_service_pb2_grpc
from stagemesh.errors import MeshError
from stagemesh.media import INLINE_BYTES_MAX, Body, Handle, MediaPart, Message, Part, Request
from stagemesh.outcome import error_for
from stagemesh.payload import PayloadReader, PayloadServicer, PayloadStore
from stagemesh.rpc import RunningServer, Tls, start_server

__all__ = ["Media", "serve_payloads"]

_COPY_BYTES_MAX: Final = 1024 * 1024
"""Up to this, a copy on the loop costs less than half a millisecond."""

PAYLOAD_SERVICE: Final = payload_service_pb2.DESCRIPTOR.services_by_name["PayloadService"].full_name


class Media:
    """The gateway's side of the payload plane."""

    def __init__(
        self, store: PayloadStore, reader: PayloadReader, *, fetch_s: float, lease_s: float
    ) -> None:
        self._store = store
        self._reader = reader
        self._fetch_s = fetch_s
        self._renew_every_s = lease_s / 3
        # How often each was put: one that this gateway takes over from itself is put twice.
        self._holding: Counter[str] = Counter()

    async def put(self, request: Request, request_id: str) -> Request:
        """Put a request's large media into the store; it then refers to them by handles.

        Raises:
            MeshError: With `OVERLOADED`, if the store is full; nothing of the request stays in it
                but what was put before.
        """
        large = any(
            isinstance(part, MediaPart) and part.body.size_bytes > INLINE_BYTES_MAX
            for message in request.messages
            for part in message.parts
        )
        if not large:
            return request
        self._holding[request_id] += 1
        try:
            messages = [await self._message(message, request_id) for message in request.messages]
        except BaseException:
            self.release(request_id)
            raise
        return msgspec.structs.replace(request, messages=tuple(messages))

    def release(self, request_id: str) -> None:
        """Drop what was put for a request, if anything, once it is released as often as put."""
        if request_id in self._holding:
            self._holding[request_id] -= 1
            if not self._holding[request_id]:
                del self._holding[request_id]
                self._store.release(request_id)

    async def fetch(self, body: Body) -> Body:
        """Give a body with the bytes behind its handle.

        Raises:
            MeshError: If they could not be had in time.
        """
        if body.handle is None:
            return body
        try:
            async with asyncio.timeout(self._fetch_s):
                data = await self._reader.get(body.handle)
        except TimeoutError:
            raise MeshError(
                error_for("handle_lost", f"The bytes did not come within {self._fetch_s:g} s.")
            ) from None
        return msgspec.structs.replace(body, inline=bytes(data), handle=None)

    async def run(self) -> None:
        """Keep the leases of what is in use, and drop what nobody uses, until cancelled."""
        while True:
            await asyncio.sleep(self._renew_every_s)
            now_s = time.monotonic()
            for request_id in self._holding:
                self._store.renew(request_id, now_s)
            self._store.sweep(now_s)

    async def _message(self, message: Message, request_id: str) -> Message:
        parts = [await self._part(part, request_id) for part in message.parts]
        return msgspec.structs.replace(message, parts=tuple(parts))

    async def _part(self, part: Part, request_id: str) -> Part:
        if not isinstance(part, MediaPart) or part.body.size_bytes <= INLINE_BYTES_MAX:
            return part
        put = self._store.put_large if part.body.size_bytes > _COPY_BYTES_MAX else self._put
        handle = await put(part.body.inline, request_id)
        body = msgspec.structs.replace(part.body, inline=b"", handle=handle)
        return msgspec.structs.replace(part, body=body)

    async def _put(self, data: bytes, request_id: str) -> Handle:
        return self._store.put(data, request_id)


async def serve_payloads(
    store: PayloadStore, address: str, *, tls: Tls | None, insecure: bool
) -> RunningServer:
    """Serve the store's bytes to whoever has a handle.

    Raises:
        BadSettings: If the address is not loopback and `insecure` is false.
        OSError: If the address cannot be bound.
    """
    servicer = PayloadServicer(store)
    server = await start_server(
        address,
        register=lambda server: payload_service_pb2_grpc.add_PayloadServiceServicer_to_server(
            servicer, server
        ),
        services=(PAYLOAD_SERVICE,),
        tls=tls,
        insecure=insecure,
    )
    server.set_serving(PAYLOAD_SERVICE, serving=True)
    return server
