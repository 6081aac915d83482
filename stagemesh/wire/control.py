"""Control calls, their answers, and gates: `control.proto`."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from stagemesh.api.types.v1 import control_pb2
from stagemesh.control import (
    Adapter,
    Answer,
    Call,
    CollectiveCall,
    Drain,
    Gate,
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
from stagemesh.errors import invalid
from stagemesh.wire.cards import options_from_proto, options_to_proto
from stagemesh.wire.outcomes import error_from_proto, error_to_proto

__all__ = [
    "answer_from_proto",
    "answer_to_proto",
    "call_from_proto",
    "call_to_proto",
    "gate_from_proto",
    "gate_to_proto",
    "pause_mode_from_proto",
]

_NAMES: Final[Mapping[type[Any], str]] = {
    Pause: "pause",
    Resume: "resume",
    Sleep: "sleep",
    WakeUp: "wake_up",
    ResetCache: "reset_cache",
    LoadAdapter: "load_adapter",
    UnloadAdapter: "unload_adapter",
    ListAdapters: "list_adapters",
    StartProfile: "start_profile",
    StopProfile: "stop_profile",
    CollectiveCall: "collective_call",
    Drain: "drain",
    Undrain: "undrain",
}

_READ: Final[Mapping[str, Callable[[control_pb2.Control], Call]]] = {
    "pause": lambda m: Pause(mode=pause_mode_from_proto(m.pause.mode)),
    "resume": lambda m: Resume(),
    "sleep": lambda m: Sleep(
        mode=pause_mode_from_proto(m.sleep.mode),
        level=m.sleep.level or 1,
        tags=tuple(m.sleep.tags),
    ),
    "wake_up": lambda m: WakeUp(tags=tuple(m.wake_up.tags)),
    "reset_cache": lambda m: ResetCache(),
    "load_adapter": lambda m: LoadAdapter(
        adapter=Adapter(name=m.load_adapter.adapter.name, path=m.load_adapter.adapter.path)
    ),
    "unload_adapter": lambda m: UnloadAdapter(name=m.unload_adapter.name),
    "list_adapters": lambda m: ListAdapters(),
    "start_profile": lambda m: StartProfile(),
    "stop_profile": lambda m: StopProfile(),
    "collective_call": lambda m: CollectiveCall(
        name=m.collective_call.name, arguments=options_from_proto(m.collective_call.arguments)
    ),
    "drain": lambda m: Drain(drain_s=m.drain.drain_s),
    "undrain": lambda m: Undrain(),
}


def call_to_proto(control_id: int, call: Call, timeout_s: float) -> control_pb2.Control:
    """Encode an order to a worker."""
    message = control_pb2.Control(control_id=control_id, timeout_s=timeout_s)
    part: Any = getattr(message, _NAMES[type(call)])
    part.SetInParent()
    match call:
        case Pause(mode=mode):
            part.mode = mode
        case Sleep():
            part.mode, part.level = call.mode, call.level
            part.tags.extend(call.tags)
        case WakeUp(tags=tags):
            part.tags.extend(tags)
        case LoadAdapter(adapter=adapter):
            part.adapter.name, part.adapter.path = adapter.name, adapter.path
        case UnloadAdapter(name=name):
            part.name = name
        case CollectiveCall():
            part.name = call.name
            part.arguments.CopyFrom(options_to_proto(call.arguments))
        case Drain(drain_s=drain_s):
            part.drain_s = drain_s
        case _:
            pass
    return message


def call_from_proto(message: control_pb2.Control) -> Call:
    """Decode an order to a worker.

    Raises:
        MeshError: With `INVALID_ARGUMENT`, if it is none that is known here.
    """
    read = _READ.get(message.WhichOneof("call") or "")
    if read is None:
        raise invalid("This call is not known here.", param="call")
    return read(message)


def pause_mode_from_proto(number: int) -> PauseMode:
    """Decode a mode; none means wait, which ends nothing.

    Raises:
        MeshError: With `INVALID_ARGUMENT`, if there is no such mode.
    """
    try:
        return PauseMode(number or PauseMode.WAIT)
    except ValueError:
        raise invalid(f"There is no pause mode {number}.", param="mode") from None


def answer_to_proto(control_id: int, answer: Answer) -> control_pb2.Controlled:
    """Encode what came of a call."""
    return control_pb2.Controlled(
        control_id=control_id,
        error=error_to_proto(answer.error) if answer.error else None,
        adapters=[control_pb2.Adapter(name=one.name, path=one.path) for one in answer.adapters],
        value=None if answer.value is None else options_to_proto(answer.value),
    )


def answer_from_proto(message: control_pb2.Controlled) -> Answer:
    """Decode what came of a call."""
    return Answer(
        error=error_from_proto(message.error) if message.HasField("error") else None,
        adapters=tuple(Adapter(name=one.name, path=one.path) for one in message.adapters),
        value=options_from_proto(message.value) if message.HasField("value") else None,
    )


def gate_to_proto(gate: Gate) -> control_pb2.Gate:
    """Encode what is closed."""
    message = control_pb2.Gate(asleep=sorted(gate.asleep), drained=gate.drained)
    if gate.paused is not None:
        message.paused = True
        message.mode = control_pb2.PauseMode.ValueType(gate.paused)
    return message


def gate_from_proto(message: control_pb2.Gate) -> Gate:
    """Decode what is closed.

    Raises:
        MeshError: With `INVALID_ARGUMENT`, if there is no such mode.
    """
    return Gate(
        paused=pause_mode_from_proto(message.mode) if message.paused else None,
        asleep=frozenset(message.asleep),
        drained=message.drained,
    )
