"""A whole stage worker over a real link on loopback, with the synthetic engine."""

import os
from pathlib import Path
from statistics import mode

import pytest

from services.stage_worker.engines.support.synthetic_media import sample_at
from stagemesh.api.types.v1 import link_pb2, outcome_pb2
from stagemesh.ids import new_request_id
from stagemesh.link.core import Row
from stagemesh.media import AUDIO_PCM, Body, Handle, Modality, lane_of
from stagemesh.outcome import End, FinishReason
from stagemesh.payload import PayloadReader, PayloadStore
from tests.helpers.loopback import free_address
from tests.helpers.worker_peer import WorkerPeer, attach, running_worker, scripted

SOURCE = lane_of(0, 0, Modality.TEXT)
END = End(finish_reason=FinishReason.STOP)


@pytest.mark.contract
async def test_outputs_arrive_in_order_and_the_last_carries_the_end(tmp_path: Path) -> None:
    async with running_worker(tmp_path) as worker, attach(worker.address) as peer:
        slot = peer.submit(scripted(tokens=200))
        await peer.until_ended(slot)
        got = peer.slots[slot]
    assert got.text == "".join(f" w{i}" for i in range(200))
    assert [row.pos for row in got.rows] == [
        sum(row.units for row in got.rows[:i]) for i in range(len(got.rows))
    ]
    assert got.rows[-1].end is not None
    assert got.rows[-1].end.usage.completion_tokens == 200
    assert got.terminal is None


@pytest.mark.contract
async def test_attempts_of_one_pace_travel_in_one_batch_for_each_step(tmp_path: Path) -> None:
    async with running_worker(tmp_path) as worker, attach(worker.address) as peer:
        slots = [peer.submit(scripted(tokens=12, each_ms=20)) for _ in range(32)]
        await peer.until_ended(*slots)
    assert all(peer.slots[slot].text.endswith(" w11") for slot in slots)
    assert mode(peer.batches) == 32
    assert len(peer.batches) <= 3 * 12


@pytest.mark.contract
async def test_an_abort_midway_is_acknowledged_with_what_was_used(tmp_path: Path) -> None:
    async with running_worker(tmp_path) as worker, attach(worker.address) as peer:
        slot = peer.submit(scripted(tokens=100_000, each_ms=1))
        await peer.until(lambda: len(peer.slots[slot].rows) >= 3)
        peer.abort(slot)
        await peer.until_ended(slot)
        terminal = peer.terminal(slot)
        assert terminal.outcome == outcome_pb2.OUTCOME_CANCELLED
        assert 3 <= terminal.usage.completion_tokens < 100_000
        again = peer.submit("still here")
        await peer.until_ended(again)
        assert peer.slots[again].text == "still here"


@pytest.mark.contract
async def test_an_abort_that_comes_before_its_submit_stops_it(tmp_path: Path) -> None:
    async with running_worker(tmp_path) as worker, attach(worker.address) as peer:
        peer.abort(77)
        await peer.until(lambda: peer.slots[77].unknown)
        peer.submit("late", slot=77)
        await peer.until_ended(77)
        assert peer.terminal(77).outcome == outcome_pb2.OUTCOME_CANCELLED
        assert not peer.slots[77].rows


@pytest.mark.contract
async def test_nothing_is_sent_beyond_its_credit_and_others_go_on(tmp_path: Path) -> None:
    async with running_worker(tmp_path) as worker, attach(worker.address) as peer:
        peer.grants = False
        held = peer.submit(scripted(tokens=500))
        free = peer.submit(scripted(tokens=60))
        await peer.until_ended(free)
        await peer.until(lambda: sum(row.units for row in peer.slots[held].rows) >= 64)
        await peer.until_ended(peer.submit(scripted(tokens=60)))
        assert sum(row.units for row in peer.slots[held].rows) == 64
        assert len(peer.slots[free].text.split()) == 60
        peer.grant_all(held)
        await peer.until_ended(held)
        assert peer.slots[held].text == "".join(f" w{i}" for i in range(500))


