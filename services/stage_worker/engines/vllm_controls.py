"""Control calls on vLLM, by what it publishes for them."""

from collections.abc import Callable
from typing import Any

from services.stage_worker.engines.support.adapters import Adapters, Loaded
from services.stage_worker.engines.support.profiling import Profiling
from stagemesh.control import (
    TAGS,
    Answer,
    Call,
    CollectiveCall,
    ListAdapters,
    LoadAdapter,
    Pause,
    ResetCache,
    Resume,
    Sleep,
    StartProfile,
    StopProfile,
    UnloadAdapter,
    WakeUp,
)
from stagemesh.errors import MeshError, unsupported
from stagemesh.outcome import error_for

__all__ = ["VllmControls"]

SLEEP_LEVEL = 1
"""The weights stay in the host's memory, so that waking up needs nothing else."""


class VllmControls:
    """Carries calls out on one vLLM engine; `make_lora` gives vLLM's own value for an adapter."""

    def __init__(self, llm: Any, make_lora: Callable[[Loaded], Any]) -> None:
        self._llm = llm
        self._make_lora = make_lora
        self._adapters = Adapters(
            load=lambda loaded: llm.add_lora(make_lora(loaded)),
            unload=lambda loaded: llm.remove_lora(loaded.number),
        )
        self._profiling = Profiling()

    def lora_of(self, name: str) -> Any:
        """Give vLLM's value for the adapter of an attempt; None for the model as it is.

        Raises:
            MeshError: If there is no such adapter.
        """
        return self._make_lora(self._adapters.get(name)) if name else None

    async def carry_out(self, call: Call) -> Answer:
        """Do what is asked.

        Raises:
            MeshError: If it cannot be done now.
        """
        match call:
            case Pause():
                # The cache is what frozen attempts go on from.
                await self._llm.pause_generation(mode="keep", clear_cache=False)
            case Resume():
                await self._llm.resume_generation()
            case Sleep(tags=tags):
                if frozenset(tags) != TAGS:
                    raise unsupported("vLLM sleeps as a whole.", param="tags")
                await self._llm.sleep(level=SLEEP_LEVEL)
            case WakeUp(tags=tags):
                await self._llm.wake_up(list(tags))
            case ResetCache():
                if not await self._llm.reset_prefix_cache():
                    raise MeshError(error_for("conflict", "The cache is in use."))
            case StartProfile() | StopProfile():
                await self._profile(begin=isinstance(call, StartProfile))
            case CollectiveCall():
                return await self._called(call)
            case LoadAdapter() | UnloadAdapter() | ListAdapters():
                return await self._adapters.carry_out(call)
            case _:
                pass
        return Answer()

    async def _profile(self, *, begin: bool) -> None:
        self._profiling.check(begin=begin)
        await (self._llm.start_profile() if begin else self._llm.stop_profile())
        self._profiling.running = begin

    async def _called(self, call: CollectiveCall) -> Answer:
        """Call a method of vLLM's workers; what is no plain value is shown as text."""
        found = await self._llm.collective_rpc(call.name, kwargs=dict(call.arguments))
        plain = (str, int, float, bool, type(None))
        results = [one if isinstance(one, plain) else repr(one) for one in found]
        return Answer(value={"results": results})
