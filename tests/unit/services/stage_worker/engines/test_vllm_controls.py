"""What vLLM is told for each control call; on the real library only where its platform can."""

from pathlib import Path
from typing import Any

import pytest

from services.stage_worker.engines.support import adapters
from services.stage_worker.engines.vllm_controls import VllmControls
from services.stage_worker.engines.vllm_options import Options
from stagemesh.control import (
    TAGS,
    Adapter,
    Call,
    CollectiveCall,
    ControlKind,
    ListAdapters,
    LoadAdapter,
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

WAIT = PauseMode.WAIT
A = Adapter(name="a", path="/roots/a")


class Llm:
    """Keeps what it is told, and answers as told."""

    def __init__(self, answer: Any = None) -> None:
        self.told: list[Any] = []
        self._answer = answer

    def __getattr__(self, name: str) -> Any:
        async def call(*args: Any, **kwargs: Any) -> Any:
            self.told.append((name, *args, kwargs) if kwargs else (name, *args))
            return self._answer

        return call


def made(answer: Any = None) -> tuple[Llm, VllmControls]:
    llm = Llm(answer)
    return llm, VllmControls(llm, lambda loaded: f"lora {loaded.number}")


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (
            Pause(mode=PauseMode.KEEP),
            ("pause_generation", {"mode": "keep", "clear_cache": False}),
        ),
        (Resume(), ("resume_generation",)),
        (Sleep(mode=WAIT, tags=tuple(sorted(TAGS))), ("sleep", {"level": 1})),
        (WakeUp(tags=("weights",)), ("wake_up", ["weights"])),
        (ResetCache(), ("reset_prefix_cache",)),
        (StartProfile(), ("start_profile",)),
    ],
)
async def test_each_call_is_one_of_what_vllm_publishes(call: Call, told: Any) -> None:
    llm, controls = made(answer=True)
    await controls.carry_out(call)
    assert llm.told == [told]


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (Sleep(mode=WAIT, tags=("weights",)), "unsupported_value"),
        (ResetCache(), "conflict"),
        (StopProfile(), "conflict"),
        (UnloadAdapter(name="a"), "adapter_not_found"),
    ],
)
async def test_what_vllm_cannot_do_now_is_refused(call: Call, reason: str) -> None:
    _, controls = made(answer=False)
    with pytest.raises(MeshError) as caught:
        await controls.carry_out(call)
    assert caught.value.info.reason == reason


async def test_an_adapter_has_its_number_as_long_as_it_is_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(adapters, "folder_of", lambda adapter: Path(adapter.path))
    llm, controls = made()
    for _ in range(2):  # The second time it is loaded already.
        await controls.carry_out(LoadAdapter(adapter=A))
    assert (await controls.carry_out(ListAdapters())).adapters == (A,)
    assert controls.lora_of("a") == "lora 1"
    assert controls.lora_of("") is None
    await controls.carry_out(UnloadAdapter(name="a"))
    assert llm.told == [("add_lora", "lora 1"), ("remove_lora", 1)]
    with pytest.raises(MeshError):
        controls.lora_of("a")


async def test_what_is_no_plain_value_is_shown_as_text() -> None:
    llm, controls = made(answer=[1, None, {3}])
    answer = await controls.carry_out(CollectiveCall(name="f", arguments={"deep": 1}))
    assert answer.value == {"results": [1, None, "{3}"]}
    assert llm.told == [("collective_rpc", "f", {"kwargs": {"deep": 1}})]


def test_a_pool_gets_what_it_asks_for_and_its_platform_can() -> None:
    asked = Options(enable_lora=True, enable_sleep_mode=True, profile_dir="/p")
    able = {"can_sleep": True, "can_adapt": True}
    assert asked.control(**able).kinds == frozenset(ControlKind)
    assert asked.control(**able).sleep_tags == TAGS
    assert asked.engine_args(**able)["enable_lora"]
    poor = {"can_sleep": False, "can_adapt": False}
    assert asked.control(**poor).kinds == {
        ControlKind.KEEP,
        ControlKind.RESET_CACHE,
        ControlKind.PROFILE,
    }
    assert asked.control(**poor).sleep_tags == frozenset()
    assert not {"enable_lora", "enable_sleep_mode"} & asked.engine_args(**poor).keys()
    assert Options().control(**able).kinds == {ControlKind.KEEP, ControlKind.RESET_CACHE}