@pytest.mark.contract
async def test_who_takes_nothing_fails_alone_once_the_outbox_is_full(tmp_path: Path) -> None:
    async with (
        running_worker(tmp_path, outbox_bytes_max=10_000) as worker,
        attach(worker.address) as peer,
    ):
        peer.grants = False
        slow = peer.submit(scripted(tokens=50_000, batch=50))
        await peer.until_ended(slow)
        assert peer.terminal(slow).error.code == outcome_pb2.ERROR_CODE_SLOW_CONSUMER
        other = peer.submit("fine")
        await peer.until_ended(other)
        assert peer.slots[other].text == "fine"


@pytest.mark.contract
async def test_a_full_worker_refuses_and_says_so(tmp_path: Path) -> None:
    async with running_worker(tmp_path, slots=2) as worker, attach(worker.address) as peer:
        running = [peer.submit(scripted(hang_at=0)) for _ in range(2)]
        refused = peer.submit("no room")
        await peer.until_ended(refused)
        terminal = peer.terminal(refused)
        assert terminal.outcome == outcome_pb2.OUTCOME_REJECTED
        assert terminal.error.reason == "no_slot"
        assert terminal.error.replica_id
        for slot in running:
            peer.abort(slot)
        await peer.until_ended(*running)
        taken = peer.submit("room")
        await peer.until_ended(taken)
        assert peer.slots[taken].text == "room"


@pytest.mark.contract
async def test_a_lost_link_frees_its_engine_slots(tmp_path: Path) -> None:
    async with running_worker(tmp_path, slots=1, orphan_s=0.0) as worker:
        async with attach(worker.address, WorkerPeer("first")) as first:
            first.submit(scripted(hang_at=0))
            blocked = first.submit("no room")
            await first.until_ended(blocked)
        async with attach(worker.address, WorkerPeer("second")) as second:
            slot = second.submit("mine now")
            await second.until_ended(slot)
            assert second.slots[slot].text == "mine now"


@pytest.mark.contract
async def test_streamed_input_is_relayed_and_its_credit_returned(tmp_path: Path) -> None:
    async with running_worker(tmp_path) as worker, attach(worker.address) as peer:
        slot = peer.submit(sources=[SOURCE])
        words = [f" w{i}" for i in range(100)]
        for pos, word in enumerate(words):
            end = END if pos == len(words) - 1 else None
            peer.link.send_rows([Row(slot, SOURCE, pos, 1, word, end=end)])
        await peer.until_ended(slot)
        assert peer.slots[slot].text == "".join(words)
        assert peer.input_grants[slot, SOURCE].units > 64


@pytest.mark.contract
async def test_an_engine_that_stands_still_holds_back_its_source(tmp_path: Path) -> None:
    async with running_worker(tmp_path) as worker, attach(worker.address) as peer:
        slot = peer.submit(scripted(hang_at=2), sources=[SOURCE])
        other = peer.submit(sources=[SOURCE])
        for pos in range(64):
            peer.link.send_rows([Row(one, SOURCE, pos, 1, " x") for one in (slot, other)])
        peer.link.send_rows([Row(other, SOURCE, 64, 0, end=END)])
        await peer.until_ended(other)
        assert peer.input_grants[other, SOURCE].units > 64
        assert len(peer.slots[slot].rows) == 2
        assert (slot, SOURCE) not in peer.input_grants


@pytest.mark.contract
async def test_an_input_with_a_gap_ends_its_attempt_alone(tmp_path: Path) -> None:
    async with running_worker(tmp_path) as worker, attach(worker.address) as peer:
        bad, good = peer.submit(sources=[SOURCE]), peer.submit(sources=[SOURCE])
        peer.link.send_rows([Row(bad, SOURCE, 5, 1, " x"), Row(good, SOURCE, 0, 1, " y", end=END)])
        await peer.until_ended(bad, good)
        assert peer.terminal(bad).error.code == outcome_pb2.ERROR_CODE_PROTOCOL
        assert peer.slots[good].text == " y"


