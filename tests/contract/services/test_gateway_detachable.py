"""Requests that may outlive their gateway: what is committed, given, confirmed, and ended."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from services.gateway.client import ClientPolicy, Ended
from services.gateway.core.detached import LanePosition, OwnerName
from services.gateway.store import RequestRow, SqliteStore
from stagemesh.errors import MeshError
from stagemesh.link.core import Row
from stagemesh.outcome import End, FinishReason, Outcome, Terminal, error_for
from tests.helpers.counted_requests import QUICK, TEXT, TOKENS, count_on, words
from tests.helpers.detaching_gateway import all_of, keep_texts, texts_of
from tests.helpers.detaching_mesh import (
    ASK,
    ID,
    Mesh,
    begin,
    detaching_mesh,
    go_on,
    received,
    take_over,
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


async def test_everything_is_committed_before_it_is_given_and_confirmed(mesh: Mesh) -> None:
    held = asyncio.Event()

    async def play(asked: FakeRequest) -> None:
        asked.text(" w0")
        await held.wait()
        asked.text(" w1")
        asked.end()
        await asked.confirmed(3)
        asked.complete()

    await mesh.orchestrator(play)
    gateway = await mesh.gateway()
    detachable = await begin(gateway, deadline_s=50.0)
    assert [row.text for row in (await detachable.take()).rows] == [" w0"]
    row = await gateway.store.read(ID)
    assert row is not None
    assert row.lanes == (LanePosition(TEXT, 1),)
    assert (row.epoch, row.owner_since, row.revision, row.detach_s) == (1, 1, "r1", 30.0)
    assert row.owner == OwnerName("orchestrator-0", mesh.fakes[0].incarnation)
    assert row.deadline_at_s == pytest.approx(time.time() + 50, abs=5)
    held.set()
    text, terminal = await all_of(detachable)
    assert (text, terminal.outcome) == (" w1", Outcome.COMPLETED)
    row = await gateway.store.read(ID)
    assert row is not None
    assert (row.lanes, row.terminal) == ((LanePosition(TEXT, 2, STOP),), terminal)
    assert texts_of(await gateway.store.contents(ID)) == words(2)
    (asked,) = mesh.asked
    assert (asked.detach_s, asked.owner_since) == (30.0, 0)


async def test_it_is_stored_before_anybody_is_asked(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = SqliteStore.create

    async def slowly(self: SqliteStore, row: RequestRow, request: bytes) -> bool:
        await asyncio.sleep(0.1)
        assert mesh.asked == []
        return await create(self, row, request)

    monkeypatch.setattr(SqliteStore, "create", slowly)
    await mesh.orchestrator(count_on)
    assert (await all_of(await begin(await mesh.gateway())))[0] == words(TOKENS)


async def test_each_commit_is_confirmed_at_once_and_a_bare_end_too(mesh: Mesh) -> None:
    async def play(asked: FakeRequest) -> None:
        for at in range(3):
            asked.text(f" w{at}", ids=[at])
            await asked.confirmed(at + 1)  # Far below half a window.
        asked.end()
        await asked.confirmed(4)
        asked.complete()

    await mesh.orchestrator(play)
    detachable = await begin(await mesh.gateway())
    assert (await all_of(detachable))[0] == words(3)


async def test_other_requests_are_credited_as_ever(mesh: Mesh) -> None:
    async def play(asked: FakeRequest) -> None:
        asked.text(" w0")
        asked.end()
        asked.complete()

    await mesh.orchestrator(play)
    gateway = await mesh.gateway(windows=(2, 1_000))
    exchange = await gateway.orchestrators.open(ASK, request_id="req_2")
    taken = await exchange.take()
    exchange.settle(taken.rows)
    (asked,) = mesh.asked
    assert (asked.granted_units, asked.detach_s, asked.owner_since) == (0, 0.0, 0)
    assert await gateway.store.read("req_2") is None


async def test_what_a_slow_consumer_does_not_take_is_not_confirmed(mesh: Mesh) -> None:
    await mesh.orchestrator(count_on)
    gateway = await mesh.gateway(windows=(4, 1_000))
    detachable = await begin(gateway)
    async with asyncio.timeout(5):
        while not await gateway.store.contents(ID):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    await asyncio.sleep(0.05)
    (asked,) = mesh.asked
    assert (asked.granted_units, asked.sent_units) == (0, 4)
    assert (await all_of(detachable))[0] == words(TOKENS)


async def test_a_commit_is_for_all_that_waits(mesh: Mesh) -> None:
    async def play(asked: FakeRequest) -> None:
        for at in range(40):
            asked.text(f" w{at}", ids=[at])
        await asked.confirmed(40)
        asked.complete()

    await mesh.orchestrator(play)
    gateway = await mesh.gateway()
    await all_of(await begin(gateway))
    contents = await gateway.store.contents(ID)
    assert texts_of(contents) == words(40)
    assert len(contents) <= 2


async def test_a_gateway_that_loses_its_owner_has_the_next_epoch_from_the_store(
    mesh: Mesh,
) -> None:
    for _ in range(2):
        await mesh.orchestrator(up_to(9, mesh.cut))
    gateway = await mesh.gateway()
    detachable = await begin(gateway)
    assert (await all_of(detachable))[0] == words(TOKENS)
    second = mesh.asked[1]
    assert (second.epoch, second.owner_since) == (2, 0)
    # It had the request all the time, so its journal is whole.
    (lane,) = second.journal.lanes
    assert lane.ids == list(range(9))
    row = await gateway.store.read(ID)
    assert row is not None
    at = next(fake for fake in mesh.fakes if second in fake.requests)
    assert (row.epoch, row.owner) == (2, OwnerName(at.id, at.incarnation))
    assert detachable.epoch == 2


async def test_what_an_owner_sent_is_committed_before_the_next_epoch_is_taken(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So the positions of every Open are those of the store, also where nobody has taken them."""
    at_take: list[tuple[LanePosition, ...]] = []
    committing, claimed = asyncio.Event(), asyncio.Event()
    take, commit = SqliteStore.take, SqliteStore.commit

    async def noted(self: SqliteStore, *given: Any) -> Any:
        row = await self.read(ID)
        assert row is not None
        at_take.append(row.lanes)
        return await take(self, *given)

    async def slowly(self: SqliteStore, *given: Any) -> bool:
        committing.set()
        await claimed.wait()
        return await commit(self, *given)

    monkeypatch.setattr(SqliteStore, "take", noted)
    monkeypatch.setattr(SqliteStore, "commit", slowly)

    async def more_and_cut(asked: FakeRequest) -> None:
        await committing.wait()
        for at in range(3, 6):
            asked.text(f" w{at}", ids=[at])
        await received(detachable, 6)
        mesh.cut(asked)

    for _ in range(2):
        await mesh.orchestrator(up_to(3, more_and_cut))
    gateway = await mesh.gateway()
    detachable = await begin(gateway)
    claim = detachable.claim

    def claim_and_tell(*given: Any) -> None:
        claim(*given)
        claimed.set()

    monkeypatch.setattr(detachable, "claim", claim_and_tell)
    async with asyncio.timeout(5):
        while len(mesh.asked) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert at_take == [(LanePosition(TEXT, 6),)]
    assert [lane.next for lane in mesh.asked[1].journal.lanes] == [6]
    assert (await all_of(detachable))[0] == words(TOKENS)


