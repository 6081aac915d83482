"""Control calls in scenarios of the orchestrator's core.

`control 1 pause mode=KEEP pools=thinker wait=30` is an operator's call with the number 1, and
`done thinker-0 #3 [REASON]` a worker's answer to control 3. A gate is told by `paused=MODE`,
`asleep=TAG,TAG` and `drained=yes`, of a replica that attaches or reports.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

import msgspec

from services.orchestrator.core import effects as fx
from services.orchestrator.core import events as ev
from stagemesh.control import (
    Answer,
    Call,
    Drain,
    Gate,
    Pause,
    PauseMode,
    ResetCache,
    Resume,
    Sleep,
    Undrain,
    WakeUp,
)
from stagemesh.outcome import error_for

__all__ = ["control_asked", "control_done", "gate_of", "shown_control"]

Fields = Mapping[str, str]

_CALLS: Final[Mapping[str, Callable[[Fields], Call]]] = {
    "pause": lambda fields: Pause(mode=PauseMode[fields["mode"]]),
    "resume": lambda fields: Resume(),
    "sleep": lambda fields: Sleep(mode=PauseMode[fields["mode"]], tags=_words(fields, "tags")),
    "wake-up": lambda fields: WakeUp(tags=_words(fields, "tags")),
    "reset-cache": lambda fields: ResetCache(),
    "drain": lambda fields: Drain(drain_s=float(fields["for"])),
    "undrain": lambda fields: Undrain(),
}


def gate_of(fields: Fields) -> Gate:
    """Read a gate."""
    return Gate(
        paused=PauseMode[fields["paused"]] if "paused" in fields else None,
        asleep=frozenset(_words(fields, "asleep")),
        drained="drained" in fields,
    )


def control_asked(names: list[str], fields: Fields) -> ev.ControlAsked:
    """Read an operator's call."""
    return ev.ControlAsked(
        call_id=int(names[0]),
        call=_CALLS[names[1]](fields),
        wait_s=float(fields.get("wait", 30)),
        pools=frozenset(_words(fields, "pools")),
        replica_ids=frozenset(_words(fields, "replicas")),
    )


def control_done(link: int, names: list[str]) -> ev.ControlDone:
    """Read a worker's answer."""
    error = error_for(names[2]) if len(names) > 2 else None
    return ev.ControlDone(link=link, control_id=int(names[1][1:]), answer=Answer(error=error))


def shown_control(
    effect: fx.AskWorker | fx.AnswerControl, name_of: Callable[[int], str]
) -> Iterator[str]:
    """Tell of a call to a worker, or of what came of one."""
    if isinstance(effect, fx.AskWorker):
        left = f"left={effect.timeout_s:g}"
        yield f"ask {name_of(effect.link)} #{effect.control_id} {_told(effect.call)} {left}"
        return
    error = effect.error
    yield f"answer {effect.call_id}" + (f" {error.code.name} {error.reason}" if error else "")
    for one in effect.results:
        found = one.answer.error
        what = f"{found.code.name} {found.reason}" if found else "done"
        yield f"    {one.replica_id} {what} took={one.took_s:g}"


def _told(call: Call) -> str:
    words = [type(call).__name__]
    for name, value in msgspec.structs.asdict(call).items():
        if isinstance(value, PauseMode):
            words.append(f"{name}={value.name}")
        elif isinstance(value, tuple):
            words.append(f"{name}={','.join(value)}")
        elif name == "drain_s":
            words.append(f"for={value:g}")
    return " ".join(words)


def _words(fields: Fields, name: str) -> tuple[str, ...]:
    return tuple(word for word in fields.get(name, "").split(",") if word)
