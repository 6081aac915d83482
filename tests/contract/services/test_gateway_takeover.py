"""Requests that go on at another gateway, and what becomes of the one that had them."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from services.gateway.client import ClientPolicy, Ended
from services.gateway.core.detached import LanePosition
from services.gateway.store import SqliteStore, StoreBusy
from stagemesh.errors import MeshError
from stagemesh.link.core import Journal, LaneJournal
from stagemesh.media import Modality, lane_of
from stagemesh.outcome import End, FinishReason, Outcome, Terminal, error_for
from tests.helpers.counted_requests import TEXT, TOKENS, count_on, words
from tests.helpers.detaching_gateway import all_of, texts_of
from tests.helpers.detaching_mesh import (
    ASK,
    ID,
    Mesh,
    begin,
    detaching_mesh,
    go_on,
    read_lines,
    take_over,
    text_until,
    up_to,
)
from tests.helpers.fake_orchestrator import FakeRequest

STOP = End(finish_reason=FinishReason.STOP)


async def nothing(asked: FakeRequest) -> None:
    """Answer nothing."""


@pytest.fixture
async def mesh(tmp_path: Path) -> AsyncIterator[Mesh]:
    async with detaching_mesh(tmp_path) as mesh:
        yield mesh


@pytest.mark.parametrize("killed", [True, False])
async def test_another_gateway_goes_on_where_the_last_one_had_committed(
    mesh: Mesh, killed: bool
) -> None:
    """Whether that one was killed or stopped: it ended nothing."""
    await mesh.orchestrator(up_to(9))
    first, second = await mesh.gateway(), await mesh.gateway()
    detachable = await begin(first, deadline_s=50.0)
    assert await text_until(detachable, 9) == words(9)
    await (first.kill() if killed else first.stop())
    (before,) = mesh.asked
    assert not before.aborted.is_set()
    taken = await go_on(second)
    assert texts_of(taken.contents) == words(9)
    text, terminal = await all_of(taken)
    assert (words(9) + text, terminal.outcome) == (words(TOKENS), Outcome.COMPLETED)
    _, asked = mesh.asked
    assert (asked.epoch, asked.owner_since, asked.detach_s) == (2, 1, 30.0)
    assert 40 < asked.deadline_left_s < 50
    assert asked.request == ASK
    assert asked.journal == Journal(
        lanes=[LaneJournal(lane=TEXT, next=9, visible_pos=9)], revision="r1"
    )
    assert texts_of(await second.store.contents(ID)) == words(TOKENS)


async def test_a_conversation_is_taken_over_without_its_input(mesh: Mesh) -> None:
    await mesh.orchestrator(up_to(3))
    first, second = await mesh.gateway(), await mesh.gateway()
    detachable = await begin(first, streamed=True)
    assert detachable.input is not None
    detachable.input.append("hello")
    detachable.input.close()
    await text_until(detachable, 3)
    await first.kill()
    taken = await go_on(second)
    assert taken.input is None
    assert words(3) + (await all_of(taken))[0] == words(TOKENS)
    assert [asked.streamed for asked in mesh.asked] == [True, True]


async def test_who_took_it_over_goes_on_by_positions_at_its_own_re_drives_too(mesh: Mesh) -> None:
    """And at the owner that it has, if that one is there again, since only that one knows more."""

    async def play(asked: FakeRequest) -> None:
        end = {1: 3, 2: 6}.get(asked.epoch, TOKENS)
        while (at := asked.next()) < end:
            asked.text(f" w{at}", ids=[at])
        await asked.settled()
        if asked.epoch == 2:
            asked.cut()
        elif asked.epoch == 3:
            asked.end()
            await asked.settled()
            asked.complete()

    fake = await mesh.orchestrator(play)
    first, second = await mesh.gateway(), await mesh.gateway()
    await text_until(await begin(first), 3)
    await first.kill()
    taken = await go_on(second)
    assert words(3) + (await all_of(taken))[0] == words(TOKENS)
    last = fake.requests[-1]
    assert (last.epoch, last.owner_since) == (3, 1)
    assert last.journal == Journal(
        lanes=[LaneJournal(lane=TEXT, next=6, visible_pos=6)], revision="r1"
    )


async def test_it_is_opened_at_the_owner_of_the_row_whatever_else_is_there(mesh: Mesh) -> None:
    busy = await mesh.orchestrator(up_to(5))
    busy.models.append("rare")
    first = await mesh.gateway()
    await text_until(await begin(first), 5)
    await first.kill()
    idle = await mesh.orchestrator(count_on)
    second = await mesh.gateway()
    rare = msgspec.structs.replace(ASK, model="rare")
    for at in range(3):
        await second.orchestrators.open(rare, request_id=f"other_{at}")
    await all_of(await go_on(second))
    assert [asked.epoch for asked in busy.requests if asked.request_id == ID] == [1, 2]
    assert idle.requests == []


async def test_without_that_owner_another_one_has_it_and_knows_since_when(mesh: Mesh) -> None:
    owner = await mesh.orchestrator(up_to(5))
    first = await mesh.gateway()
    await text_until(await begin(first), 5)
    await first.kill()
    await owner.stop()
    other = await mesh.orchestrator(count_on)
    second = await mesh.gateway(links=1)
    await all_of(await go_on(second))
    (asked,) = other.requests
    assert (asked.epoch, asked.owner_since) == (2, 2)


async def test_a_lane_that_ended_is_told_with_its_end(mesh: Mesh) -> None:
    async def play(asked: FakeRequest) -> None:
        if asked.epoch == 1:
            asked.text(" w0")
            asked.end()
        else:
            asked.complete()

    await mesh.orchestrator(play)
    first, second = await mesh.gateway(), await mesh.gateway()
    detachable = await begin(first)
    async with asyncio.timeout(5):
        while (row := await first.store.read(ID)) and row.lanes != (LanePosition(TEXT, 1, STOP),):
            await detachable.take()
    await first.kill()
    text, terminal = await all_of(await go_on(second))
    assert (text, terminal.outcome) == ("", Outcome.COMPLETED)
    (lane,) = mesh.asked[1].journal.lanes
    assert (lane.next, lane.end) == (1, STOP)


async def test_another_tenants_is_as_good_as_unknown(mesh: Mesh) -> None:
    await mesh.orchestrator(up_to(9))
    first, second = await mesh.gateway(), await mesh.gateway()
    detachable = await begin(first)
    await text_until(detachable, 9)
    before = await first.store.read(ID)
    with pytest.raises(MeshError) as caught:
        await take_over(second, tenant="somebody else")
    assert caught.value.info.reason == "request_not_found"
    assert await first.store.read(ID) == before


async def test_what_is_over_is_told_from_the_store(mesh: Mesh) -> None:
    await mesh.orchestrator(count_on)
    first, second = await mesh.gateway(), await mesh.gateway()
    _, terminal = await all_of(await begin(first))
    ended = await take_over(second)
    assert isinstance(ended, Ended)
    assert (texts_of(ended.contents), ended.terminal) == (words(TOKENS), terminal)
    assert len(mesh.asked) == 1


async def test_it_goes_on_from_the_positions_at_the_moment_it_was_taken(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its holder may commit more between the reading of the row and the taking of the epoch."""
    more, committed = asyncio.Event(), asyncio.Event()
    take = SqliteStore.take

    async def late(self: SqliteStore, *given: Any) -> Any:
        more.set()
        await committed.wait()
        return await take(self, *given)

    async def play(asked: FakeRequest) -> None:
        if asked.epoch == 1:
            asked.text(" w0")
            await more.wait()
            asked.text(" w1")
        else:
            await count_on(asked)

    monkeypatch.setattr(SqliteStore, "take", late)
    await mesh.orchestrator(play)
    first, second = await mesh.gateway(), await mesh.gateway()
    detachable = await begin(first)
    await text_until(detachable, 1)
    taking = asyncio.create_task(go_on(second))
    assert [row.text for row in (await detachable.take()).rows] == [" w1"]
    committed.set()
    taken = await taking
    assert texts_of(taken.contents) + (await all_of(taken))[0] == words(TOKENS)


