"""Reading from shared memory; nothing listens at the handles' address."""

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stagemesh.errors import MeshError
from stagemesh.outcome import ErrorCode
from stagemesh.payload import PayloadReader
from stagemesh.payload.files import data_path
from tests.helpers.payloads import MIB, noise, store_in


@pytest.mark.parametrize("size_bytes", [0, 1, 256 * 1024 - 1, 256 * 1024, MIB + 1])
async def test_what_was_put_is_what_is_got(tmp_path: Path, size_bytes: int) -> None:
    store = store_in(tmp_path)
    handle = store.put(noise(size_bytes), "req_1")
    async with PayloadReader() as reader:
        assert bytes(await reader.get(handle)) == noise(size_bytes)
        assert bytes(await reader.get(handle)) == noise(size_bytes)  # Reading consumes nothing.


async def test_large_bytes_are_not_copied_and_outlive_their_release(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    handle = store.put(noise(2 * MIB), "req_1")
    async with PayloadReader() as reader:
        view = await reader.get(handle)
    store.close()
    assert isinstance(view, memoryview)
    assert view.readonly
    assert view == noise(2 * MIB)


async def test_released_bytes_are_a_lost_handle_that_names_its_holder(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    handle = store.put(b"abc", "req_1")
    store.release("req_1")
    async with PayloadReader() as reader:
        with pytest.raises(MeshError) as caught:
            await reader.get(handle)
    info = caught.value.info
    assert (info.code, info.reason) == (ErrorCode.REPLICA_LOST, "handle_lost")
    assert (info.replica_id, info.retryable) == ("talker-0", True)


@pytest.mark.parametrize("changes", [{"size_bytes": 2}, {"size_bytes": 4}, {"digest": bytes(16)}])
async def test_bytes_that_are_not_what_the_handle_says_are_lost(
    tmp_path: Path, changes: dict[str, object]
) -> None:
    handle = store_in(tmp_path).put(b"abc", "req_1")
    async with PayloadReader() as reader:
        with pytest.raises(MeshError, match="another"):
            await reader.get(msgspec.structs.replace(handle, **changes))


@pytest.mark.invariant("PAYLOAD-INV-100")
async def test_a_reader_that_opens_a_file_too_late_sees_nothing_of_the_next_payload(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, real_open = store_in(tmp_path), os.open
    handle = store.put(noise(2 * MIB), "req_1")  # It has no digest.
    path = data_path(handle.probe, handle.handle_id)
    opened: list[Path] = []

    def open_late(name: Any, *arguments: Any) -> int:
        """Do what the kernel does when the name was looked up before it was another's."""
        if name != path or opened:
            return real_open(name, *arguments)
        store.release("req_1")
        following = store.put(bytes(2 * MIB), "req_2")
        found = data_path(following.probe, following.handle_id)
        assert found is not None
        opened.append(found)
        return real_open(found, *arguments)

    monkeypatch.setattr(os, "open", open_late)
    async with PayloadReader() as reader:
        with pytest.raises(MeshError, match="dropped"):
            await reader.get(handle)
    assert len(opened) == 1
    store.close()


@pytest.mark.invariant("PAYLOAD-INV-100")
@pytest.mark.parametrize("size_bytes", [MIB, MIB + 1])
async def test_a_view_never_changes_and_never_shrinks(tmp_path: Path, size_bytes: int) -> None:
    store = store_in(tmp_path)
    handle = store.put(noise(size_bytes), "req_1")
    async with PayloadReader() as reader:
        part = memoryview(await reader.get(handle))[1:][:-1]
        for smaller in (0, 1000):
            store.release("req_1")
            store.put(bytes(MIB - smaller), "req_1")
        assert part == noise(size_bytes)[1:-1]
    store.close()
