"""What becomes of a request whose orchestrator is lost: its client does not notice."""

import asyncio
import hashlib
import random
from typing import Any

import pytest

from stagemesh.api.types.v1 import link_pb2
from stagemesh.link.core import JOURNAL_PART_BYTES_MAX, Placed, Row
from stagemesh.media import Modality, lane_of
from stagemesh.outcome import COMPLETED
from stagemesh.wire import terminal_to_proto
from tests.helpers.counted_requests import (
    HELLO,
    HIDDEN,
    TEXT,
    TOKENS,
    WHOLE,
    check_text_journal,
    count_on,
    opened_at,
    stream_chat,
    until_then,
    words,
)
from tests.helpers.fake_orchestrator import FakeOrchestrator, FakeRequest
from tests.helpers.running_gateway import running_gateway

AUDIO = lane_of(1, 0, Modality.AUDIO)
SAMPLES = 200


def tone(at: int) -> bytes:
    """The samples of one row of speech."""
    return at.to_bytes(2, "little") * 2


@pytest.mark.parametrize("seed", range(8))
async def test_a_stream_goes_on_at_another_orchestrator_where_the_client_s_copy_ends(
    seed: int,
) -> None:
    draw = random.Random(seed)
    fakes = [FakeOrchestrator(), FakeOrchestrator()]
    after = draw.randrange(TOKENS)

    def lose(asked: FakeRequest) -> Any:
        owner = next(fake for fake in fakes if asked in fake.requests)
        return asyncio.create_task(owner.stop()) if seed % 2 else asked.cut()

    for fake in fakes:
        fake.script = until_then(after, lose)
    async with running_gateway(*fakes) as mesh:
        assert await stream_chat(mesh) == WHOLE
        first, second = opened_at(*fakes)
    assert (first.epoch, second.epoch, first.request_id) == (1, 2, second.request_id)
    assert first.request == second.request
    # What was on its way when the link ended is lost with it.
    assert check_text_journal(second) <= after


async def test_fifty_streams_go_on_when_one_of_two_orchestrators_dies() -> None:
    fakes = [FakeOrchestrator(), FakeOrchestrator()]
    under_way = asyncio.Event()

    async def slowly(asked: FakeRequest) -> None:
        while (at := asked.next()) < TOKENS:
            asked.text(f" w{at}", ids=[at])
            if at == TOKENS // 2:
                under_way.set()
            await asyncio.sleep(0.002)
        asked.end()
        await asked.settled()
        asked.complete()

    fakes[0].script = fakes[1].script = slowly
    async with running_gateway(*fakes) as mesh, asyncio.TaskGroup() as group:
        asking = [group.create_task(stream_chat(mesh)) for _ in range(50)]
        await under_way.wait()
        before = len(fakes[0].requests)
        await fakes[0].stop()
        results = [await task for task in asking]
        lost = [asked for asked in fakes[1].requests if asked.epoch == 2]
        metrics = (await mesh.http.get("/metrics")).text
    assert results == [WHOLE] * 50
    assert len(lost) == before == 25
    assert all(check_text_journal(asked) for asked in lost)
    assert 'stagemesh_gateway_lost_owners_total{kind="link_lost"} 25.0' in metrics


