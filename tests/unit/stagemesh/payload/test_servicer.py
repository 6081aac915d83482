"""What `PayloadService` sends, without a server around it."""

import hashlib
from pathlib import Path
from typing import Any

from stagemesh.api.stage.v1.payload_service_pb2 import FetchRequest, ReleaseRequest
from stagemesh.payload import PayloadServicer
from stagemesh.payload.servicer import CHUNK_BYTES
from tests.helpers.payloads import MIB, noise, store_in

CONTEXT: Any = None


async def test_chunks_are_bounded_and_the_last_message_has_the_digest(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    data = noise(MIB + 1)
    handle = store.put(data, "req_1")
    request = FetchRequest(handle_id=handle.handle_id, request_id="req_1")
    sent = [response async for response in PayloadServicer(store).Fetch(request, CONTEXT)]
    assert b"".join(response.data for response in sent) == data
    assert max(len(response.data) for response in sent) == CHUNK_BYTES
    digest = hashlib.blake2b(data, digest_size=16).digest()
    assert [response.digest for response in sent] == [b""] * (len(sent) - 1) + [digest]


async def test_from_an_offset_the_digest_is_still_that_of_the_whole(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    data = noise(MIB)
    handle = store.put(data, "req_1")
    request = FetchRequest(handle_id=handle.handle_id, request_id="req_1", offset=MIB - 3)
    sent = [response async for response in PayloadServicer(store).Fetch(request, CONTEXT)]
    assert [response.data for response in sent] == [data[-3:], b""]
    assert sent[-1].digest == hashlib.blake2b(data, digest_size=16).digest()


async def test_release_tells_how_many_were_dropped(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    store.put(b"a", "req_1")
    store.put(b"b", "req_1")
    answer = await PayloadServicer(store).Release(ReleaseRequest(request_id="req_1"), CONTEXT)
    assert answer.released == 2
    assert store.bytes_used == 0
