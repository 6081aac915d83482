"""The control calls of the synthetic engine: it does what it is told, and fails where a pool says.

`faults` names calls (`sleep`, `reset_cache`, …) and what each of them does: it fails with an error
code, or it is `hang` (never answers) or `crash` (ends the process). `delay_ms` makes calls slow.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from services.stage_worker.engines.support.adapters import Adapters
from services.stage_worker.engines.support.profiling import Profiling
from stagemesh.control import (
    TAGS,
    Answer,
    Call,
    CollectiveCall,
    ControlKind,
    ControlSupport,
    ListAdapters,
    LoadAdapter,
    Pause,
    Resume,
    Sleep,
    StartProfile,
    StopProfile,
    UnloadAdapter,
    WakeUp,
)
from stagemesh.errors import MeshError, unsupported
from stagemesh.outcome import ErrorCode, default_reason, error_for

__all__ = ["ControlOptions", "SyntheticControls"]

HANG: Final = "hang"
CRASH: Final = "crash"


class ControlOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the mesh file may set under `options.control`."""

    kinds: list[str] | None = None
    """The kinds of calls that are carried out; all by default."""
    collective_calls: list[str] = []
    """Of `state`, which shows what has happened, and `echo`, which gives its arguments back."""
    faults: dict[str, str] = {}
    delay_ms: dict[str, float] = {}

    def __post_init__(self) -> None:
        for fault in self.faults.values():
            if fault not in {HANG, CRASH} and fault.upper() not in ErrorCode.__members__:
                raise ValueError(f"{fault} is no error code, nor hang or crash")

    def support(self) -> ControlSupport:
        """Say which calls are carried out."""
        names = [kind.name for kind in ControlKind] if self.kinds is None else self.kinds
        kinds = frozenset(ControlKind[name.upper()] for name in names)
        return ControlSupport(
            kinds=kinds,
            sleep_tags=TAGS if ControlKind.SLEEP in kinds else frozenset(),
            collective_calls=frozenset(self.collective_calls),
        )


class SyntheticControls:
    """What control calls have made of the engine; `crash` ends the process."""

    def __init__(self, options: ControlOptions, crash: Callable[[], object]) -> None:
        self.frozen = False
        self.asleep: frozenset[str] = frozenset()
        self.adapters = Adapters()
        self._profiling = Profiling()
        self._counts: Counter[str] = Counter()
        self._options = options
        self._crash = crash

    async def carry_out(self, call: Call) -> Answer:
        """Do what is asked.

        Raises:
            MeshError: If the pool wants this call to fail, or there is no such adapter or name.
        """
        name = _name_of(call)
        self._counts[name] += 1
        if (delay_ms := self._options.delay_ms.get(name)) is not None:
            await asyncio.sleep(delay_ms / 1000)
        fault = self._options.faults.get(name)
        if fault == CRASH:
            self._crash()
        elif fault == HANG:
            await asyncio.get_running_loop().create_future()
        elif fault is not None:
            reason = default_reason(ErrorCode[fault.upper()])
            raise MeshError(error_for(reason, "the pool's options want it to fail"))
        return await self._done(call)

    async def _done(self, call: Call) -> Answer:
        match call:
            case Pause():
                self.frozen = True
            case Resume():
                self.frozen = False
            case Sleep(tags=tags):
                self.asleep |= frozenset(tags)
            case WakeUp(tags=tags):
                self.asleep -= frozenset(tags)
            case LoadAdapter() | UnloadAdapter() | ListAdapters():
                return await self.adapters.carry_out(call)
            case StartProfile() | StopProfile():
                begin = isinstance(call, StartProfile)
                self._profiling.check(begin=begin)
                self._profiling.running = begin
            case CollectiveCall():
                return Answer(value=self._called(call))
            case _:
                pass
        return Answer()

    def _called(self, call: CollectiveCall) -> Mapping[str, Any]:
        if call.name == "echo":
            return call.arguments
        if call.name == "state":
            return {
                "frozen": self.frozen,
                "asleep": sorted(self.asleep),
                "profiling": self._profiling.running,
                "calls": dict(self._counts),
            }
        raise unsupported(f"the synthetic engine has no {call.name!r}", param="name")


def _name_of(call: Call) -> str:
    """Spell a call's name as in `control.proto`: `reset_cache` for `ResetCache`."""
    words = type(call).__name__
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in words).lstrip("_")
