"""A gateway whose request another one has taken: it writes nothing more, and ends nothing."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from services.gateway.client import Detachable
from services.gateway.core.detached import OwnerName
from services.gateway.store import SqliteStore
from stagemesh.errors import MeshError
from stagemesh.outcome import End, FinishReason, Outcome, Terminal
from tests.helpers.counted_requests import TOKENS, words
from tests.helpers.detaching_gateway import all_of, texts_of
from tests.helpers.detaching_mesh import (
    ID,
    Mesh,
    begin,
    detaching_mesh,
    ends_with,
    go_on,
    text_until,
    until_closed,
    up_to,
)
from tests.helpers.fake_orchestrator import FakeRequest

STOP = End(finish_reason=FinishReason.STOP)


@pytest.fixture
async def mesh(tmp_path: Path) -> AsyncIterator[Mesh]:
    async with detaching_mesh(tmp_path) as mesh:
        yield mesh


async def test_a_holder_that_lives_ends_typed_and_writes_nothing_more(mesh: Mesh) -> None:
    await mesh.orchestrator(up_to(9))
    first, second = await mesh.gateway(), await mesh.gateway()
    detachable = await begin(first)
    await text_until(detachable, 9)
    taken = await go_on(second)
    # Its orchestrator tells it; the next epoch is another's.
    assert await ends_with(detachable) == "taken_over"
    await until_closed(first)
    assert (words(9) + (await all_of(taken))[0]) == words(TOKENS)
    assert [(asked.epoch, asked.aborted.is_set()) for asked in mesh.asked] == [(1, 0), (2, 0)]
    assert texts_of(await second.store.contents(ID)) == words(TOKENS)


async def test_what_comes_after_another_gateway_took_it_is_neither_committed_nor_fenced(
    mesh: Mesh,
) -> None:
    """That one may be about to open it at this very owner, and has need of what that one has."""
    late = asyncio.Event()

    async def play(asked: FakeRequest) -> None:
        asked.text(" w0")
        await late.wait()
        asked.text(" late")
        await asyncio.sleep(0.05)
        asked.text(" later")

    fake = await mesh.orchestrator(play)
    gateway = await mesh.gateway()
    detachable = await begin(gateway)
    await text_until(detachable, 1)
    owner = OwnerName(fake.id, fake.incarnation)
    row = await gateway.store.take(ID, 1, owner, "r1")
    late.set()
    assert await ends_with(detachable) == "taken_over"
    await asyncio.sleep(0.1)
    assert (await gateway.store.read(ID), texts_of(await gateway.store.contents(ID))) == (
        row,
        " w0",
    )
    assert fake.fences == []
    assert not mesh.asked[0].aborted.is_set()


async def test_an_owner_that_nobody_listens_to_any_more_is_fenced(mesh: Mesh) -> None:
    late = asyncio.Event()

    async def play(asked: FakeRequest) -> None:
        asked.text(" w0")
        await late.wait()
        asked.text(" late")

    fake = await mesh.orchestrator(play)
    gateway = await mesh.gateway()
    detachable = await begin(gateway)
    await text_until(detachable, 1)
    await gateway.store.take(ID, 1, OwnerName("elsewhere", 1), "r1")
    late.set()
    assert await ends_with(detachable) == "taken_over"
    await fake.until(lambda: bool(fake.fences))
    assert fake.fences == [mesh.asked[0].slot]


async def test_an_end_that_another_gateway_forestalled_is_not_given(mesh: Mesh) -> None:
    late = asyncio.Event()

    async def play(asked: FakeRequest) -> None:
        await late.wait()
        asked.complete()

    fake = await mesh.orchestrator(play)
    gateway = await mesh.gateway()
    detachable = await begin(gateway)
    await fake.until(lambda: bool(fake.requests))
    await gateway.store.take(ID, 1, OwnerName("elsewhere", 1), "r1")
    late.set()
    assert await ends_with(detachable) == "taken_over"
    row = await gateway.store.read(ID)
    assert row is not None
    assert row.terminal is None


async def test_of_two_gateways_that_take_it_over_one_has_it(mesh: Mesh) -> None:
    await mesh.orchestrator(up_to(9))
    first, *others = [await mesh.gateway() for _ in range(4)]
    await text_until(await begin(first), 9)
    await first.kill()
    results = await asyncio.gather(*(go_on(other) for other in others), return_exceptions=True)
    had = [result for result in results if isinstance(result, Detachable)]
    lost = [result for result in results if isinstance(result, MeshError)]
    assert len(had) + len(lost) == 3
    assert {error.info.reason for error in lost} <= {"taken_over"}
    last = max(had, key=lambda detachable: detachable.epoch)
    assert words(9) + (await all_of(last))[0] == words(TOKENS)
    row = await others[0].store.read(ID)
    assert row is not None
    assert row.epoch == 1 + len(had)


async def test_a_gateway_takes_over_from_itself(mesh: Mesh) -> None:
    fake = await mesh.orchestrator(up_to(9))
    gateway = await mesh.gateway()
    detachable = await begin(gateway)
    await text_until(detachable, 9)
    taken = await go_on(gateway)
    async with asyncio.timeout(0):  # At once, not when its orchestrator tells it.
        with pytest.raises(MeshError, match="taken"):
            await detachable.take()
    assert words(9) + (await all_of(taken))[0] == words(TOKENS)
    assert fake.fences == []
    await until_closed(gateway)


async def test_two_calls_that_take_it_over_at_one_gateway_are_told_apart(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    contents = SqliteStore.contents

    async def slowly(self: SqliteStore, request_id: str) -> list[bytes]:
        await asyncio.sleep(0.2)
        return await contents(self, request_id)

    async def silent(asked: FakeRequest) -> None:
        await asked.aborted.wait()
        asked.terminal(Terminal(outcome=Outcome.CANCELLED))

    await mesh.orchestrator(silent)
    gateway = await mesh.gateway()
    await begin(gateway)
    monkeypatch.setattr(SqliteStore, "contents", slowly)
    async with asyncio.TaskGroup() as tasks:
        first = tasks.create_task(go_on(gateway))
        await asyncio.sleep(0.1)  # It has the epoch, and nobody knows of it yet.
        second = tasks.create_task(go_on(gateway))
    assert (first.result().epoch, second.result().epoch) == (2, 3)
    assert await ends_with(first.result()) == "taken_over"
    assert gateway.orchestrators.open_requests == 1
    second.result().abort("enough")
    assert (await all_of(second.result()))[1].outcome is Outcome.CANCELLED
    await until_closed(gateway)
