"""Control calls at a whole stage worker over a real link, with the synthetic engine."""

from pathlib import Path

import pytest

from stagemesh.api.types.v1 import link_pb2, outcome_pb2
from stagemesh.control import (
    Adapter,
    Call,
    CollectiveCall,
    Drain,
    ListAdapters,
    LoadAdapter,
    Pause,
    PauseMode,
    ResetCache,
    Resume,
    Sleep,
    StartProfile,
    StopProfile,
    Undrain,
    UnloadAdapter,
    WakeUp,
)
from tests.helpers.worker_peer import WorkerPeer, attach, running_worker, scripted

KEEP, ABORT, WAIT = PauseMode.KEEP, PauseMode.ABORT, PauseMode.WAIT
STATE = CollectiveCall(name="state")
ALLOWED = {"collective_calls": ["state", "echo"]}


async def done(peer: WorkerPeer, *calls: Call) -> None:
    for call in calls:
        assert (await peer.control(call)).error is None, call


async def refused(peer: WorkerPeer) -> int:
    slot = peer.submit("hello")
    await peer.until_ended(slot)
    return peer.terminal(slot).error.code


async def test_every_link_is_told_at_once_and_a_new_one_by_its_hello(tmp_path: Path) -> None:
    async with (
        running_worker(tmp_path) as worker,
        attach(worker.address) as peer,
        attach(worker.address) as other,
    ):
        await done(peer, Pause(mode=ABORT), Sleep(mode=WAIT))
        await other.until(
            lambda: other.pings and other.pings[-1].state == link_pb2.PROCESS_STATE_ASLEEP
        )
        assert sorted(other.pings[-1].gate.asleep) == ["kv_cache", "weights"]
        assert await refused(other) == outcome_pb2.ERROR_CODE_ASLEEP
        async with attach(worker.address) as late:
            assert late.attached_to is not None
            assert late.attached_to.state == link_pb2.PROCESS_STATE_ASLEEP
            assert late.attached_to.gate == other.pings[-1].gate
        await done(peer, WakeUp())
        assert await refused(other) == outcome_pb2.ERROR_CODE_PAUSED
        await done(peer, Resume())
        slot = other.submit("hello")
        await other.until_ended(slot)
        assert other.slots[slot].text == "hello"


async def test_what_is_frozen_gives_nothing_and_goes_on_whole(tmp_path: Path) -> None:
    async with (
        running_worker(tmp_path, control=ALLOWED) as worker,
        attach(worker.address) as peer,
    ):
        slot = peer.submit(scripted(tokens=60, each_ms=5))
        await peer.until(lambda: len(peer.slots[slot].rows) >= 3)
        await done(peer, Pause(mode=KEEP))
        before = len(peer.slots[slot].rows)
        for _ in range(20):  # Each goes to the engine and back, which takes more than a step.
            await done(peer, STATE)
        assert len(peer.slots[slot].rows) == before
        await done(peer, Resume())
        await peer.until_ended(slot)
        assert peer.slots[slot].text == "".join(f" w{i}" for i in range(60))


async def test_a_drained_worker_hands_back_and_can_be_taken_in_again(tmp_path: Path) -> None:
    async with running_worker(tmp_path) as worker, attach(worker.address) as peer:
        slot = peer.submit(scripted(tokens=100_000, each_ms=5), token_ids=True)
        await peer.until(lambda: peer.slots[slot].rows)
        await done(peer, Drain(drain_s=5.0))
        assert peer.slots[slot].handed_back
        assert await refused(peer) == outcome_pb2.ERROR_CODE_DRAINING
        await done(peer, Undrain())
        again = peer.submit("hello")
        await peer.until_ended(again)
        assert peer.slots[again].text == "hello"


async def test_calls_of_the_engine_are_carried_out_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STAGEMESH_MODEL_ROOTS", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    adapter = Adapter(name="mine", path=str(tmp_path / "mine"))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "adapter_model.safetensors").write_bytes(b"x")
    async with (
        running_worker(tmp_path, control=ALLOWED) as worker,
        attach(worker.address) as peer,
    ):
        await done(peer, ResetCache(), StartProfile(), LoadAdapter(adapter=adapter))
        assert (await peer.control(ListAdapters())).adapters == (adapter,)
        slot = peer.submit("hello", adapter="mine")
        unknown = peer.submit("hello", adapter="yours")
        await peer.until_ended(slot, unknown)
        assert peer.slots[slot].text == "hello"
        assert peer.terminal(unknown).error.reason == "adapter_not_found"
        await done(peer, UnloadAdapter(name="mine"), StopProfile())
        state = (await peer.control(STATE)).value
        assert state is not None
        assert state["calls"]["reset_cache"] == 1
        assert not state["profiling"]


@pytest.mark.parametrize(
    ("fault", "reason"), [("engine_error", "engine_error"), ("hang", "deadline_exceeded")]
)
async def test_a_call_that_fails_or_hangs_harms_no_attempt(
    tmp_path: Path, fault: str, reason: str
) -> None:
    control = {"faults": {"reset_cache": fault, "sleep": fault}}
    async with (
        running_worker(tmp_path, control=control) as worker,
        attach(worker.address) as peer,
    ):
        slot = peer.submit(scripted(tokens=50, each_ms=5))
        answer = await peer.control(ResetCache(), timeout_s=0.5)
        assert answer.error is not None
        assert answer.error.reason == reason
        await peer.until_ended(slot)
        assert peer.slots[slot].text == "".join(f" w{i}" for i in range(50))
        if fault != "hang":
            failed = await peer.control(Sleep(mode=WAIT), timeout_s=0.5)
            assert failed.error is not None
            again = peer.submit("still here")
            await peer.until_ended(again)
            assert peer.slots[again].text == "still here"


async def test_an_engine_without_control_calls_is_paused_all_the_same(tmp_path: Path) -> None:
    async with (
        running_worker(tmp_path, control={"kinds": []}) as worker,
        attach(worker.address) as peer,
    ):
        await done(peer, Pause(mode=WAIT))
        assert await refused(peer) == outcome_pb2.ERROR_CODE_PAUSED
        await done(peer, Resume())
        calls: list[Call] = [Pause(mode=KEEP), Sleep(mode=WAIT), ListAdapters(), StartProfile()]
        for call in calls:
            answer = await peer.control(call)
            assert answer.error is not None
            assert answer.error.reason == "unsupported_value"
