"""Bytes of an answer that are elsewhere, and are gone when they are fetched."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from stagemesh.api.stage.v1 import payload_service_pb2_grpc
from stagemesh.ids import new_handle_id, new_incarnation
from stagemesh.media import Body, Handle, Modality
from stagemesh.payload import PayloadServicer, PayloadStore
from stagemesh.rpc import start_server
from tests.helpers.counted_requests import (
    opened_at,
)
from tests.helpers.fake_orchestrator import FakeOrchestrator, FakeRequest
from tests.helpers.loopback import free_address
from tests.helpers.running_gateway import RunningGateway, running_gateway

PNG = b"\x89PNG\r\n\x1a\n" + bytes(100)


@asynccontextmanager
async def store_at(tmp_path: Path) -> AsyncIterator[PayloadStore]:
    """A worker's payload store, on its port."""
    address = free_address()
    store = PayloadStore(
        holder_id="w", incarnation=new_incarnation(), address=address, directory=tmp_path,
        bytes_max=2**20, lease_s=60.0,
    )  # fmt: skip
    server = await start_server(
        address,
        register=lambda server: payload_service_pb2_grpc.add_PayloadServiceServicer_to_server(
            PayloadServicer(store), server
        ),
        services=(),
    )
    try:
        yield store
    finally:
        await server.stop(0)
        store.close()


def nowhere(asked: FakeRequest, address: str = "") -> Handle:
    """A handle whose holder is gone."""
    return Handle(
        handle_id=new_handle_id(), request_id=asked.request_id, holder_id="gone", incarnation=1,
        address=address or free_address(), size_bytes=10,
    )  # fmt: skip


async def _draw(mesh: RunningGateway) -> httpx.Response:
    return await mesh.http.post("/v1/images/generations", json={"model": "echo", "prompt": "red"})


@pytest.mark.parametrize("complete", [False, True])
async def test_bytes_that_are_lost_are_given_again_and_count_once(
    tmp_path: Path, complete: bool
) -> None:
    """By the owner, or by the next one if the owner had already taken the request for complete."""

    async def play(asked: FakeRequest) -> None:
        if asked.epoch == 1:
            asked.image(Body(handle=nowhere(asked), media_type="image/png"))
            asked.end(Modality.IMAGE)
            if complete:
                asked.complete()
                return
            await asked.lost_handles.get()
            asked.rewind(0, Modality.IMAGE)
        assert asked.next(Modality.IMAGE) == 0
        asked.image(Body(handle=store.put(PNG, asked.request_id), media_type="image/png"))
        asked.end(Modality.IMAGE)
        await asked.settled()
        asked.complete()

    fakes = [FakeOrchestrator(script=play), FakeOrchestrator(script=play)]
    async with store_at(tmp_path) as store, running_gateway(*fakes) as mesh:
        answer = await _draw(mesh)
    assert answer.status_code == 200
    assert len(answer.json()["data"]) == 1
    assert len(opened_at(*fakes)) == 1 + complete


async def test_bytes_that_are_not_fetched_when_the_owner_is_lost_come_from_the_next(
    tmp_path: Path,
) -> None:
    # Its holder takes the connection and says nothing.
    listener = socket.create_server(("127.0.0.1", int(free_address().split(":")[1])))
    address = "{}:{}".format(*listener.getsockname())

    async def play(asked: FakeRequest) -> None:
        if asked.epoch == 1:
            stuck = nowhere(asked, address)
            asked.image(Body(handle=stuck, media_type="image/png"))
            await asyncio.sleep(0.1)
            asked.cut()
            return
        assert not asked.journal.lanes or asked.journal.lanes[0].next == 0
        asked.image(Body(handle=store.put(PNG, asked.request_id), media_type="image/png"))
        asked.end(Modality.IMAGE)
        await asked.settled()
        asked.complete()

    fakes = [FakeOrchestrator(script=play), FakeOrchestrator(script=play)]
    with listener:
        async with store_at(tmp_path) as store, running_gateway(*fakes) as mesh:
            async with asyncio.timeout(5):
                answer = await _draw(mesh)
    assert answer.status_code == 200
    assert len(answer.json()["data"]) == 1


async def test_bytes_that_are_lost_again_and_again_end_the_request() -> None:
    async def play(asked: FakeRequest) -> None:
        while not asked.aborted.is_set():
            asked.rewind(0, Modality.IMAGE)
            asked.image(Body(handle=nowhere(asked), media_type="image/png"))
            async with asyncio.timeout(5):
                await asked.lost_handles.get()

    fake = FakeOrchestrator(script=play)
    async with running_gateway(fake) as mesh:
        answer = await _draw(mesh)
        await fake.requests[0].aborted.wait()
    assert (answer.status_code, answer.json()["error"]["code"]) == (502, "handle_lost")
    assert len(fake.handles_lost) == 4
