"""Requests that a gateway gives up without their end, or all but does: another one goes on."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from services.gateway.store import SqliteStore, StoreBusy
from stagemesh.errors import MeshError
from stagemesh.outcome import Outcome, error_for
from tests.helpers.counted_requests import TOKENS, count_on, words
from tests.helpers.detaching_gateway import all_of, texts_of
from tests.helpers.detaching_mesh import (
    ASK,
    ID,
    Mesh,
    begin,
    detaching_mesh,
    ends_with,
    go_on,
    take_over,
    text_until,
    up_to,
)

BUSY = StoreBusy(error_for("internal_error", "The request store failed: database is locked."))


@pytest.fixture
async def mesh(tmp_path: Path) -> AsyncIterator[Mesh]:
    async with detaching_mesh(tmp_path) as mesh:
        yield mesh


async def test_a_drain_leaves_it_as_it_is_and_ends_the_others(mesh: Mesh) -> None:
    await mesh.orchestrator(up_to(9))
    first, second = await mesh.gateway(), await mesh.gateway()
    detachable = await begin(first)
    other = await first.orchestrators.open(ASK, request_id="req_2")
    await text_until(detachable, 9)
    first.orchestrators.drain()
    with pytest.raises(MeshError, match="stopped"):
        await begin(first, request_id="req_3")
    with pytest.raises(MeshError, match="stopped"):
        await take_over(first)
    first.orchestrators.end_all(error_for("draining"))
    assert await ends_with(detachable) == "draining"
    taken = await other.take()
    assert taken.terminal is not None
    assert taken.terminal.outcome is Outcome.FAILED
    row = await first.store.read(ID)
    assert row is not None
    assert (row.terminal, row.epoch) == (None, 1)
    # Links still stand: the owner is told to keep what it has for the next gateway.
    (asked,) = (one for one in mesh.asked if one.request_id == ID)
    await asyncio.wait_for(asked.detached.wait(), 5)
    assert not asked.aborted.is_set()
    assert words(9) + (await all_of(await go_on(second)))[0] == words(TOKENS)
    assert mesh.fakes[0].fences == []


async def test_a_stop_writes_no_new_epoch(mesh: Mesh) -> None:
    """Links end one after the other, and nothing is given to those that still stand."""
    for _ in range(2):
        await mesh.orchestrator(up_to(9))
    gateway = await mesh.gateway()
    await text_until(await begin(gateway), 9)
    await gateway.detachables.close()
    await gateway.orchestrators.close()
    await asyncio.sleep(0.1)
    row = await gateway.store.read(ID)
    assert row is not None
    assert row.epoch == 1
    assert len(mesh.asked) == 1


async def test_an_epoch_that_is_being_taken_when_it_stops_is_opened_and_then_left(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or the row would name an owner that has never heard of the request."""
    taking, stopping = asyncio.Event(), asyncio.Event()
    take = SqliteStore.take

    async def slowly(self: SqliteStore, *given: Any) -> Any:
        row = await take(self, *given)
        taking.set()
        await stopping.wait()
        return row

    for _ in range(2):
        await mesh.orchestrator(up_to(9, mesh.cut))
    first, second = await mesh.gateway(), await mesh.gateway()
    monkeypatch.setattr(SqliteStore, "take", slowly)
    detachable = await begin(first)
    await text_until(detachable, 9)
    await taking.wait()
    for fake in mesh.fakes:
        fake.script = up_to(9)
    closing = asyncio.create_task(first.detachables.close())
    assert await ends_with(detachable) == "draining"
    stopping.set()
    await closing
    async with asyncio.timeout(5):
        while len(mesh.asked) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    asked = mesh.asked[1]
    await asyncio.wait_for(asked.detached.wait(), 5)
    assert (asked.epoch, [lane.next for lane in asked.journal.lanes]) == (2, [9])
    assert words(9) + (await all_of(await go_on(second)))[0] == words(TOKENS)
    at = next(fake for fake in mesh.fakes if asked in fake.requests)
    assert [one.epoch for one in at.requests if one.epoch > 1] == [2, 3]


@pytest.mark.parametrize(
    "error",
    [
        MeshError(error_for("internal_error", "The request store failed: disk full.")),
        KeyError("a mistake of the store"),
    ],
)
async def test_what_a_store_fails_of_is_left_to_another_gateway(
    mesh: Mesh, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its owner is told to wait for that one, though the link lives; others go on here."""
    tries = 0

    async def failing(self: SqliteStore, *given: Any) -> bool:
        nonlocal tries
        tries += 1
        raise error

    fake = await mesh.orchestrator(up_to(9))
    first, second = await mesh.gateway(), await mesh.gateway()
    monkeypatch.setattr(SqliteStore, "commit", failing)
    detachable = await begin(first)
    assert await ends_with(detachable) == "internal_error"
    monkeypatch.undo()
    assert tries == 1
    row = await first.store.read(ID)
    assert row is not None
    assert (row.terminal, row.lanes) == (None, ())
    await asyncio.wait_for(mesh.asked[0].detached.wait(), 5)
    assert not mesh.asked[0].aborted.is_set()
    assert fake.fences == []
    assert first.orchestrators.open_requests == 0
    assert (await all_of(await go_on(second)))[0] == words(TOKENS)
    fake.script = count_on
    again = await begin(first, request_id="req_2")
    assert (await all_of(again))[0] == words(TOKENS)


@pytest.mark.parametrize("what", ["commit", "take", "finish"])
async def test_a_store_that_others_hold_for_a_while_is_borne(
    mesh: Mesh, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = [BUSY] * 2
    write = getattr(SqliteStore, what)

    async def busy(self: SqliteStore, *given: Any, **more: Any) -> Any:
        if failures:
            raise failures.pop()
        return await write(self, *given, **more)

    monkeypatch.setattr(SqliteStore, what, busy)
    for _ in range(2):
        await mesh.orchestrator(up_to(9, mesh.cut))
    gateway = await mesh.gateway()
    text, terminal = await all_of(await begin(gateway))
    assert (text, terminal.outcome, failures) == (words(TOKENS), Outcome.COMPLETED, [])
    assert texts_of(await gateway.store.contents(ID)) == words(TOKENS)
