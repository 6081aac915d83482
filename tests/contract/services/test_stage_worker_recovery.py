"""What goes on at a worker after another one was lost: over a real link, from a journal."""

import asyncio
import hashlib
from collections.abc import Sequence
from pathlib import Path

import pytest

from services.stage_worker.engines.base import ResumeContract
from services.stage_worker.engines.support.synthetic_media import samples
from stagemesh.api.types.v1 import link_pb2, outcome_pb2
from stagemesh.ids import new_request_id
from stagemesh.link.core import Row
from stagemesh.media import Modality, lane_of
from stagemesh.outcome import End, FinishReason
from tests.helpers.worker_peer import STAGE, Got, WorkerPeer, attach, running_worker, scripted

SOURCE = lane_of(0, 0, Modality.TEXT)
TEXT = lane_of(STAGE, 0, Modality.TEXT)
AUDIO = lane_of(STAGE, 0, Modality.AUDIO)
END = End(finish_reason=FinishReason.STOP)
UNIT = 480
WORDS = [f" w{i}" for i in range(40)]


def cut_at(rows: Sequence[Row], pos: int, *, ids: bool = False) -> link_pb2.LaneJournal:
    """Journal the rows of a lane that begin before `pos`, as an owner that lost the rest."""
    kept = [row for row in rows if row.pos < pos]
    data = b"".join(row.text.encode() + (row.body.inline if row.body else b"") for row in kept)
    return link_pb2.LaneJournal(
        lane=kept[0].lane,
        pos=kept[-1].pos + kept[-1].units,
        token_ids=[id_ for row in kept for id_ in row.ids or ()] if ids else (),
        digest=b"" if ids else hashlib.blake2b(data, digest_size=16).digest(),
    )


def samples_of(rows: Sequence[Row]) -> bytes:
    return b"".join(row.body.inline for row in rows if row.body)


def feed(peer: WorkerPeer, slot: int, start: int = 0, *, step: int = 1) -> None:
    """Send all words from `start` on, `step` to a row."""
    for pos in range(start, len(WORDS), step):
        words = WORDS[pos : pos + step]
        end = END if pos + step >= len(WORDS) else None
        peer.link.send_rows([Row(slot, SOURCE, pos, len(words), "".join(words), end=end)])


@pytest.mark.contract
@pytest.mark.parametrize("at", [1, 17, 29])
async def test_text_goes_on_after_its_tokens(tmp_path: Path, at: int) -> None:
    said = scripted(tokens=30)
    async with running_worker(tmp_path) as worker, attach(worker.address) as peer:
        whole = peer.submit(said, token_ids=True)
        await peer.until_ended(whole)
        rows = peer.slots[whole].rows
        assert [id_ for row in rows for id_ in row.ids or ()] == list(range(30))
        journal = cut_at(rows, at, ids=True)
        rest = peer.submit(
            said, token_ids=True, contract=ResumeContract.TOKENS, resume=[journal], attempt=2
        )
        await peer.until_ended(rest)
        again = peer.slots[rest].rows
        assert again[0].pos == journal.pos
        before = "".join(row.text for row in rows if row.pos < journal.pos)
        assert before + peer.slots[rest].text == "".join(WORDS[:30])
        assert [id_ for row in again for id_ in row.ids or ()] == list(range(journal.pos, 30))
        assert again[-1].end is not None
        assert again[-1].end.usage.completion_tokens == 30


@pytest.mark.contract
async def test_tokens_that_end_an_answer_end_it_at_once(tmp_path: Path) -> None:
    journal = link_pb2.LaneJournal(lane=TEXT, pos=30, token_ids=range(30))
    async with running_worker(tmp_path) as worker, attach(worker.address) as peer:
        slot = peer.submit(
            scripted(tokens=30),
            token_ids=True,
            contract=ResumeContract.TOKENS,
            resume=[journal],
        )
        await peer.until_ended(slot)
        ((pos, units, text),) = [(row.pos, row.units, row.text) for row in peer.slots[slot].rows]
        assert (pos, units, text) == (30, 0, "")