@pytest.mark.contract
async def test_audio_samples_are_those_of_their_positions(tmp_path: Path) -> None:
    async with (
        running_worker(tmp_path, gives="audio") as worker,
        attach(worker.address) as peer,
    ):
        slot = peer.submit(scripted(tokens=10, audio_ms=100, seed=3), modalities=[Modality.AUDIO])
        await peer.until_ended(slot)
        rows = peer.slots[slot].lane(Modality.AUDIO)
    heard = b"".join(row.body.inline for row in rows if row.body)
    assert heard == b"".join(
        sample_at(3, pos).to_bytes(2, "little", signed=True) for pos in range(2400)
    )
    assert sum(row.units for row in rows) == 2400


@pytest.mark.contract
async def test_a_tensor_travels_by_handle_and_is_released(tmp_path: Path) -> None:
    async with (
        running_worker(tmp_path, gives="tensor") as worker,
        attach(worker.address) as peer,
        PayloadReader() as reader,
    ):
        request_id = new_request_id()
        slot = peer.submit(
            scripted(tokens=1, payload_bytes=3_000_000),
            request_id=request_id,
            modalities=[Modality.TENSOR],
        )
        await peer.until_ended(slot)
        (row,) = peer.slots[slot].rows
        assert row.body is not None
        assert row.body.handle is not None
        data = await reader.get(row.body.handle)
        assert len(data) == 3_000_000
        release = link_pb2.Release(request_id=request_id, epoch=1)
        peer.link.send_frame(link_pb2.Frame(release=release))
        done = peer.submit("after")
        await peer.until_ended(done)  # Refused: this pool gives no text. The release came before.
        handle_id = row.body.handle.handle_id
        assert not [name for name in os.listdir(tmp_path) if handle_id in name]


@pytest.mark.contract
async def test_a_handle_of_the_request_is_fetched_before_the_bridge_sees_it(
    tmp_path: Path,
) -> None:
    store = PayloadStore(
        holder_id="gateway-0",
        incarnation=5,
        address=free_address(),
        directory=tmp_path,
        bytes_max=1 << 24,
        lease_s=60,
    )
    request_id = new_request_id()
    spoken = bytes(200_000)
    handle = store.put(spoken, request_id)
    async with running_worker(tmp_path) as worker, attach(worker.address) as peer:
        heard = peer.submit(
            request_id=request_id,
            bridge="transcript",
            media=[(Modality.AUDIO, Body(handle=handle, media_type=AUDIO_PCM))],
        )
        await peer.until_ended(heard)
        assert peer.slots[heard].text  # The engine answers audio with words of its own.
    store.close()


@pytest.mark.contract
async def test_a_lost_handle_ends_its_attempt_with_the_handle_named(tmp_path: Path) -> None:
    request_id = new_request_id()
    gone = Handle(
        handle_id="h_gone",
        request_id=request_id,
        holder_id="dead",
        incarnation=1,
        address=free_address(),
        size_bytes=10,
    )
    async with running_worker(tmp_path) as worker, attach(worker.address) as peer:
        slot = peer.submit(
            request_id=request_id,
            bridge="transcript",
            media=[(Modality.AUDIO, Body(handle=gone, media_type=AUDIO_PCM))],
        )
        await peer.until_ended(slot)
        assert peer.slots[slot].handles_lost == ["h_gone"]
        assert peer.terminal(slot).error.reason == "handle_lost"