async def test_with_nobody_to_go_on_a_takeover_changes_nothing(mesh: Mesh) -> None:
    owner = await mesh.orchestrator(up_to(9))
    first = await mesh.gateway()
    await text_until(await begin(first), 9)
    await first.kill()
    second = await mesh.gateway()
    await owner.stop()
    async with asyncio.timeout(5):
        while second.orchestrators.links:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    before = await second.store.read(ID)
    with pytest.raises(MeshError) as caught:
        await go_on(second)
    assert caught.value.info.reason == "no_orchestrator"
    assert await second.store.read(ID) == before


async def test_only_what_is_not_begun_goes_to_another_revision(mesh: Mesh) -> None:
    owner = await mesh.orchestrator(up_to(0))
    first = await mesh.gateway()
    detachable = await begin(first)
    await owner.until(lambda: bool(owner.requests))
    await first.kill()
    await owner.stop()
    other = await mesh.orchestrator(up_to(0))
    other.revision = "r2"
    second = await mesh.gateway(links=1)
    assert detachable.epoch == 1
    await go_on(second)
    row = await second.store.read(ID)
    assert row is not None
    assert (row.epoch, row.revision) == (2, "r2")
    assert await second.store.commit(ID, 2, (LanePosition(TEXT, 1),), b"[]")
    await second.kill()
    other.revision = "r3"
    await other.stop()
    third = await mesh.orchestrator(up_to(0))
    third.revision = "r3"
    with pytest.raises(MeshError, match="orchestrator"):
        await go_on(await mesh.gateway(links=1))


async def test_an_orchestrator_that_cannot_go_on_says_so_and_that_is_the_end(mesh: Mesh) -> None:
    async def play(asked: FakeRequest) -> None:
        if asked.epoch == 1:
            asked.text(" w0")
        else:
            asked.fail(error_for("replica_lost"))

    await mesh.orchestrator(play)
    first, second = await mesh.gateway(), await mesh.gateway()
    await text_until(await begin(first), 1)
    await first.kill()
    _, terminal = await all_of(await go_on(second))
    assert terminal.outcome is Outcome.FAILED


