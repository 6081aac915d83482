"""What operators want of a pool until it is undone, so that new incarnations get it too.

Only the orchestrator that took the call knows its will; the others see what workers report. A will
ends when it is undone here, or when a replica that had obeyed it reports that somebody undid it.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from stagemesh.control import OPEN, Call, Drain, Gate, Pause, PauseMode, Resume, Sleep, WakeUp

__all__ = ["NO_WILL", "Will", "missing", "obeys", "taken", "told_otherwise", "undone"]


class Will(msgspec.Struct, frozen=True, kw_only=True):
    """What every replica of a pool shall be; `asleep` names what of its engine sleeps."""

    paused: PauseMode | None = None
    asleep: frozenset[str] = frozenset()
    level: int = 1

    @property
    def closes(self) -> bool:
        """Whether the pool takes nothing new."""
        return self.paused is not None or bool(self.asleep)


NO_WILL: Final = Will()


def taken(will: Will, call: Call, tags: frozenset[str]) -> Will:
    """Give the will after a replica carried a call out; `tags` is what its engine can let sleep."""
    match call:
        case Pause(mode=mode):
            return msgspec.structs.replace(will, paused=mode)
        case Sleep(mode=mode, level=level):
            asleep = will.asleep | (frozenset(call.tags) or tags)
            return Will(paused=mode, asleep=asleep, level=level)
        case _:
            return will


def undone(will: Will, call: Call) -> Will:
    """Give the will after a call that undoes some of it was made, whatever came of it."""
    match call:
        case Resume() if not will.asleep:
            return msgspec.structs.replace(will, paused=None)
        case WakeUp(tags=tags):
            asleep = will.asleep - frozenset(tags) if tags else frozenset[str]()
            return msgspec.structs.replace(will, asleep=asleep)
        case _:
            return will


def told_otherwise(will: Will, gate: Gate) -> Will:
    """Give what is left of a will where a replica that had obeyed reports another gate."""
    paused = will.paused if gate.paused is not None else None
    return msgspec.structs.replace(will, paused=paused, asleep=will.asleep & gate.asleep)


def obeys(will: Will, gate: Gate) -> bool:
    """Tell whether a replica is what every replica of its pool shall be."""
    return next(missing(will, gate), None) is None


def missing(will: Will, gate: Gate = OPEN, *, drain_s: float | None = None) -> Iterator[Call]:
    """Give the calls that make a replica what it shall be; `drain_s` if it shall be drained."""
    if drain_s is not None and not gate.drained:
        yield Drain(drain_s=drain_s)
    left = will.asleep - gate.asleep
    # What runs there runs against an operator's will: it may finish, but is not kept.
    mode = PauseMode.ABORT if will.paused is PauseMode.ABORT else PauseMode.WAIT
    if left:
        yield Sleep(mode=mode, level=will.level, tags=tuple(sorted(left)))
    elif will.paused is not None and gate.paused is None:
        yield Pause(mode=will.paused)