@pytest.mark.contract
async def test_errors_keep_their_codes(tmp_path: Path) -> None:
    async with running_worker(tmp_path) as worker, attach(worker.address) as peer:
        failed = peer.submit(scripted(tokens=9, fail_at=3, fail_code="guardrail"))
        rejected = peer.submit(scripted(reject=True))
        bad_script = peer.submit("#synthetic {")
        no_bridge = peer.submit("x", bridge="none such")
        await peer.until_ended(failed, rejected, bad_script, no_bridge)
        assert peer.slots[failed].text == " w0 w1 w2"
        codes = {
            slot: peer.terminal(slot).error.code
            for slot in (failed, rejected, bad_script, no_bridge)
        }
        assert codes == {
            failed: outcome_pb2.ERROR_CODE_GUARDRAIL,
            rejected: outcome_pb2.ERROR_CODE_OVERLOADED,
            bad_script: outcome_pb2.ERROR_CODE_INVALID_ARGUMENT,
            no_bridge: outcome_pb2.ERROR_CODE_UNSUPPORTED,
        }
        assert peer.terminal(rejected).outcome == outcome_pb2.OUTCOME_REJECTED


@pytest.mark.contract
async def test_a_lower_epoch_is_fenced_and_a_higher_one_takes_over(tmp_path: Path) -> None:
    request_id = new_request_id()
    async with running_worker(tmp_path) as worker, attach(worker.address) as peer:
        old = peer.submit(scripted(hang_at=0), request_id=request_id, epoch=2)
        peer.submit("too late", request_id=request_id, epoch=1)
        await peer.until(lambda: any(frame.HasField("fenced") for frame in peer.frames))
        new = peer.submit("mine", request_id=request_id, epoch=3)
        await peer.until_ended(old, new)
        assert peer.terminal(old).outcome == outcome_pb2.OUTCOME_CANCELLED
        assert peer.slots[new].text == "mine"
        (fenced,) = [frame.fenced for frame in peer.frames if frame.HasField("fenced")]
        assert (fenced.request_id, fenced.epoch) == (request_id, 2)


@pytest.mark.contract
async def test_a_deadline_ends_an_attempt_that_hangs(tmp_path: Path) -> None:
    async with running_worker(tmp_path) as worker, attach(worker.address) as peer:
        slot = peer.submit(scripted(hang_at=0), deadline_s=0.2)
        await peer.until_ended(slot)
        assert peer.terminal(slot).outcome == outcome_pb2.OUTCOME_DEADLINE_EXCEEDED


@pytest.mark.contract
async def test_an_engine_that_makes_no_step_is_reported_stalled_and_takes_nothing(
    tmp_path: Path,
) -> None:
    async with (
        running_worker(tmp_path, stall_s=0.3, drain_s=0.2) as worker,
        attach(worker.address) as peer,
    ):
        peer.submit(scripted(hang_at=0))
        await peer.until(
            lambda: any(ping.state == link_pb2.PROCESS_STATE_STALLED for ping in peer.pings)
        )
        refused = peer.submit("no")
        await peer.until_ended(refused)
        assert peer.terminal(refused).error.code == outcome_pb2.ERROR_CODE_STALLED


@pytest.mark.contract
async def test_a_drain_finishes_what_runs_and_refuses_what_is_new(tmp_path: Path) -> None:
    async with running_worker(tmp_path) as worker, attach(worker.address) as peer:
        running = peer.submit(scripted(tokens=30, each_ms=10))
        await peer.until(lambda: peer.slots[running].rows)
        worker.stop()
        await peer.until(lambda: any(frame.HasField("go_away") for frame in peer.frames))
        refused = peer.submit("too late")
        await peer.until_ended(running, refused)
        assert peer.slots[running].text.endswith(" w29")
        assert peer.terminal(refused).error.code == outcome_pb2.ERROR_CODE_DRAINING


@pytest.mark.contract
async def test_what_is_not_done_at_the_end_of_the_drain_is_handed_back(tmp_path: Path) -> None:
    async with running_worker(tmp_path, drain_s=0.2) as worker, attach(worker.address) as peer:
        slot = peer.submit(scripted(tokens=3, hang_at=1))
        await peer.until(lambda: peer.slots[slot].rows)
        worker.stop()
        await peer.until_ended(slot)
        assert peer.slots[slot].handed_back
        assert peer.slots[slot].text == " w0"
