"""Gets the bytes of handles: straight from shared memory on one host, else by `Fetch`."""

import asyncio
import hashlib
import mmap
import os
from types import TracebackType
from typing import Final, Self

import msgspec
from grpc import aio

from stagemesh.api.stage.v1 import payload_service_pb2, payload_service_pb2_grpc
from stagemesh.errors import MeshError
from stagemesh.media import Handle
from stagemesh.outcome import error_for
from stagemesh.payload.files import data_path, matches_probe, open_named
from stagemesh.payload.store import DIGEST_BYTES
from stagemesh.rpc import Tls, error_of, open_channel
from stagemesh.telemetry import metrics

__all__ = ["PayloadReader"]

_ATTEMPTS: Final = 2
_CHANNELS_MAX: Final = 64
_DEADLINE_BASE_S: Final = 10.0
_BYTES_PER_S_MIN: Final = 8 * 1024 * 1024
# Below this, a copy is cheaper than a mapping.
_MAP_BYTES_MIN: Final = 256 * 1024

_gets = metrics.counter("payload_gets", "Payloads that this process read.", ["way"])


class _Peer(msgspec.Struct, eq=False):
    channel: aio.Channel
    users: int = 0


class PayloadReader:
    """Reads handles of any holder; keeps one channel to each holder that is on another host."""

    def __init__(self, *, tls: Tls | None = None, insecure: bool = False) -> None:
        self._tls = tls
        self._insecure = insecure
        # The least recently used first.
        self._peers: dict[str, _Peer] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def get(self, handle: Handle) -> bytes | memoryview:
        """Get all bytes of a handle; a large one on the same host is mapped, not copied.

        The bytes stay as they are for as long as the view or a part of it is kept, whatever becomes
        of the handle. So whoever hands memory on and not bytes (DMA, `splice`, `MSG_ZEROCOPY`)
        keeps the view until that is done.

        Raises:
            MeshError: With reason `handle_lost`, if they cannot be had or are not what was put.
        """
        try:
            data, way = self._map(handle), "shm"
            if data is None:
                data, way = await self._fetch(handle), "grpc"
            if handle.digest and _digest(data) != handle.digest:
                raise _lost(handle, "its digest is another")
        except MeshError:
            _gets.labels("lost").inc()
            raise
        _gets.labels(way).inc()
        return data

    async def close(self) -> None:
        """Close every channel. Safe to call twice."""
        while self._peers:
            _, peer = self._peers.popitem()
            await peer.channel.close()

    def _map(self, handle: Handle) -> bytes | memoryview | None:
        """Read from shared memory; None where the store is out of sight."""
        path = data_path(handle.probe, handle.handle_id)
        if path is None or not matches_probe(handle.probe):
            return None
        try:
            fd = open_named(path)
        except OSError as error:
            raise _lost(handle, "its holder dropped it") from error
        try:
            if os.fstat(fd).st_size != handle.size_bytes:
                raise _lost(handle, "its size is another")
            if handle.size_bytes < _MAP_BYTES_MIN:
                return os.read(fd, handle.size_bytes)
            return memoryview(mmap.mmap(fd, handle.size_bytes, prot=mmap.PROT_READ))
        finally:
            os.close(fd)

    async def _fetch(self, handle: Handle) -> memoryview:
        incoming = _Incoming(handle)
        deadline_s = _DEADLINE_BASE_S + handle.size_bytes / _BYTES_PER_S_MIN
        try:
            async with asyncio.timeout(deadline_s):
                peer = await self._peer(handle.address)
                peer.users += 1
                try:
                    await incoming.fill(peer.channel)
                finally:
                    peer.users -= 1
        except TimeoutError as error:
            raise _lost(handle, "its holder is too slow") from error
        return incoming.finished()

    async def _peer(self, address: str) -> _Peer:
        peer = self._peers.pop(address, None) or _Peer(
            open_channel(address, tls=self._tls, insecure=self._insecure)
        )
        self._peers[address] = peer
        if len(self._peers) > _CHANNELS_MAX:
            idle = next((name for name, other in self._peers.items() if not other.users), address)
            if idle != address:
                await self._peers.pop(idle).channel.close()
        return peer


class _Incoming:
    """One handle on its way here: what has arrived, and its digest so far."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._data = bytearray(handle.size_bytes)
        self._have = 0
        self._digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
        self._told = b""

    async def fill(self, channel: aio.Channel) -> None:
        """Fetch everything; a stream that breaks is taken up again where it broke, once."""
        stub = payload_service_pb2_grpc.PayloadServiceStub(channel)
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                return await self._fill_once(stub)
            except aio.AioRpcError as error:
                info = error_of(error)
                if attempt == _ATTEMPTS or info.reason == "handle_lost":
                    raise _lost(self._handle, info.message) from error

    def finished(self) -> memoryview:
        """Give the bytes, once they are known to be those that the holder sent."""
        if self._have != len(self._data):
            raise _lost(self._handle, "it is shorter than its handle says")
        if self._told != self._digest.digest():
            raise _lost(self._handle, "its bytes were damaged on the way")
        return memoryview(self._data)

    async def _fill_once(self, stub: payload_service_pb2_grpc.PayloadServiceStub) -> None:
        call = stub.Fetch(
            payload_service_pb2.FetchRequest(
                handle_id=self._handle.handle_id,
                request_id=self._handle.request_id,
                offset=self._have,
            )
        )
        try:
            async for response in call:
                self._take(response.data)
                self._told = response.digest or self._told
        finally:
            call.cancel()

    def _take(self, chunk: bytes) -> None:
        end = self._have + len(chunk)
        if end > len(self._data):
            raise _lost(self._handle, "it is longer than its handle says")
        self._data[self._have : end] = chunk
        self._have = end
        self._digest.update(chunk)


def _digest(data: bytes | memoryview) -> bytes:
    return hashlib.blake2b(data, digest_size=DIGEST_BYTES).digest()


def _lost(handle: Handle, why: str) -> MeshError:
    return MeshError(
        error_for("handle_lost", f"a payload could not be had: {why}", replica_id=handle.holder_id)
    )