@pytest.mark.contract
async def test_audio_is_made_again_and_goes_on_at_the_sample(tmp_path: Path) -> None:
    """The input comes in other pieces, and the cursor lies within a piece of the second time."""
    async with running_worker(tmp_path, gives="audio") as worker, attach(worker.address) as peer:
        first = peer.submit("go", modalities=[Modality.AUDIO], sources=[SOURCE])
        feed(peer, first)
        await peer.until_ended(first)
        rows = peer.slots[first].rows
        journal = cut_at(rows, 13 * UNIT - 1)
        second = peer.submit(
            scripted(batch=7),
            modalities=[Modality.AUDIO],
            sources=[SOURCE],
            contract=ResumeContract.REPLAY,
            resume=[journal],
        )
        feed(peer, second, step=5)
        await peer.until_ended(second)
        again = peer.slots[second].rows
        assert again[0].pos == journal.pos == 13 * UNIT
        assert samples_of(again) == samples(7, journal.pos, len(WORDS) * UNIT - journal.pos)
        assert samples_of(rows) == samples(7, 0, len(WORDS) * UNIT)
        assert again[-1].end is not None
        assert again[-1].end.usage.audio_output_samples == len(WORDS) * UNIT


@pytest.mark.contract
async def test_what_is_made_again_and_differs_is_a_loss(tmp_path: Path) -> None:
    journal = link_pb2.LaneJournal(lane=AUDIO, pos=2 * UNIT, digest=bytes(16))
    async with running_worker(tmp_path, gives="audio") as worker, attach(worker.address) as peer:
        slot = peer.submit(
            scripted(tokens=9),
            modalities=[Modality.AUDIO],
            contract=ResumeContract.REPLAY,
            resume=[journal],
        )
        await peer.until_ended(slot)
        terminal = peer.terminal(slot)
        assert terminal.outcome == outcome_pb2.OUTCOME_FAILED
        assert terminal.error.code == outcome_pb2.ERROR_CODE_REPLICA_LOST
        assert terminal.error.reason == "replay_diverged"
        assert terminal.error.retryable
        assert not peer.slots[slot].rows


@pytest.mark.contract
async def test_by_the_input_only_what_is_missing_is_sent_again(tmp_path: Path) -> None:
    async with (
        running_worker(tmp_path, gives="audio", contract="per_input") as worker,
        attach(worker.address) as peer,
    ):
        first = peer.submit("go", modalities=[Modality.AUDIO], sources=[SOURCE])
        feed(peer, first, step=4)
        await peer.until_ended(first)
        rows = peer.slots[first].rows
        assert {row.origin for row in rows} == {(at, at + 4) for at in range(0, len(WORDS), 4)}
        begun = next(row for row in rows if row.origin == (20, 24))
        second = peer.submit(
            "go",
            modalities=[Modality.AUDIO],
            sources=[SOURCE],
            contract=ResumeContract.PER_INPUT,
            resume=[link_pb2.LaneJournal(lane=AUDIO, pos=begun.pos)],
        )
        feed(peer, second, 20, step=4)
        await peer.until_ended(second)
        assert before_and_after(rows, peer.slots[second], begun.pos) == samples_of(rows)
        last = peer.slots[second].rows[-1]
        assert last.end is not None
        assert last.end.usage.audio_output_samples == len(WORDS) * UNIT


def before_and_after(rows: Sequence[Row], got: Got, pos: int) -> bytes:
    """Join what was delivered before a position and what came after it."""
    assert got.rows[0].pos == pos
    return samples_of([row for row in rows if row.pos < pos]) + samples_of(got.rows)


@pytest.mark.contract
async def test_a_drain_hands_text_back_that_goes_on_at_another_worker(tmp_path: Path) -> None:
    said = scripted(tokens=200, each_ms=2)
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    async with (
        running_worker(here) as leaving,
        running_worker(there) as staying,
        attach(leaving.address) as peer,
        attach(staying.address) as other,
    ):
        slot = peer.submit(said, token_ids=True)
        await peer.until(lambda: len(peer.slots[slot].rows) >= 5)
        leaving.stop()
        await peer.until_ended(slot)
        got = peer.slots[slot]
        assert got.handed_back
        journal = cut_at(got.rows, 1 << 30, ids=True)
        assert journal.pos < 200
        rest = other.submit(
            said, token_ids=True, contract=ResumeContract.TOKENS, resume=[journal], attempt=2
        )
        await other.until_ended(rest)
        assert got.text + other.slots[rest].text == "".join(f" w{i}" for i in range(200))