@pytest.mark.parametrize("whole", [False, True])
async def test_speech_goes_on_to_the_sample_with_what_it_is_made_of(whole: bool) -> None:
    fakes = [FakeOrchestrator(), FakeOrchestrator()]

    async def speak(asked: FakeRequest) -> None:
        lanes = {lane.lane: lane for lane in asked.journal.lanes}
        hidden = lanes[HIDDEN].next if lanes else 0
        for at in range(asked.next(Modality.AUDIO) // 2, SAMPLES):
            if at >= hidden:
                asked.hidden(f" h{at}")  # The cause before its effect.
            asked.audio(tone(at))
            await asyncio.sleep(0)
            if asked.epoch == 1 and at == SAMPLES // 2:
                asked.cut()
                return
        asked.end(Modality.AUDIO)
        await asked.settled()
        asked.complete()

    fakes[0].script = fakes[1].script = speak
    body = {"model": "echo", "input": "Hi", "response_format": "pcm"}
    if not whole:
        body["stream_format"] = "audio"
    async with running_gateway(*fakes) as mesh:
        answer = await mesh.http.post("/v1/audio/speech", json=body)
        _, second = opened_at(*fakes)
    assert answer.content == b"".join(map(tone, range(SAMPLES)))
    lanes = {lane.lane: lane for lane in second.journal.lanes}
    audio, hidden = lanes[AUDIO], lanes[HIDDEN]
    given = b"".join(map(tone, range(audio.next // 2)))
    assert (audio.rows, audio.visible_pos) == ([], audio.next)
    assert audio.digest == hashlib.blake2b(given, digest_size=16).digest()
    assert hidden.visible_pos == 0
    assert audio.next // 2 <= hidden.next, "no effect without its cause"
    assert "".join(r.text for r in hidden.rows) == "".join(f" h{n}" for n in range(hidden.next))
    assert all(not row.visible for row in hidden.rows)


async def test_an_answer_that_is_collected_is_whole() -> None:
    fakes = [FakeOrchestrator(), FakeOrchestrator()]
    fakes[0].script = fakes[1].script = until_then(40, FakeRequest.cut)
    async with running_gateway(*fakes) as mesh:
        reply = await mesh.openai.chat.completions.create(model="echo", messages=HELLO)
    assert reply.choices[0].message.content == words(TOKENS)
    assert reply.usage is not None
    assert reply.usage.completion_tokens == TOKENS


async def test_the_only_orchestrator_has_its_request_again_once_it_is_back() -> None:
    fake = FakeOrchestrator(script=until_then(40, FakeRequest.cut))
    async with running_gateway(fake) as mesh:
        assert await stream_chat(mesh) == WHOLE
    assert [asked.epoch for asked in fake.requests] == [1, 2]


@pytest.mark.invariant("ENTRY-INV-200")
async def test_what_an_earlier_owner_still_sends_is_dropped_and_fenced() -> None:
    fakes = [FakeOrchestrator(), FakeOrchestrator()]
    silent = asyncio.Event()

    async def go_on(asked: FakeRequest) -> None:
        await silent.wait()
        await count_on(asked)

    def cut(asked: FakeRequest) -> None:
        next(fake for fake in fakes if asked in fake.requests).models.clear()  # For its next Hello.
        asked.cut()

    for fake in fakes:
        fake.script = until_then(10, cut, go_on)
    async with running_gateway(*fakes) as mesh, asyncio.TaskGroup() as group:
        asking = group.create_task(stream_chat(mesh))
        for fake in fakes:
            await fake.until(lambda: len(opened_at(*fakes)) == 2)
        first, second = opened_at(*fakes)
        old = next(fake for fake in fakes if first in fake.requests)
        assert second not in old.requests
        await old.until(lambda: bool(old.links))
        link = next(iter(old.links.values()))
        # As if it had not noticed: the same slot, on its new link.
        link.send_rows([Row(first.slot, TEXT, at, 1, " stale") for at in range(10, 20)])
        link.send_frame(link_pb2.Frame(terminal=terminal_to_proto(first.slot, COMPLETED)))
        await old.until(lambda: bool(old.fences))
        silent.set()
        assert await asking == WHOLE
    assert old.fences == [first.slot]


async def test_a_terminal_that_was_lost_is_asked_for_again() -> None:
    def end(asked: FakeRequest) -> None:
        asked.end()
        asked.cut()

    async def complete(asked: FakeRequest) -> None:
        (lane,) = asked.journal.lanes
        assert lane.end is not None
        asked.complete()

    fakes = [FakeOrchestrator(), FakeOrchestrator()]
    fakes[0].script = fakes[1].script = until_then(TOKENS, end, complete)
    async with running_gateway(*fakes) as mesh:
        assert await stream_chat(mesh) == WHOLE


async def test_a_large_journal_goes_in_parts() -> None:
    word = "x" * 5_000

    async def play(asked: FakeRequest) -> None:
        while (at := asked.next()) < TOKENS:
            asked.text(f" {at}{word}", ids=[at])
            await asyncio.sleep(0)
            if asked.epoch == 1 and at == TOKENS - 2:
                await asked.settled()
                asked.cut()
                return
        asked.end()
        await asked.settled()
        asked.complete()

    fakes = [FakeOrchestrator(script=play), FakeOrchestrator(script=play)]
    async with running_gateway(*fakes) as mesh:
        text, finishes, error = await stream_chat(mesh)
        _, second = opened_at(*fakes)
    assert (finishes, error) == (["stop"], {})
    assert text == "".join(f" {at}{word}" for at in range(TOKENS))
    assert sum(fake.parts for fake in fakes) >= 3
    (lane,) = second.journal.lanes
    kept = "".join(row.text for row in lane.rows)
    assert kept == "".join(f" {at}{word}" for at in range(lane.next))
    assert len(kept) > JOURNAL_PART_BYTES_MAX
    assert lane.ids == list(range(lane.next))


async def test_stages_start_again_while_nothing_of_them_was_delivered() -> None:
    async def play(asked: FakeRequest) -> None:
        asked.hidden(" draft")
        asked.hidden(" two")
        asked.reset(7)
        asked.hidden(" final")
        asked.text(" w0", ids=[0])
        asked.placed(Placed(stage=7, role=0, attempt=2, replica_id="w-1", incarnation=9))
        await asked.settled()
        asked.cut()

    fakes = [FakeOrchestrator(), FakeOrchestrator()]
    fakes[0].script = fakes[1].script = until_then(0, play)
    async with running_gateway(*fakes) as mesh:
        assert await stream_chat(mesh) == WHOLE
        _, second = opened_at(*fakes)
    lanes = {lane.lane: lane for lane in second.journal.lanes}
    assert ([row.text for row in lanes[HIDDEN].rows], lanes[HIDDEN].next) == ([" final"], 1)
    assert second.journal.placed == [
        Placed(stage=7, role=0, attempt=2, replica_id="w-1", incarnation=9)
    ]


async def test_what_the_client_has_cannot_start_again() -> None:
    async def play(asked: FakeRequest) -> None:
        asked.text(" w0")
        await asked.settled()
        asked.reset(0)
        await asked.aborted.wait()

    async with running_gateway(FakeOrchestrator(script=play)) as mesh:
        _, _, error = await stream_chat(mesh)
    assert error["code"] == "internal_error"


@pytest.mark.parametrize("asked_for", [True, False])
async def test_each_owner_has_the_time_that_is_left(asked_for: bool) -> None:
    """Of what the client set, or else of what its pipeline allows."""
    fakes = [FakeOrchestrator(), FakeOrchestrator()]
    for fake in fakes:
        fake.deadline_s = 60.0 if asked_for else 5.0

    async def linger(asked: FakeRequest) -> None:
        await asyncio.sleep(0.2)
        asked.cut()

    fakes[0].script = fakes[1].script = until_then(1, linger)
    async with running_gateway(*fakes) as mesh:
        await mesh.http.post(
            "/v1/chat/completions",
            json={"model": "echo", "messages": HELLO},
            headers={"x-request-timeout": "5"} if asked_for else {},
        )
    first, second = opened_at(*fakes)
    assert first.deadline_left_s == pytest.approx(5, abs=1e-3)
    assert 4.0 < second.deadline_left_s < 4.8


async def test_credit_begins_anew_with_each_owner() -> None:
    """An owner that is lost with its window half used takes nothing from the next one."""
    fakes = [FakeOrchestrator(), FakeOrchestrator()]
    fakes[0].script = fakes[1].script = until_then(13, FakeRequest.cut)
    async with running_gateway(*fakes, window_units=4, window_bytes=64) as mesh:
        assert await stream_chat(mesh) == WHOLE
