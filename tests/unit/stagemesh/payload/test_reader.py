"""Reading from shared memory; nothing listens at the handles' address."""

from pathlib import Path

import msgspec
import pytest

from stagemesh.errors import MeshError
from stagemesh.outcome import ErrorCode
from stagemesh.payload import PayloadReader
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
