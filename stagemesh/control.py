"""Control calls, as plain values: what operators ask of workers, and what those answer."""

from collections.abc import Mapping
from enum import IntEnum
from typing import Any, Final

import msgspec

from stagemesh.outcome import ErrorInfo

__all__ = [
    "KV_CACHE",
    "OPEN",
    "TAGS",
    "WEIGHTS",
    "Adapter",
    "Answer",
    "Call",
    "CollectiveCall",
    "ControlKind",
    "ControlSupport",
    "Drain",
    "Gate",
    "ListAdapters",
    "LoadAdapter",
    "Pause",
    "PauseMode",
    "ResetCache",
    "Resume",
    "Sleep",
    "StartProfile",
    "StopProfile",
    "Undrain",
    "UnloadAdapter",
    "WakeUp",
]

WEIGHTS: Final = "weights"
KV_CACHE: Final = "kv_cache"
TAGS: Final = frozenset({WEIGHTS, KV_CACHE})
"""What of an engine can be asleep."""


class PauseMode(IntEnum):
    """What becomes of the attempts that run; the same numbers as in `control.proto`."""

    ABORT = 1
    WAIT = 2
    KEEP = 3


class ControlKind(IntEnum):
    """A kind of calls that an engine carries out; the same numbers as in `control.proto`."""

    KEEP = 1
    SLEEP = 2
    RESET_CACHE = 3
    ADAPTERS = 4
    PROFILE = 5


class _Value(msgspec.Struct, frozen=True, kw_only=True):
    pass


class _Call(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    pass


class ControlSupport(_Value, frozen=True):
    """Which control calls an engine carries out; by default none."""

    kinds: frozenset[ControlKind] = frozenset()
    sleep_tags: frozenset[str] = frozenset()
    """What of it can sleep."""
    collective_calls: frozenset[str] = frozenset()
    """The names that `CollectiveCall` may use."""


class Gate(_Value, frozen=True):
    """What operators have closed at a worker, as the worker itself knows it."""

    paused: PauseMode | None = None
    asleep: frozenset[str] = frozenset()
    drained: bool = False


OPEN: Final = Gate()


class Adapter(_Value, frozen=True):
    """A LoRA adapter; `path` is that of a folder below a configured root."""

    name: str
    path: str


class Pause(_Call, frozen=True):
    """Takes nothing new until a `Resume`."""

    mode: PauseMode


class Resume(_Call, frozen=True):
    """Takes new attempts again, and lets frozen ones go on."""


class Sleep(_Call, frozen=True):
    """Gives memory back until a `WakeUp`; no tags mean all that the engine has."""

    mode: PauseMode
    level: int = 1
    tags: tuple[str, ...] = ()


class WakeUp(_Call, frozen=True):
    """Brings back what a `Sleep` gave away; no tags mean all that is asleep."""

    tags: tuple[str, ...] = ()


class ResetCache(_Call, frozen=True):
    """Forgets what the engine keeps of prompts."""


class LoadAdapter(_Call, frozen=True):
    """Makes an adapter known to the engine."""

    adapter: Adapter


class UnloadAdapter(_Call, frozen=True):
    """Makes the engine forget an adapter."""

    name: str


class ListAdapters(_Call, frozen=True):
    """Asks which adapters the engine knows."""


class StartProfile(_Call, frozen=True):
    """Begins to write a profile of the engine."""


class StopProfile(_Call, frozen=True):
    """Ends the profile."""


class CollectiveCall(_Call, frozen=True):
    """Calls something of the engine's own that the mesh file allows by name."""

    name: str
    arguments: Mapping[str, Any] = {}


class Drain(_Call, frozen=True):
    """Takes the worker out; what it has may go on for `drain_s`."""

    drain_s: float


class Undrain(_Call, frozen=True):
    """Takes the worker in again."""


Call = (
    CollectiveCall
    | Drain
    | ListAdapters
    | LoadAdapter
    | Pause
    | ResetCache
    | Resume
    | Sleep
    | StartProfile
    | StopProfile
    | Undrain
    | UnloadAdapter
    | WakeUp
)


class Answer(_Value, frozen=True):
    """What came of a call; without an error it was carried out."""

    error: ErrorInfo | None = None
    adapters: tuple[Adapter, ...] = ()
    value: Mapping[str, Any] | None = None
