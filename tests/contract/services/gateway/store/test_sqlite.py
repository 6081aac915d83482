"""What is special about the store in one file: several processes, kills, and schemas."""

import asyncio
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest

from services.gateway.core.detached import LanePosition
from services.gateway.store import StoreBusy
from services.gateway.store.sqlite import SCHEMA, SqliteStore
from stagemesh.errors import BadSettings, MeshError
from tests.helpers.store_program import LANE, ROUNDS, content_of, row_of

ROOT = Path(__file__).parents[5]


async def _start(path: Path, what: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.helpers.store_program", str(path), what,
        cwd=ROOT, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip


async def test_of_two_processes_that_want_an_epoch_exactly_one_has_it(tmp_path: Path) -> None:
    path = tmp_path / "requests.db"
    store = await SqliteStore(path).open()
    racers = [await _start(path, "race") for _ in range(2)]
    await store.create(row_of("req"), b"")
    said = [(await asyncio.wait_for(racer.communicate(), 60))[0] for racer in racers]
    row = await store.read("req")
    await store.close()
    assert [racer.returncode for racer in racers] == [0, 0]
    taken = sorted(int(epoch) for one in said for epoch in one.split())
    assert taken == list(range(2, ROUNDS + 2))
    assert row is not None
    assert row.epoch == ROUNDS + 1


@pytest.mark.parametrize("commits", [1, 7, 40])
async def test_a_process_that_is_killed_while_it_commits_leaves_no_half_of_it(
    tmp_path: Path, commits: int
) -> None:
    path = tmp_path / "requests.db"
    store = await SqliteStore(path).open()
    await store.create(row_of("req"), b"")
    process = await _start(path, "commit")
    assert process.stdout is not None
    said = [int(await process.stdout.readline()) for _ in range(commits)]
    process.kill()
    await process.wait()
    said += [int(number) for number in (await process.stdout.read()).split()]
    row = await store.read("req")
    contents = await store.contents("req")
    assert row is not None
    (lane,) = row.lanes
    assert lane.next in {said[-1], said[-1] + 1}, "what was told is there, and at most one more"
    assert contents == [content_of(number) for number in range(lane.next)]
    # Whoever goes on is not in the way of what is left of it.
    assert await store.commit("req", 1, (LanePosition(LANE, lane.next + 1),), b"more")
    await store.close()


async def test_many_gateways_may_make_the_file_at_once(tmp_path: Path) -> None:
    stores = [SqliteStore(tmp_path / "requests.db") for _ in range(8)]
    await asyncio.gather(*(store.open() for store in stores))
    assert await stores[0].create(row_of("req"), b"")
    assert await stores[-1].read("req") == row_of("req")
    for store in stores:
        await store.close()


async def test_whoever_holds_the_file_is_waited_for_and_not_for_ever(tmp_path: Path) -> None:
    path = tmp_path / "requests.db"
    store = await SqliteStore(path, busy_s=0.2).open()
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        creating = asyncio.create_task(store.create(row_of("req_1"), b""))
        await asyncio.sleep(0.05)
        other.execute("COMMIT")
        assert await creating
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreBusy, match="locked"):
            await store.create(row_of("req_2"), b"")
    assert await store.create(row_of("req_3"), b"")
    await store.close()


async def test_the_loop_goes_on_while_the_file_is_held(tmp_path: Path) -> None:
    path = tmp_path / "requests.db"
    store = await SqliteStore(path).open()
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        creating = asyncio.create_task(store.create(row_of("req"), b""))
        for _ in range(10):
            await asyncio.sleep(0.01)
        assert not creating.done()
        other.execute("COMMIT")
    assert await creating
    await store.close()


@pytest.mark.parametrize("schema", [SCHEMA + 1, 99])
async def test_a_file_of_another_schema_is_left_alone(tmp_path: Path, schema: int) -> None:
    path = tmp_path / "requests.db"
    with closing(sqlite3.connect(path)) as file:
        file.execute(f"PRAGMA user_version = {schema}")
    before = path.read_bytes()
    with pytest.raises(BadSettings, match=f"schema {schema}"):
        await SqliteStore(path).open()
    assert path.read_bytes() == before


async def test_what_is_no_such_file_is_told_by_its_name(tmp_path: Path) -> None:
    path = tmp_path / "requests.db"
    path.write_text("not a database, but long enough for one" * 10)
    with pytest.raises(BadSettings, match=r"requests\.db"):
        await SqliteStore(path).open()
    with pytest.raises(BadSettings, match="missing"):
        await SqliteStore(tmp_path / "missing" / "requests.db").open()


def _modes(folder: Path) -> list[int]:
    return [path.stat().st_mode & 0o777 for path in folder.iterdir()]


async def test_nobody_else_may_read_what_clients_said(tmp_path: Path) -> None:
    store = await SqliteStore(tmp_path / "requests.db").open()
    await store.create(row_of("req"), b"")
    assert _modes(tmp_path) == [0o600] * 3
    await store.close()


async def test_a_commit_does_not_write_the_request_again(tmp_path: Path) -> None:
    path = tmp_path / "requests.db"
    store = await SqliteStore(path).open()
    await store.create(row_of("req"), bytes(200_000))
    log = path.with_name(f"{path.name}-wal")
    before = log.stat().st_size
    for number in range(10):
        assert await store.commit("req", 1, (LanePosition(LANE, number + 1),), b"x")
    assert log.stat().st_size - before < 200_000
    await store.close()


async def test_what_is_removed_goes_little_by_little(tmp_path: Path) -> None:
    """So that nobody has to wait for the file until all of it is gone."""
    store = await SqliteStore(tmp_path / "requests.db").open()
    names = [f"req_{at}" for at in range(100)]
    for name in names:
        await store.create(row_of(name), b"")
    removing = asyncio.create_task(store.remove(2e12))
    await asyncio.sleep(0)
    there = await asyncio.gather(*(store.read(name) for name in names))
    assert 0 < sum(row is not None for row in there) < len(names)
    assert await removing == len(names)
    await store.close()


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("owner_incarnation", "'x'"),
        ("lanes", "'nothing'"),
        ("lanes", "7"),
        ("terminal", "'{}'"),
        ("lanes", "x'ff'"),
    ],
)
async def test_a_row_that_cannot_be_read_is_a_failure_of_the_store(
    tmp_path: Path, column: str, value: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "requests.db"
    store = await SqliteStore(path).open()
    row = row_of("req")
    await store.create(row, b"")
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute(f"UPDATE requests SET {column} = {value}")
    with pytest.raises(MeshError, match="damaged"):
        await store.read("req")
    with pytest.raises(MeshError, match="damaged"):
        await store.take("req", 1, row.owner, "r")
    assert [record.message for record in caplog.records] == ["request_row_damaged"] * 2
    assert await store.create(row_of("other"), b"")
    await store.close()