@pytest.mark.contract
async def test_a_new_owner_claims_payloads_and_the_old_one_cannot_free_them(
    tmp_path: Path,
) -> None:
    request_id = new_request_id()
    async with (
        running_worker(tmp_path, gives="tensor") as worker,
        attach(worker.address, WorkerPeer("old")) as old,
        attach(worker.address, WorkerPeer("new")) as new,
    ):
        slot = old.submit(
            scripted(tokens=1, payload_bytes=500_000),
            request_id=request_id,
            modalities=[Modality.TENSOR],
        )
        await old.until_ended(slot)
        (row,) = old.slots[slot].rows
        assert row.body is not None
        assert row.body.handle is not None
        handle_id = row.body.handle.handle_id
        claim = link_pb2.Fence(request_id=request_id, epoch=2, handle_ids=[handle_id, "h_gone"])
        new.link.send_frame(link_pb2.Frame(fence=claim))
        await new.until(lambda: fenced(new))
        assert fenced(new) == [(2, [handle_id])]
        old.link.send_frame(
            link_pb2.Frame(release=link_pb2.Release(request_id=request_id, epoch=1))
        )
        await old.until(lambda: fenced(old))
        assert fenced(old) == [(2, [])]
        new.link.send_frame(link_pb2.Frame(fence=claim))
        await new.until(lambda: len(fenced(new)) == 2)
        assert fenced(new)[1] == (2, [handle_id])
        new.link.send_frame(
            link_pb2.Frame(release=link_pb2.Release(request_id=request_id, epoch=2))
        )


def fenced(peer: WorkerPeer) -> list[tuple[int, list[str]]]:
    return [
        (frame.fenced.epoch, list(frame.fenced.held))
        for frame in peer.frames
        if frame.HasField("fenced")
    ]


@pytest.mark.contract
async def test_whom_nobody_hears_gives_its_place_up_after_a_while(tmp_path: Path) -> None:
    async with running_worker(tmp_path, slots=1, orphan_s=0.3) as worker:
        async with attach(worker.address, WorkerPeer("first")) as first:
            slot = first.submit(scripted(tokens=100_000, each_ms=1))
            await first.until(lambda: first.slots[slot].rows)
        async with attach(worker.address, WorkerPeer("second")) as second:
            refused = second.submit("no room")
            await second.until_ended(refused)
            assert second.terminal(refused).outcome == outcome_pb2.OUTCOME_REJECTED
            async with asyncio.timeout(5):
                while not (taken := await answered(second)):
                    pass
            assert taken == "mine now"


async def answered(peer: WorkerPeer) -> str:
    """Submit once more; give the answer, or nothing if there still was no room."""
    slot = peer.submit("mine now")
    await peer.until_ended(slot)
    return peer.slots[slot].text


@pytest.mark.contract
async def test_a_higher_attempt_replaces_a_lower_one_and_not_the_other_way_round(
    tmp_path: Path,
) -> None:
    request_id = new_request_id()
    async with (
        running_worker(tmp_path) as worker,
        attach(worker.address, WorkerPeer("first")) as first,
        attach(worker.address, WorkerPeer("second")) as second,
    ):
        low = first.submit(scripted(hang_at=0), request_id=request_id, attempt=1)
        high = second.submit(scripted(hang_at=0), request_id=request_id, attempt=2)
        await first.until_ended(low)
        assert first.terminal(low).outcome == outcome_pb2.OUTCOME_CANCELLED
        late = first.submit(scripted(hang_at=0), request_id=request_id, attempt=1)
        await first.until_ended(late)
        assert first.terminal(late).outcome == outcome_pb2.OUTCOME_CANCELLED
        assert second.slots[high].terminal is None
        second.abort(high)
        await second.until_ended(high)
