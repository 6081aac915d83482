"""A gateway whose request another one has taken: it writes nothing more, and ends nothing."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from services.gateway.client import Detachable
from services.gateway.core.detached import OwnerName
from services.gateway.store import SqliteStore
from stagemesh.errors import MeshError
from stagemesh.media import Request
from stagemesh.outcome import End, FinishReason, Outcome, Terminal, error_for
from tests.helpers.counted_requests import TOKENS, count_on, words
from tests.helpers.detaching_gateway import all_of, texts_of
from tests.helpers.detaching_mesh import (
    ID,
    Mesh,
    begin,
    detaching_mesh,
    ends_with,
    go_on,
    received,
    text_until,
    until_closed,
    up_to,
)
from tests.helpers.fake_orchestrator import FakeRequest
from tests.helpers.gateway_client import NoMedia

STOP = End(finish_reason=FinishReason.STOP)


class CountedMedia(NoMedia):
    """Counts how often a request was put and not released."""

    def __init__(self) -> None:
        self.put_for: Counter[str] = Counter()

    async def put(self, request: Request, request_id: str) -> Request:
        """See `Media`."""
        self.put_for[request_id] += 1
        return request

    def release(self, request_id: str) -> None:
        """See `Media`."""
        self.put_for[request_id] -= 1

    async def until_put(self, request_id: str, count: int) -> None:
        """Wait until a request is put so often."""
        async with asyncio.timeout(5):
            while self.put_for[request_id] < count:  # noqa: ASYNC110
                await asyncio.sleep(0.01)


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
    assert mesh.asked[0].detached.is_set()
    assert not mesh.asked[0].aborted.is_set()


async def test_what_another_gateway_has_taken_is_not_aborted_here(mesh: Mesh) -> None:
    fake = await mesh.orchestrator(up_to(3))
    gateway = await mesh.gateway()
    detachable = await begin(gateway)
    await text_until(detachable, 3)
    owner = OwnerName(fake.id, fake.incarnation)
    row = await gateway.store.take(ID, 1, owner, "r1")
    detachable.abort("the client is gone")
    assert await ends_with(detachable) == "taken_over"
    # By the time it hears that, it has heard whatever was said before.
    await asyncio.wait_for(mesh.asked[0].detached.wait(), 5)
    assert not mesh.asked[0].aborted.is_set()
    assert await gateway.store.read(ID) == row


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
    # What those before it committed is in the store.
    assert texts_of(last.contents) + (await all_of(last))[0] == words(TOKENS)
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


@pytest.mark.parametrize("what", ["put", "second look", "take"])
async def test_a_takeover_from_itself_that_fails_changes_nothing(
    mesh: Mesh, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = asyncio.Event()

    async def then(asked: FakeRequest) -> None:
        await go.wait()
        await count_on(asked)

    fake = await mesh.orchestrator(up_to(9, then))
    media = CountedMedia()
    gateway = await mesh.gateway(media=media)
    detachable = await begin(gateway)
    await text_until(detachable, 9)
    before = await gateway.store.read(ID)
    full = MeshError(error_for("queue_full"))
    looks = 0

    async def failing(*given: Any) -> Any:
        raise full

    def look(*given: Any) -> Any:
        nonlocal looks
        looks += 1
        if looks == 2:
            raise full
        return peer_for(*given)

    peer_for = gateway.orchestrators.peer_for
    if what == "put":
        monkeypatch.setattr(media, "put", failing)
    elif what == "take":
        monkeypatch.setattr(gateway.store, "take", failing)
    else:
        monkeypatch.setattr(gateway.orchestrators, "peer_for", look)
    with pytest.raises(MeshError) as caught:
        await go_on(gateway)
    assert caught.value is full
    assert await gateway.store.read(ID) == before
    assert media.put_for[ID] == 1
    go.set()
    assert words(9) + (await all_of(detachable))[0] == words(TOKENS)
    assert (len(mesh.asked), fake.fences) == (1, [])
    await until_closed(gateway)
    assert media.put_for[ID] == 0


@pytest.mark.parametrize("written", [True, False])
async def test_a_takeover_from_itself_while_it_takes_its_own_next_epoch_waits_for_that(
    mesh: Mesh, written: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or an epoch was taken for an owner that nobody gives the request to."""
    taking, asked_again = asyncio.Event(), asyncio.Event()
    take = SqliteStore.take

    async def slowly(self: SqliteStore, *given: Any) -> Any:
        row = await take(self, *given) if written else None
        taking.set()
        await asked_again.wait()
        return row or await take(self, *given)

    for _ in range(2):
        await mesh.orchestrator(up_to(9, mesh.cut))
    media = CountedMedia()
    gateway = await mesh.gateway(media=media)
    monkeypatch.setattr(SqliteStore, "take", slowly)
    detachable = await begin(gateway)
    await text_until(detachable, 9)
    await taking.wait()
    going_on = asyncio.create_task(go_on(gateway))
    await media.until_put(ID, 2)
    asked_again.set()
    taken = await going_on
    assert await ends_with(detachable) == "taken_over"
    assert texts_of(taken.contents) + (await all_of(taken))[0] == words(TOKENS)
    _, second, third = mesh.asked
    assert [lane.next for lane in second.journal.lanes] == [9]
    assert (second.epoch, third.epoch, third.owner_since) == (2, 3, 2)
    await until_closed(gateway)
    assert media.put_for[ID] == 0


