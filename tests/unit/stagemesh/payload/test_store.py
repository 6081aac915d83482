"""A payload store: room, leases, ownership, and what it leaves behind."""

import asyncio
import hashlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from stagemesh.errors import MeshError
from stagemesh.outcome import ErrorCode
from stagemesh.payload import PayloadStore
from tests.helpers.payloads import MIB, inode_of, noise, store_in


@pytest.fixture
def store(tmp_path: Path) -> Iterator[PayloadStore]:
    made = store_in(tmp_path, clock=lambda: 100.0)
    yield made
    made.close()


def files_of(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


@pytest.mark.parametrize("size_bytes", [0, 1, 4096, MIB + 1])
def test_what_was_put_is_what_is_read_from_any_offset(store: PayloadStore, size_bytes: int) -> None:
    data = noise(size_bytes)
    handle = store.put(data, "req_1")
    assert handle.size_bytes == size_bytes
    for offset in {0, 1, size_bytes // 2, size_bytes, size_bytes + 5}:
        assert store.read(handle.handle_id, "req_1", offset) == data[offset:]


def test_an_array_is_put_as_its_bytes(store: PayloadStore) -> None:
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    handle = store.put(array.data, "req_1")
    assert store.read(handle.handle_id, "req_1") == array.tobytes()


def test_a_handle_says_all_that_a_reader_needs(store: PayloadStore) -> None:
    handle = store.put(b"abc", "req_1")
    assert handle.request_id == "req_1"
    assert (handle.holder_id, handle.incarnation) == ("talker-0", 0x1234)
    assert handle.address == "127.0.0.1:1"
    assert handle.digest == hashlib.blake2b(b"abc", digest_size=16).digest()


def test_no_two_handles_can_be_guessed_from_each_other(store: PayloadStore) -> None:
    ids = {store.put(b"same", "req_1").handle_id for _ in range(50)}
    assert len(ids) == 50
    assert all(len(id) == len("h_") + 32 for id in ids)


def test_a_handle_belongs_to_one_request(store: PayloadStore) -> None:
    handle = store.put(b"abc", "req_1")
    errors = []
    for handle_id, request_id in ((handle.handle_id, "req_2"), ("h_" + "0" * 32, "req_1")):
        with pytest.raises(MeshError) as caught:
            store.read(handle_id, request_id)
        errors.append(caught.value.info)
    assert errors[0] == errors[1]  # Nobody learns which of the two it was.
    assert errors[0].reason == "handle_lost"


def test_a_full_store_refuses_at_once_and_says_when_to_come_back(store: PayloadStore) -> None:
    store.put(bytes(15 * MIB), "req_1")
    with pytest.raises(MeshError) as caught:
        store.put(bytes(2 * MIB), "req_2")
    info = caught.value.info
    assert (info.code, info.reason) == (ErrorCode.OVERLOADED, "payload_store_full")
    assert info.retryable
    assert info.retry_after_s is not None
    store.release("req_1")
    store.put(bytes(2 * MIB), "req_2")


def test_what_can_never_fit_is_not_worth_a_retry(store: PayloadStore) -> None:
    with pytest.raises(MeshError) as caught:
        store.put(bytes(17 * MIB), "req_1")
    assert not caught.value.info.retryable


def test_a_directory_that_takes_no_more_is_a_full_store(tmp_path: Path) -> None:
    folder = tmp_path / "shm"
    folder.mkdir()
    store = store_in(folder)
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    with pytest.raises(MeshError) as caught:
        store.put(b"abc", "req_1")
    assert caught.value.info.code is ErrorCode.OVERLOADED
    assert store.bytes_used == 0


def test_release_drops_what_is_named_or_everything(store: PayloadStore, tmp_path: Path) -> None:
    one, _, _ = (store.put(bytes([index]), "req_1") for index in range(3))
    other = store.put(b"x", "req_2")
    assert store.release("req_1", [one.handle_id, other.handle_id, "h_unknown"]) == 1
    assert store.release("req_1") == 2
    assert store.release("req_1") == 0
    assert store.bytes_used == 1
    assert files_of(tmp_path) == sorted(
        [
            "stagemesh-talker-0-0000000000001234-probe",
            f"stagemesh-talker-0-0000000000001234-{other.handle_id}",
        ]
    )


def test_it_tells_which_handles_of_a_request_are_left(store: PayloadStore) -> None:
    one, two, other = (store.put(b"x", request) for request in ("req_1", "req_1", "req_2"))
    store.release("req_1", (one.handle_id,))
    asked = (two.handle_id, one.handle_id, other.handle_id)
    assert store.held("req_1", asked) == (two.handle_id,)
    assert store.held("req_9", asked) == ()


@pytest.mark.parametrize("size_bytes", [3, MIB, MIB + 1])
def test_the_digest_of_a_handle_is_known_before_the_put(
    store: PayloadStore, size_bytes: int
) -> None:
    data = noise(size_bytes)
    assert store.digest_at_put(data) == store.put(data, "req_1").digest


def test_bytes_that_somebody_reads_outlive_their_release(store: PayloadStore) -> None:
    handle = store.put(noise(MIB), "req_1")
    view = store.read(handle.handle_id, "req_1")
    store.release("req_1")
    assert view == noise(MIB)


def test_a_lease_ends_unless_it_is_renewed(store: PayloadStore) -> None:
    store.put(b"a", "req_1")
    store.put(b"b", "req_2")
    store.renew("req_1", 130.0)
    store.renew("req_unknown", 130.0)
    swept = [(now_s, store.sweep(now_s)) for now_s in (159.9, 160.0, 189.9, 190.0, 500.0)]
    assert swept == [(159.9, 0), (160.0, 1), (189.9, 0), (190.0, 1), (500.0, 0)]
    assert store.bytes_used == 0


def test_close_leaves_nothing_and_takes_nothing(store: PayloadStore, tmp_path: Path) -> None:
    store.put(b"a", "req_1")
    store.close()
    store.close()
    assert files_of(tmp_path) == []
    with pytest.raises(MeshError):
        store.put(b"b", "req_1")


async def test_a_large_put_in_a_thread_is_the_same(store: PayloadStore) -> None:
    data = noise(2 * MIB)
    handle = await store.put_large(data, "req_1")
    assert store.read(handle.handle_id, "req_1") == data
    assert handle.digest == b""  # Too large to hash on the way in.


async def test_large_puts_count_before_they_are_written(store: PayloadStore) -> None:
    first = asyncio.ensure_future(store.put_large(bytes(10 * MIB), "req_1"))
    await asyncio.sleep(0)
    with pytest.raises(MeshError):
        store.put(bytes(10 * MIB), "req_2")
    await first


async def test_a_cancelled_put_leaves_nothing(store: PayloadStore, tmp_path: Path) -> None:
    putting = asyncio.ensure_future(store.put_large(bytes(10 * MIB), "req_1"))
    await asyncio.sleep(0)
    putting.cancel()
    await asyncio.wait([putting])
    assert store.bytes_used == 0
    store.close()  # Waits for the thread.
    assert files_of(tmp_path) == []


async def test_a_put_that_ends_after_close_leaves_nothing(
    store: PayloadStore, tmp_path: Path
) -> None:
    putting = asyncio.ensure_future(store.put_large(bytes(10 * MIB), "req_1"))
    await asyncio.sleep(0)
    store.close()
    with pytest.raises(MeshError):
        await putting
    assert files_of(tmp_path) == []


@pytest.mark.parametrize("size_bytes", [MIB - 1, MIB])
def test_a_put_is_written_to_a_released_file_of_about_its_size(
    store: PayloadStore, size_bytes: int
) -> None:
    first = store.put(noise(MIB), "req_1")
    inode = inode_of(first)
    store.release("req_1")
    assert (store.bytes_used, store.warm_bytes) == (0, MIB)
    second = store.put(noise(2 * MIB)[-size_bytes:], "req_2")
    assert (inode_of(second), second.handle_id != first.handle_id) == (inode, True)
    assert store.read(second.handle_id, "req_2") == noise(2 * MIB)[-size_bytes:]
    assert (store.bytes_used, store.warm_bytes) == (size_bytes, 0)


async def test_a_large_put_is_written_to_a_released_file(store: PayloadStore) -> None:
    inode = inode_of(await store.put_large(bytes(2 * MIB), "req_1"))
    store.release("req_1")
    assert store.warm_bytes == 2 * MIB
    handle = await store.put_large(noise(2 * MIB), "req_2")
    assert (inode_of(handle), store.warm_bytes) == (inode, 0)
    assert store.read(handle.handle_id, "req_2") == noise(2 * MIB)


@pytest.mark.invariant("PAYLOAD-INV-100")
def test_a_view_of_released_bytes_never_shows_the_next_payload(store: PayloadStore) -> None:
    handle = store.put(noise(MIB), "req_1")
    part = store.read(handle.handle_id, "req_1", MIB - 5)
    store.release("req_1")
    for _ in range(3):
        store.put(bytes(MIB), "req_2")
        store.release("req_2")
    assert part == noise(MIB)[-5:]


def test_released_files_are_within_the_bound_and_make_way(store: PayloadStore) -> None:
    for _ in range(4):
        store.put(bytes(4 * MIB), "req_1")
    store.release("req_1")
    assert (store.bytes_used, store.warm_bytes) == (0, 16 * MIB)
    store.put(bytes(MIB), "req_2")
    assert (store.bytes_used, store.warm_bytes) == (MIB, 12 * MIB)
    store.put(bytes(15 * MIB), "req_2")
    assert (store.bytes_used, store.warm_bytes) == (16 * MIB, 0)


def test_without_warm_bytes_a_released_file_is_removed(tmp_path: Path) -> None:
    store = store_in(tmp_path, warm_bytes_max=0)
    store.put(bytes(MIB), "req_1")
    store.release("req_1")
    assert len(files_of(tmp_path)) == 1


def test_a_sweep_gives_an_idle_store_its_memory_back(store: PayloadStore) -> None:
    store.put(bytes(MIB), "req_1")
    store.release("req_1")
    assert store.sweep(160.0) == 0  # No handle was dropped.
    assert store.warm_bytes == 0


def test_close_removes_released_files_too(store: PayloadStore, tmp_path: Path) -> None:
    for request_id in ("req_1", "req_2"):
        store.put(bytes(MIB), request_id)
    store.release("req_1")
    store.close()
    assert files_of(tmp_path) == []
    assert store.warm_bytes == 0


async def test_a_cancelled_put_to_a_released_file_leaves_nothing(
    store: PayloadStore, tmp_path: Path
) -> None:
    store.put(bytes(10 * MIB), "req_1")
    store.release("req_1")
    putting = asyncio.ensure_future(store.put_large(bytes(10 * MIB), "req_2"))
    await asyncio.sleep(0)
    putting.cancel()
    await asyncio.wait([putting])
    store.close()
    assert (files_of(tmp_path), store.bytes_used) == ([], 0)
