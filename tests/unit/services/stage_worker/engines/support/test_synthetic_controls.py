"""The synthetic engine's control calls: it does what it is told, and fails where it is told to."""

import asyncio

import msgspec
import pytest

from services.stage_worker.engines.support.synthetic_controls import (
    ControlOptions,
    SyntheticControls,
)
from stagemesh.control import (
    TAGS,
    CollectiveCall,
    ControlKind,
    Pause,
    PauseMode,
    ResetCache,
    Resume,
    Sleep,
    StartProfile,
    StopProfile,
    UnloadAdapter,
    WakeUp,
)
from stagemesh.errors import MeshError

FREEZE = Pause(mode=PauseMode.KEEP)


def controls(options: ControlOptions | None = None) -> SyntheticControls:
    return SyntheticControls(options or ControlOptions(), lambda: None)


async def test_it_freezes_and_sleeps_and_tells() -> None:
    engine = controls()
    await engine.carry_out(FREEZE)
    await engine.carry_out(Sleep(mode=PauseMode.WAIT, tags=("weights", "kv_cache")))
    await engine.carry_out(WakeUp(tags=("weights",)))
    await engine.carry_out(StartProfile())
    state = (await engine.carry_out(CollectiveCall(name="state"))).value
    assert state == {
        "frozen": True,
        "asleep": ["kv_cache"],
        "profiling": True,
        "calls": {"pause": 1, "sleep": 1, "wake_up": 1, "start_profile": 1, "collective_call": 1},
    }
    await engine.carry_out(Resume())
    await engine.carry_out(StopProfile())
    assert not engine.frozen
    echo = CollectiveCall(name="echo", arguments={"n": 1})
    assert (await engine.carry_out(echo)).value == {"n": 1}


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (StopProfile(), "conflict"),
        (UnloadAdapter(name="a"), "adapter_not_found"),
        (CollectiveCall(name="reboot"), "unsupported_value"),
    ],
)
async def test_what_cannot_be_done_is_refused(call: StopProfile, reason: str) -> None:
    with pytest.raises(MeshError) as caught:
        await controls().carry_out(call)
    assert caught.value.info.reason == reason


async def test_a_pool_may_want_calls_to_fail_to_hang_or_to_crash() -> None:
    crashes: list[str] = []
    options = ControlOptions(
        faults={"pause": "engine_error", "resume": "crash", "reset_cache": "hang"},
        delay_ms={"pause": 1.0},
    )
    engine = SyntheticControls(options, lambda: crashes.append("crash"))
    with pytest.raises(MeshError):
        await engine.carry_out(FREEZE)
    assert not engine.frozen
    await engine.carry_out(Resume())
    assert crashes == ["crash"]
    hanging = asyncio.create_task(engine.carry_out(ResetCache()))
    await asyncio.sleep(0)
    assert not hanging.done()
    hanging.cancel()


def test_a_pool_says_which_calls_are_carried_out() -> None:
    assert ControlOptions().support().kinds == frozenset(ControlKind)
    assert ControlOptions().support().sleep_tags == TAGS
    assert ControlOptions().support().collective_calls == frozenset()
    some = ControlOptions(kinds=["keep"], collective_calls=["state"]).support()
    assert (some.kinds, some.sleep_tags) == (frozenset({ControlKind.KEEP}), frozenset())
    assert some.collective_calls == {"state"}
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"faults": {"pause": "sulk"}}, ControlOptions)