async def test_what_an_owner_sent_is_committed_first_though_a_takeover_was_in_the_way(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that came while that had the lock come before the epoch that is wanted after them."""
    asked_for, more, failed = asyncio.Event(), asyncio.Event(), asyncio.Event()
    full = MeshError(error_for("queue_full"))

    async def failing(*given: Any) -> Any:
        asked_for.set()
        await failed.wait()
        raise full

    async def more_and_cut(asked: FakeRequest) -> None:
        await more.wait()
        for at in range(9, 11):
            asked.text(f" w{at}", ids=[at])
            await received(detachable, at + 1)
        mesh.cut(asked)

    for _ in range(2):
        await mesh.orchestrator(up_to(9, more_and_cut))
    gateway = await mesh.gateway()
    detachable = await begin(gateway)
    await text_until(detachable, 9)
    monkeypatch.setattr(gateway.store, "take", failing)
    going_on = asyncio.create_task(go_on(gateway))
    await asked_for.wait()
    monkeypatch.undo()
    at_take = []
    take = gateway.store.take

    async def noted(*given: Any) -> Any:
        row = await gateway.store.read(ID)
        assert row is not None
        at_take.append([lane.next for lane in row.lanes])
        return await take(*given)

    monkeypatch.setattr(gateway.store, "take", noted)
    claimed = asyncio.Event()
    claim = detachable.claim

    def claim_and_tell(*given: Any) -> None:
        claim(*given)
        claimed.set()

    monkeypatch.setattr(detachable, "claim", claim_and_tell)
    more.set()
    await asyncio.wait_for(claimed.wait(), 5)
    failed.set()
    with pytest.raises(MeshError):
        await going_on
    assert words(9) + (await all_of(detachable))[0] == words(TOKENS)
    assert at_take == [[11]]
    assert [lane.next for lane in mesh.asked[1].journal.lanes] == [11]


async def test_two_calls_that_take_it_over_at_one_gateway_are_told_apart(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first has the epoch, and nobody knows of it yet, when the second comes."""
    taken, both = asyncio.Event(), asyncio.Event()
    contents = SqliteStore.contents

    async def slowly(self: SqliteStore, request_id: str) -> list[bytes]:
        taken.set()
        await both.wait()
        return await contents(self, request_id)

    async def silent(asked: FakeRequest) -> None:
        await asked.aborted.wait()
        asked.terminal(Terminal(outcome=Outcome.CANCELLED))

    await mesh.orchestrator(silent)
    media = CountedMedia()
    gateway = await mesh.gateway(media=media)
    await begin(gateway)
    monkeypatch.setattr(SqliteStore, "contents", slowly)
    async with asyncio.TaskGroup() as tasks:
        first = tasks.create_task(go_on(gateway))
        await taken.wait()
        second = tasks.create_task(go_on(gateway))
        await media.until_put(ID, 3)
        both.set()
    assert (first.result().epoch, second.result().epoch) == (2, 3)
    assert await ends_with(first.result()) == "taken_over"
    assert gateway.orchestrators.open_requests == 1
    second.result().abort("enough")
    assert (await all_of(second.result()))[1].outcome is Outcome.CANCELLED
    await until_closed(gateway)
