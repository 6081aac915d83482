"""What operators ask, as control calls; and what came of them, as answers. Nothing is done here."""

from collections.abc import Collection, Iterable, Sequence
from math import isfinite
from typing import Any, Final, Literal, Protocol

from services.orchestrator.core.effects import ReplicaResult
from stagemesh.api.admin.v1 import admin_service_pb2 as pb
from stagemesh.api.types.v1 import control_pb2
from stagemesh.control import (
    TAGS,
    Adapter,
    CollectiveCall,
    LoadAdapter,
    Pause,
    PauseMode,
    Sleep,
    UnloadAdapter,
    WakeUp,
)
from stagemesh.errors import invalid
from stagemesh.wire import answer_to_proto, options_from_proto, pause_mode_from_proto

__all__ = [
    "TIMEOUT_S",
    "TIMEOUT_S_MAX",
    "adapter_load",
    "adapter_unload",
    "collective_call",
    "pause",
    "pools_of",
    "result_to_proto",
    "seconds_of",
    "sleep",
    "wake_up",
]

TIMEOUT_S_MAX: Final = 600.0
TIMEOUT_S: Final = 30.0
"""Where the operator does not say."""
NAME_CHARS_MAX: Final = 256
PATH_CHARS_MAX: Final = 4096


def pools_of(named: Sequence[str], known: Collection[str]) -> frozenset[str]:
    """Read which pools are meant: all if none is named, and each once.

    Raises:
        MeshError: With `INVALID_ARGUMENT`, if the mesh has no such pool.
    """
    for at, name in enumerate(named):
        if name not in known:
            there_are = ", ".join(sorted(known))
            raise invalid(
                f"There is no pool {name[:NAME_CHARS_MAX]!r}; there are {there_are}.",
                param=f"pools[{at}]",
            )
    return frozenset(named or known)


class _Asked(Protocol):
    def HasField(self, field_name: Any) -> bool: ...  # noqa: N802 - as protobuf spells it


def seconds_of(request: _Asked, field: Literal["drain_s", "timeout_s"]) -> float:
    """Read how long a call, or what runs, may go on: `TIMEOUT_S` where the operator does not say.

    Raises:
        MeshError: With `INVALID_ARGUMENT`, if it is negative or too long.
    """
    if not request.HasField(field):
        return TIMEOUT_S
    value: float = getattr(request, field)
    if not (isfinite(value) and 0 <= value <= TIMEOUT_S_MAX):
        raise invalid(f"Must be from 0 to {TIMEOUT_S_MAX:g}, not {value:g}.", param=field)
    return value


def pause(request: pb.PauseRequest) -> Pause:
    """Read a pause.

    Raises:
        MeshError: With `INVALID_ARGUMENT`, if there is no such mode.
    """
    return Pause(mode=pause_mode_from_proto(request.mode))


def sleep(request: pb.SleepRequest) -> Sleep:
    """Read a sleep.

    Raises:
        MeshError: With `INVALID_ARGUMENT`, if a tag or the mode is none for a sleep.
    """
    mode = pause_mode_from_proto(request.mode)
    if mode is PauseMode.KEEP:
        raise invalid("What runs cannot be kept: it is aborted or waited for.", param="mode")
    return Sleep(mode=mode, level=request.level or 1, tags=_tags(request.tags))


def wake_up(request: pb.WakeUpRequest) -> WakeUp:
    """Read a wake-up.

    Raises:
        MeshError: With `INVALID_ARGUMENT`, if there is no such tag.
    """
    return WakeUp(tags=_tags(request.tags))


def adapter_load(request: pb.LoadAdapterRequest) -> LoadAdapter:
    """Read which adapter is to be loaded.

    Raises:
        MeshError: With `INVALID_ARGUMENT`, if its name or its path is empty or too long.
    """
    name = _word(request.adapter.name, "adapter.name", NAME_CHARS_MAX)
    path = _word(request.adapter.path, "adapter.path", PATH_CHARS_MAX)
    return LoadAdapter(adapter=Adapter(name=name, path=path))


def adapter_unload(request: pb.UnloadAdapterRequest) -> UnloadAdapter:
    """Read which adapter is to be forgotten.

    Raises:
        MeshError: With `INVALID_ARGUMENT`, if its name is empty or too long.
    """
    return UnloadAdapter(name=_word(request.name, "name", NAME_CHARS_MAX))


def collective_call(
    request: pb.CollectiveCallRequest, allowed: Iterable[Collection[str]]
) -> CollectiveCall:
    """Read a call of the engines' own; `allowed` has the names of each replica that it goes to.

    Raises:
        MeshError: With `INVALID_ARGUMENT`, if one of them does not allow it.
    """
    name = _word(request.name, "name", NAME_CHARS_MAX)
    lists = [frozenset(names) for names in allowed]
    if not all(name in names for names in lists):
        common = frozenset.intersection(*lists)
        there_are = f"they allow {', '.join(sorted(common))}" if common else "they allow none"
        raise invalid(f"Not every pool allows {name!r}: {there_are}.", param="name")
    return CollectiveCall(name=name, arguments=options_from_proto(request.arguments))


def result_to_proto(result: ReplicaResult) -> pb.ReplicaResult:
    """Make what an operator sees of one replica."""
    answer: control_pb2.Controlled = answer_to_proto(0, result.answer)
    return pb.ReplicaResult(
        pool=result.pool,
        replica_id=result.replica_id,
        incarnation=result.incarnation,
        error=answer.error if answer.HasField("error") else None,
        adapters=answer.adapters,
        value=answer.value if answer.HasField("value") else None,
        took_s=result.took_s,
    )


def _tags(tags: Sequence[str]) -> tuple[str, ...]:
    for at, tag in enumerate(tags):
        if tag not in TAGS:
            there_are = ", ".join(sorted(TAGS))
            raise invalid(f"Must be one of {there_are}.", param=f"tags[{at}]")
    return tuple(sorted(set(tags)))


def _word(word: str, param: str, chars_max: int) -> str:
    if not 0 < len(word) <= chars_max:
        raise invalid(f"Has at least 1 and at most {chars_max} characters.", param=param)
    return word
