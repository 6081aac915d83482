"""Payloads over real sockets: the reader sees no shared memory of the holder."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from grpc import aio

from stagemesh.api.stage.v1 import payload_service_pb2, payload_service_pb2_grpc
from stagemesh.errors import MeshError
from stagemesh.media import Handle
from stagemesh.outcome import error_for
from stagemesh.payload import PayloadReader, PayloadServicer, PayloadStore
from stagemesh.rpc import abort, start_server
from tests.helpers.loopback import free_address
from tests.helpers.payloads import MIB, noise, store_in

FetchResponse = payload_service_pb2.FetchResponse


@asynccontextmanager
async def serving(
    store: PayloadStore, servicer: payload_service_pb2_grpc.PayloadServiceServicer
) -> AsyncIterator[PayloadStore]:
    server = await start_server(
        "127.0.0.1:0",
        register=lambda grpc_server: payload_service_pb2_grpc.add_PayloadServiceServicer_to_server(
            servicer, grpc_server
        ),
        services=[],
    )
    store.address = server.address
    try:
        yield store
    finally:
        await server.stop(0)
        store.close()


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[PayloadStore]:
    bare = store_in(tmp_path)
    async with serving(bare, PayloadServicer(bare)) as served:
        yield served


def seen_from_afar(handle: Handle) -> Handle:
    """Give the handle as it looks to a process in which its probe is another file, or none."""
    path, _, token = handle.probe.rpartition("#")
    return msgspec.structs.replace(handle, probe=f"{path}#{'0' * len(token)}")


@pytest.mark.parametrize("size_bytes", [0, 1, 256 * 1024, 5 * MIB + 3])
async def test_what_was_put_is_what_is_fetched(store: PayloadStore, size_bytes: int) -> None:
    data = noise(size_bytes)
    handle = seen_from_afar(await store.put_large(data, "req_1"))
    async with PayloadReader() as reader:
        assert await reader.get(handle) == data
        assert await reader.get(handle) == data


async def test_another_request_cannot_fetch_it(store: PayloadStore) -> None:
    handle = seen_from_afar(store.put(b"abc", "req_1"))
    async with PayloadReader() as reader:
        with pytest.raises(MeshError) as caught:
            await reader.get(msgspec.structs.replace(handle, request_id="req_2"))
    assert caught.value.info.reason == "handle_lost"


async def test_a_released_handle_is_lost(store: PayloadStore) -> None:
    handle = seen_from_afar(store.put(b"abc", "req_1"))
    store.release("req_1")
    async with PayloadReader() as reader:
        with pytest.raises(MeshError) as caught:
            await reader.get(handle)
    assert caught.value.info.reason == "handle_lost"


async def test_a_holder_that_is_gone_is_a_lost_handle(store: PayloadStore) -> None:
    handle = seen_from_afar(store.put(b"abc", "req_1"))
    async with PayloadReader() as reader:
        with pytest.raises(MeshError) as caught:
            await reader.get(msgspec.structs.replace(handle, address=free_address()))
    assert caught.value.info.reason == "handle_lost"


async def test_one_channel_serves_all_handles_of_a_holder(store: PayloadStore) -> None:
    async with PayloadReader() as reader:
        for index in range(3):
            handle = seen_from_afar(store.put(bytes([index]), "req_1"))
            assert await reader.get(handle) == bytes([index])
        assert len(reader._peers) == 1


Script = Callable[[int, aio.ServicerContext[Any, Any]], AsyncIterator[FetchResponse]]


class Scripted(PayloadServicer):
    """A holder whose `Fetch` does as it is told, by the number of the call."""

    def __init__(self, store: PayloadStore, script: Script) -> None:
        super().__init__(store)
        self.script = script
        self.offsets: list[int] = []

    async def Fetch(  # noqa: N802
        self,
        request: payload_service_pb2.FetchRequest,
        context: aio.ServicerContext[Any, Any],
    ) -> AsyncIterator[FetchResponse]:
        """Do as the script says, and where it says nothing, as a real holder does."""
        self.offsets.append(request.offset)
        async for response in self.script(len(self.offsets), context):
            yield response
        async for response in super().Fetch(request, context):
            yield response


async def test_a_stream_that_broke_is_taken_up_where_it_broke(tmp_path: Path) -> None:
    data = noise(MIB)

    async def break_once(call: int, context: Any) -> AsyncIterator[FetchResponse]:
        if call == 1:
            yield FetchResponse(data=data[:1000])
            await abort(context, error_for("link_lost"))

    store = store_in(tmp_path)
    servicer = Scripted(store, break_once)
    async with serving(store, servicer), PayloadReader() as reader:
        assert await reader.get(seen_from_afar(store.put(data, "req_1"))) == data
    assert servicer.offsets == [0, 1000]


async def test_a_stream_that_keeps_breaking_is_given_up(tmp_path: Path) -> None:
    async def always_break(_: int, context: Any) -> AsyncIterator[FetchResponse]:
        yield FetchResponse()
        await abort(context, error_for("link_lost"))

    store = store_in(tmp_path)
    servicer = Scripted(store, always_break)
    async with serving(store, servicer), PayloadReader() as reader:
        with pytest.raises(MeshError):
            await reader.get(seen_from_afar(store.put(b"abc", "req_1")))
    assert servicer.offsets == [0, 0]


@pytest.mark.parametrize("changes", [{"size_bytes": 2}, {"size_bytes": 4}])
async def test_bytes_of_another_length_are_lost(
    store: PayloadStore, changes: dict[str, int]
) -> None:
    handle = seen_from_afar(store.put(b"abc", "req_1"))
    async with PayloadReader() as reader:
        with pytest.raises(MeshError, match=r"longer|shorter"):
            await reader.get(msgspec.structs.replace(handle, **changes))


class Damaging(PayloadServicer):
    """A holder whose bytes are damaged on the way: one bit of the first chunk."""

    async def Fetch(  # noqa: N802
        self,
        request: payload_service_pb2.FetchRequest,
        context: aio.ServicerContext[Any, Any],
    ) -> AsyncIterator[FetchResponse]:
        """Send what a real holder sends, but for one bit."""
        first = True
        async for response in super().Fetch(request, context):
            if first:
                response.data = bytes([response.data[0] ^ 1]) + response.data[1:]
                first = False
            yield response


@pytest.mark.parametrize("size_bytes", [100, 2 * MIB])
async def test_bytes_that_were_damaged_on_the_way_are_lost(tmp_path: Path, size_bytes: int) -> None:
    store = store_in(tmp_path)
    async with serving(store, Damaging(store)), PayloadReader() as reader:
        handle = await store.put_large(noise(size_bytes), "req_1")
        with pytest.raises(MeshError, match="damaged"):
            await reader.get(seen_from_afar(handle))


async def test_a_fetch_that_is_given_up_ends_at_its_holder(tmp_path: Path) -> None:
    begun, over = asyncio.Event(), asyncio.Event()

    async def hold(_: int, context: Any) -> AsyncIterator[FetchResponse]:
        yield FetchResponse(data=b"a")
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            over.set()

    store = store_in(tmp_path)
    async with serving(store, Scripted(store, hold)), PayloadReader() as reader:
        handle = seen_from_afar(store.put(b"abc", "req_1"))
        fetching = asyncio.create_task(reader.get(handle))
        async with asyncio.timeout(5):
            await begun.wait()
            fetching.cancel()
            await over.wait()
        with pytest.raises(asyncio.CancelledError):
            await fetching