async def test_an_abort_is_committed_and_nobody_goes_on(mesh: Mesh) -> None:
    async def play(asked: FakeRequest) -> None:
        asked.text(" w0")
        await asked.aborted.wait()
        asked.terminal(Terminal(outcome=Outcome.CANCELLED))

    await mesh.orchestrator(play)
    gateway = await mesh.gateway()
    detachable = await begin(gateway)
    await text_until(detachable, 1)
    detachable.abort("nobody wants it")
    _, terminal = await all_of(detachable)
    assert terminal.outcome is Outcome.CANCELLED
    await until_closed(gateway)
    assert mesh.asked[0].aborted.is_set()
    ended = await take_over(gateway)
    assert isinstance(ended, Ended)
    assert ended.terminal == terminal


async def test_an_end_is_written_though_nobody_takes_it_and_the_gateway_is_stopped(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish = SqliteStore.finish

    async def slowly(self: SqliteStore, *given: Any, **more: Any) -> bool:
        await asyncio.sleep(0.3)
        return await finish(self, *given, **more)

    monkeypatch.setattr(SqliteStore, "finish", slowly)
    await mesh.orchestrator(up_to(1))
    gateway = await mesh.gateway()
    detachable = await begin(gateway)
    await text_until(detachable, 1)
    detachable.abort("nobody wants it")
    await gateway.stop()
    row = await gateway.store.read(ID)
    assert row is not None
    assert row.terminal is not None
    assert row.terminal.outcome is Outcome.CANCELLED


async def test_without_any_orchestrator_it_ends_in_the_store_after_redrive_s(mesh: Mesh) -> None:
    fake = await mesh.orchestrator(up_to(9))
    gateway = await mesh.gateway(policy=QUICK)
    detachable = await begin(gateway)
    await text_until(detachable, 9)
    await fake.stop()
    _, terminal = await all_of(detachable)
    assert terminal.error is not None
    assert (terminal.outcome, terminal.error.reason) == (Outcome.FAILED, "link_lost")
    row = await gateway.store.read(ID)
    assert row is not None
    assert (row.terminal, row.lanes) == (terminal, (LanePosition(TEXT, 9),))


async def test_what_a_consumer_makes_nothing_of_ends_that_request_only(mesh: Mesh) -> None:
    def broken(rows: list[Row]) -> bytes:
        raise KeyError("a bug of the consumer")

    fake = await mesh.orchestrator(up_to(9))
    gateway = await mesh.gateway()
    detachable = await begin(gateway, keep=broken)
    text, terminal = await all_of(detachable)
    assert (text, terminal.outcome) == ("", Outcome.FAILED)
    await asyncio.wait_for(mesh.asked[0].aborted.wait(), 5)
    row = await gateway.store.read(ID)
    assert row is not None
    assert (row.terminal, row.lanes) == (terminal, ())
    fake.script = count_on
    again = await begin(gateway, request_id="req_2")
    assert (await all_of(again))[0] == words(TOKENS)


async def test_what_cannot_be_opened_is_refused_typed(mesh: Mesh) -> None:
    await mesh.orchestrator(count_on)
    gateway = await mesh.gateway(policy=ClientPolicy(open_bytes_max=60))
    with pytest.raises(ValueError, match="detach_s"):
        await begin(gateway, detach_s=0.0)
    with pytest.raises(MeshError, match="No request"):
        await go_on(gateway)
    await all_of(await begin(gateway))
    with pytest.raises(MeshError, match="already"):
        await begin(gateway)
    large = msgspec.structs.replace(ASK, label="x" * 100)
    with pytest.raises(MeshError, match="larger"):
        await gateway.detachables.open(large, request_id="req_2", detach_s=1.0, keep=keep_texts)
    row = await gateway.store.read("req_2")
    assert row is not None
    assert row.terminal is not None
    assert row.terminal.outcome is Outcome.REJECTED
    assert gateway.orchestrators.open_requests == 0


async def test_a_refusal_by_the_first_owner_is_the_end(mesh: Mesh) -> None:
    async def refuse(asked: FakeRequest) -> None:
        asked.fail(error_for("queue_full"), Outcome.REJECTED)

    await mesh.orchestrator(refuse)
    gateway = await mesh.gateway()
    _, terminal = await all_of(await begin(gateway))
    assert terminal.outcome is Outcome.REJECTED
    row = await gateway.store.read(ID)
    assert row is not None
    assert row.terminal == terminal


async def test_what_ended_long_ago_is_forgotten(mesh: Mesh) -> None:
    await mesh.orchestrator(count_on)
    first = await mesh.gateway()
    await all_of(await begin(first))
    assert await first.store.read(ID) is not None
    await first.stop()
    later = await mesh.gateway(policy=ClientPolicy(ended_keep_s=0.0))
    async with asyncio.timeout(5):
        while await later.store.read(ID) is not None:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
