"""A file that is replaced while it is watched."""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing
from pathlib import Path

import pytest

from stagemesh.discovery import Endpoint, FileSource
from stagemesh.telemetry import metrics


def result_count(result: str) -> float:
    line = f'stagemesh_discovery_resolutions_total{{result="{result}"}} '
    text = metrics.render()[0].decode()
    return sum(float(one.removeprefix(line)) for one in text.splitlines() if one.startswith(line))


class File:
    """A discovery file as the launcher writes it: whole, by replacing."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, **groups: list[str]) -> None:
        """Replace it; a member `x` stands for the endpoint of that id."""
        told = {
            name: [{"id": id, "address": f"127.0.0.1:{ord(id)}"} for id in ids]
            for name, ids in groups.items()
        }
        self.write_bytes(json.dumps({"groups": told}).encode())

    def write_bytes(self, content: bytes) -> None:
        """Replace it with anything."""
        draft = self.path.with_suffix(".draft")
        draft.write_bytes(content)
        os.replace(draft, self.path)


class Noted(FileSource):
    """Tells when it has read."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.has_read = asyncio.Event()

    def _read(self) -> None:
        super()._read()
        self.has_read.set()


@pytest.fixture
def file(tmp_path: Path) -> File:
    return File(tmp_path / "mesh.json")


def ids(endpoints: tuple[Endpoint, ...]) -> str:
    return "".join(endpoint.id for endpoint in endpoints)


async def following(watch: AsyncIterator[tuple[Endpoint, ...]]) -> str:
    async with asyncio.timeout(20):
        return ids(await anext(watch))


async def test_a_watch_tells_what_is_there_and_each_change(file: File) -> None:
    file.write(a=["x"])
    async with aclosing(FileSource(file.path).watch("a")) as watch:
        assert await following(watch) == "x"
        file.write(a=["x", "y"])
        assert await following(watch) == "xy"
        file.write(a=["y"])
        assert await following(watch) == "y"


async def test_a_change_right_after_the_first_value_is_not_missed(file: File) -> None:
    for _ in range(5):
        file.write(a=["x"])
        async with aclosing(FileSource(file.path).watch("a")) as watch:
            assert await following(watch) == "x"
            file.write(a=["y"])
            # Far below the interval at which the file is read without any notification.
            async with asyncio.timeout(5):
                assert ids(await anext(watch)) == "y"


async def test_a_file_that_comes_later_is_told_when_it_is_there(file: File) -> None:
    async with aclosing(FileSource(file.path).watch("a")) as watch:
        first = asyncio.ensure_future(following(watch))
        await asyncio.sleep(0)
        file.write(a=["x"])
        assert await first == "x"


@pytest.mark.parametrize("garbage", [b"", b"{", b'{"groups": {"a": [{"id": 3}]}}', b"\xff"])
async def test_garbage_changes_nothing_and_is_counted(file: File, garbage: bytes) -> None:
    file.write(a=["x"])
    source = Noted(file.path)
    async with aclosing(source.watch("a")) as watch:
        assert await following(watch) == "x"
        before = result_count("failed")
        following_value = asyncio.ensure_future(following(watch))
        source.has_read.clear()
        file.write_bytes(garbage)
        async with asyncio.timeout(20):
            await source.has_read.wait()
        assert result_count("failed") > before
        assert not following_value.done()
        file.write(a=["y"])
        assert await following_value == "y"


async def test_an_emptied_group_keeps_what_it_had_and_is_counted(file: File) -> None:
    file.write(a=["x"], b=["y"])
    source = FileSource(file.path)
    async with AsyncExitStack() as stack:
        a = await stack.enter_async_context(aclosing(source.watch("a")))
        b = await stack.enter_async_context(aclosing(source.watch("b")))
        assert (await following(a), await following(b)) == ("x", "y")
        before = result_count("empty")
        file.write(a=[], b=["z"])
        assert await following(b) == "z"
        assert result_count("empty") == before + 1
        file.write(a=["w"], b=["z"])
        assert await following(a) == "w"


async def test_a_file_behind_a_link_that_moves_is_followed(tmp_path: Path) -> None:
    # As Kubernetes mounts a ConfigMap: the file never changes, the link to its folder does.
    for version, id in (("v1", "x"), ("v2", "y")):
        (tmp_path / version).mkdir()
        File(tmp_path / version / "mesh.json").write(a=[id])
    (tmp_path / "data").symlink_to("v1")
    (tmp_path / "mesh.json").symlink_to("data/mesh.json")
    async with aclosing(FileSource(tmp_path / "mesh.json").watch("a")) as watch:
        assert await following(watch) == "x"
        (tmp_path / "draft").symlink_to("v2")
        os.replace(tmp_path / "draft", tmp_path / "data")
        assert await following(watch) == "y"


async def test_the_last_watch_ends_the_reading(file: File) -> None:
    file.write(a=["x"])
    source = FileSource(file.path)
    for _ in range(2):  # And a later watch starts it again.
        async with aclosing(source.watch("a")) as one, aclosing(source.watch("a")) as other:
            assert (await following(one), await following(other)) == ("x", "x")
            assert _reading()
        assert not _reading()


def _reading() -> bool:
    return any(task.get_name() == "discovery-file" for task in asyncio.all_tasks())