async def test_its_deadline_runs_on_over_gateways(mesh: Mesh) -> None:
    policy = ClientPolicy(deadline_slack_s=0.0)
    await mesh.orchestrator(up_to(1))
    first, second = await mesh.gateway(), await mesh.gateway(policy=policy)
    await text_until(await begin(first, deadline_s=1.0), 1)
    await first.kill()
    mesh.fakes[0].script = nothing
    _, terminal = await all_of(await go_on(second))
    assert terminal.outcome is Outcome.DEADLINE_EXCEEDED


@pytest.mark.parametrize("linked", [True, False])
async def test_one_whose_time_is_up_is_ended_without_being_given_to_anybody(
    mesh: Mesh, linked: bool
) -> None:
    fake = await mesh.orchestrator(up_to(3))
    first, second = await mesh.gateway(), await mesh.gateway()
    await text_until(await begin(first, deadline_s=0.3), 3)
    before = await first.store.read(ID)
    await first.kill()
    if not linked:
        await fake.stop()
    await asyncio.sleep(0.35)
    ended = await take_over(second)
    assert isinstance(ended, Ended)
    assert (texts_of(ended.contents), ended.terminal.outcome) == (
        words(3),
        Outcome.DEADLINE_EXCEEDED,
    )
    assert before is not None
    assert await second.store.read(ID) == msgspec.structs.replace(before, terminal=ended.terminal)
    assert len(mesh.asked) == 1


@pytest.mark.parametrize(("what", "deadline_s"), [("take", 50.0), ("finish", 0.3)])
async def test_a_store_that_others_hold_for_a_while_is_borne(
    mesh: Mesh, what: str, deadline_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    await mesh.orchestrator(up_to(3))
    first, second = await mesh.gateway(), await mesh.gateway()
    await text_until(await begin(first, deadline_s=deadline_s), 3)
    await first.kill()
    await asyncio.sleep(0.35)
    failures = [StoreBusy(error_for("internal_error"))] * 2
    write = getattr(second.store, what)

    async def busy(*given: Any, **more: Any) -> Any:
        if failures:
            raise failures.pop()
        return await write(*given, **more)

    monkeypatch.setattr(second.store, what, busy)
    taken = await take_over(second)
    assert (isinstance(taken, Ended), failures) == (what == "finish", [])


async def test_an_end_that_its_holder_has_just_written_stands(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though its time is up: of two ends the first counts."""
    await mesh.orchestrator(up_to(3))
    first, second = await mesh.gateway(), await mesh.gateway()
    await text_until(await begin(first, deadline_s=0.3), 3)
    await first.kill()
    await asyncio.sleep(0.35)
    finish, failed = SqliteStore.finish, Terminal(outcome=Outcome.FAILED)

    async def late(self: SqliteStore, *given: Any, **more: Any) -> bool:
        await finish(first.store, ID, 1, failed, ended_at_s=1.0)
        return await finish(self, *given, **more)

    monkeypatch.setattr(SqliteStore, "finish", late)
    ended = await take_over(second)
    assert isinstance(ended, Ended)
    assert ended.terminal == failed


async def test_hidden_rows_are_no_business_of_who_took_it_over(mesh: Mesh) -> None:
    async def play(asked: FakeRequest) -> None:
        asked.hidden(" cause")
        asked.text(f" w{asked.next()}")
        await asked.aborted.wait()

    await mesh.orchestrator(play)
    first, second = await mesh.gateway(), await mesh.gateway()
    await text_until(await begin(first), 1)
    await first.kill()
    _, terminal = await all_of(await go_on(second))
    assert terminal.error is not None
    assert terminal.error.reason == "protocol_error"
    assert lane_of(7, 0, Modality.TEXT) not in [lane.lane for lane in mesh.asked[1].journal.lanes]


async def test_a_process_that_is_killed_is_gone_on_for_by_another(mesh: Mesh) -> None:
    """With nothing but the file between them; `detached_program` is such a process."""
    fake = await mesh.orchestrator(up_to(9))
    before = await mesh.program("open", "--model", "echo", "--text", "Hi")
    first = await read_lines(before, until=9)
    before.kill()
    await before.wait()
    program = await mesh.program("take")
    second = await read_lines(program)
    assert await asyncio.wait_for(program.wait(), 10) == 0
    head, *rows, last = second
    assert (head["epoch"], head["contents"]) == (2, first[1:])
    after = "".join(row["text"] for line in head["contents"] + rows for row in line["rows"])
    assert (after, last) == (words(TOKENS), {"terminal": "COMPLETED"})
    assert [(asked.epoch, asked.owner_since) for asked in fake.requests] == [(1, 0), (2, 1)]
    again = await read_lines(await mesh.program("take"))
    assert (again[0]["contents"], again[1:]) == (head["contents"] + rows, [last])
