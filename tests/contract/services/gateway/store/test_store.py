"""What every store of requests must do; each implementation is one parameter."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import msgspec
import pytest

from services.gateway.core.detached import LanePosition, OwnerName
from services.gateway.store import RequestRow, RequestStore, SqliteStore
from stagemesh.outcome import (
    COMPLETED,
    End,
    FinishReason,
    Outcome,
    Terminal,
    Usage,
    error_for,
)

Open = Callable[[], Awaitable[RequestStore]]

ASKED = b"\x00\xff"
FIRST, SECOND = OwnerName("o-1", 2**64 - 1), OwnerName("o-2", 7)
STOP = End(finish_reason=FinishReason.STOP, stop_match="é\n", usage=Usage(completion_tokens=3))
FAILED = Terminal(outcome=Outcome.FAILED, error=error_for("replica_lost", retry_after_s=1.5))


def row_of(request_id: str = "req_1", *, deadline_at_s: float = 1e12) -> RequestRow:
    return RequestRow(
        request_id=request_id, tenant="tenant", epoch=1, owner=FIRST, owner_since=1, revision="r1",
        deadline_at_s=deadline_at_s, detach_s=30.0, streamed=True,
    )  # fmt: skip


@pytest.fixture(params=["sqlite"])
async def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Open]:
    """Open one store again and again, as each gateway does for itself."""
    opened: list[RequestStore] = []
    makers: dict[str, Open] = {"sqlite": lambda: SqliteStore(tmp_path / "requests.db").open()}

    async def open_one() -> RequestStore:
        opened.append(await makers[request.param]())
        return opened[-1]

    yield open_one
    for store in opened:
        await store.close()


@pytest.fixture
async def store(open_store: Open) -> RequestStore:
    """Give a store with one open request."""
    store = await open_store()
    assert await store.create(row_of(), ASKED)
    return store


async def finish(store: RequestStore, epoch: int, at_s: float = 5.0, name: str = "req_1") -> bool:
    return await store.finish(
        name, epoch, FAILED, lanes=(LanePosition(1, 9, STOP),), content=b"last", ended_at_s=at_s
    )


async def test_a_row_is_there_for_every_gateway_as_it_was_written(
    store: RequestStore, open_store: Open
) -> None:
    other = await open_store()
    assert await other.read("req_1") == row_of()
    assert await other.read("req_2") is None
    assert await other.request("req_1") == ASKED
    assert await other.request("req_2") is None


async def test_an_id_is_given_once(store: RequestStore, open_store: Open) -> None:
    other = await open_store()
    again = msgspec.structs.replace(row_of(), tenant="another")
    assert not await other.create(again, b"another")
    assert await store.read("req_1") == row_of()
    assert await store.request("req_1") == ASKED


async def test_an_epoch_is_taken_once(store: RequestStore, open_store: Open) -> None:
    other = await open_store()
    taken = await other.take("req_1", 1, SECOND, "r2")
    assert taken is not None
    assert (taken.epoch, taken.owner, taken.owner_since, taken.revision) == (2, SECOND, 2, "r2")
    assert await store.read("req_1") == taken
    assert await store.take("req_1", 1, FIRST, "r1") is None
    assert await store.take("req_1", 3, FIRST, "r1") is None
    assert await store.take("req_2", 1, FIRST, "r1") is None
    assert await store.read("req_1") == taken


async def test_an_owner_in_a_row_is_known_since_its_first_epoch(store: RequestStore) -> None:
    since = []
    for epoch, owner in enumerate((FIRST, SECOND, SECOND, OwnerName("o-2", 8)), start=1):
        row = await store.take("req_1", epoch, owner, "r1")
        assert row is not None
        since.append(row.owner_since)
    assert since == [1, 3, 3, 5]


async def test_of_many_who_want_an_epoch_one_has_it(store: RequestStore, open_store: Open) -> None:
    stores = [store, await open_store(), await open_store()]
    for epoch in range(1, 20):
        taken = await asyncio.gather(*(one.take("req_1", epoch, FIRST, "r1") for one in stores))
        assert [row.epoch for row in taken if row is not None] == [epoch + 1]


async def test_what_is_committed_is_read_with_its_content(
    store: RequestStore, open_store: Open
) -> None:
    lanes = (LanePosition(1, 4, STOP), LanePosition(0xFFF0_0011, 2**40))
    assert await store.commit("req_1", 1, (LanePosition(1, 2),), b"\x00first")
    assert await store.commit("req_1", 1, lanes, b"")
    assert await store.commit("req_1", 1, lanes, b"second")
    other = await open_store()
    row = await other.read("req_1")
    assert row == msgspec.structs.replace(row_of(), lanes=lanes)
    assert await other.contents("req_1") == [b"\x00first", b"second"]
    assert await other.contents("req_2") == []
    taken = await other.take("req_1", 1, SECOND, "r1")
    assert taken is not None
    assert taken.lanes == lanes


async def test_under_an_epoch_that_is_over_nothing_is_written(store: RequestStore) -> None:
    taken = await store.take("req_1", 1, SECOND, "r1")
    assert not await store.commit("req_1", 1, (LanePosition(1, 2),), b"late")
    assert not await finish(store, 1)
    assert not await store.commit("req_1", 3, (LanePosition(1, 2),), b"early")
    assert not await store.commit("req_2", 1, (), b"nobody's")
    assert await store.read("req_1") == taken
    assert await store.contents("req_1") == await store.contents("req_2") == []


async def test_an_end_is_the_last_that_is_written(store: RequestStore) -> None:
    assert await store.commit("req_1", 1, (LanePosition(1, 2),), b"first")
    assert await finish(store, 1)
    row = await store.read("req_1")
    assert row is not None
    assert (row.terminal, row.lanes) == (FAILED, (LanePosition(1, 9, STOP),))
    assert not await store.finish("req_1", 1, COMPLETED, content=b"again", ended_at_s=5.0)
    assert not await store.commit("req_1", 1, (), b"more")
    assert await store.take("req_1", 1, SECOND, "r1") is None
    assert await store.read("req_1") == row
    assert await store.contents("req_1") == [b"first", b"last"]


async def test_what_ended_long_ago_is_removed_and_so_is_what_should_have(
    store: RequestStore,
) -> None:
    for name in ("old", "new"):
        await store.create(row_of(name), ASKED)
    await store.create(row_of("left", deadline_at_s=50.0), ASKED)
    assert await finish(store, 1, at_s=99.0, name="old")
    assert await finish(store, 1, at_s=101.0, name="new")
    await store.commit("left", 1, (), b"nobody came for it")
    assert await store.remove(100.0) == 2
    names = ("req_1", "old", "new", "left")
    assert [await store.read(name) is not None for name in names] == [True, False, True, False]
    assert [await store.contents(name) for name in names] == [[], [], [b"last"], []]
    assert [await store.request(name) is not None for name in names] == [True, False, True, False]
    assert await store.create(row_of("old"), ASKED)


async def test_an_end_without_positions_leaves_those_that_are_there(store: RequestStore) -> None:
    lanes = (LanePosition(1, 2),)
    assert await store.commit("req_1", 1, lanes, b"first")
    assert await store.finish("req_1", 1, FAILED, ended_at_s=5.0)
    row = await store.read("req_1")
    assert row is not None
    assert (row.lanes, row.terminal) == (lanes, FAILED)
    assert await store.contents("req_1") == [b"first"]


async def test_all_that_is_over_is_removed_however_much_it_is(store: RequestStore) -> None:
    for at in range(150):
        await store.create(row_of(f"left_{at}", deadline_at_s=50.0), ASKED)
    assert await store.remove(100.0) == 150
    assert await store.remove(100.0) == 0
    assert await store.read("left_149") is None
    assert await store.read("req_1") == row_of()


async def test_requests_do_not_mix(store: RequestStore) -> None:
    await store.create(row_of("req_2"), ASKED)
    await store.commit("req_2", 1, (LanePosition(1, 1),), b"two")
    assert await finish(store, 1)
    row = await store.read("req_2")
    assert row is not None
    assert (row.terminal, row.lanes) == (None, (LanePosition(1, 1),))
    assert await store.contents("req_2") == [b"two"]
