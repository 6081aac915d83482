"""Keeps the last inputs of the core, by reference, to be written down when something went wrong.

What it costs for each output is to note its slot and size: the core changes a row's slot in place.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from services.orchestrator.core.door import request_bytes
from services.orchestrator.core.effects import Effect, EndRequest, SubmitAttempts
from services.orchestrator.core.events import (
    ClientAttached,
    ClientLost,
    Event,
    InputsAppended,
    InteractAsked,
    Opened,
    ReplicaAttached,
    ReplicaListed,
    ReplicaLost,
    ReplicaReported,
    RowsArrived,
)
from services.orchestrator.driver.blanking import blanked
from services.orchestrator.driver.dumps import Ended, Step, Submitted

__all__ = ["Recorder", "Recording"]

EVENTS_MAX: Final = 4096
BYTES_MAX: Final = 8 * 1024 * 1024
"""Of the content that the kept inputs hold on to, about."""

STANDING_MAX: Final = 4096


class _Taken:
    """One input, as it came."""

    __slots__ = ("effects", "ended", "event", "now_s", "size_bytes", "slots", "submitted")

    def __init__(self, event: Event, now_s: float) -> None:
        self.event = event
        self.now_s = now_s
        self.slots: list[int] = []
        self.size_bytes = 0
        self.effects: tuple[type[Effect], ...] | None = None
        self.submitted: tuple[Submitted, ...] = ()
        self.ended: tuple[Ended, ...] = ()

    def step(self, models: frozenset[str]) -> Step:
        """Write it down, without content."""
        event = self.event
        if isinstance(event, RowsArrived):
            rows = [
                msgspec.structs.replace(row, slot=slot, visible=True)
                for row, slot in zip(event.rows, self.slots, strict=True)
            ]
            event = RowsArrived(link=event.link, rows=rows)
        return Step(
            now_s=self.now_s,
            event=blanked(event, models),
            effects=None if self.effects is None else tuple(k.__name__ for k in self.effects),
            submitted=self.submitted,
            ended=self.ended,
        )


class Recording:
    """What a recorder kept at one moment; writing it down may be done in a thread."""

    def __init__(
        self,
        models: frozenset[str],
        skipped: int,
        standing: Sequence[_Taken],
        taken: Sequence[_Taken],
    ) -> None:
        self.skipped = skipped
        self._models = models
        self._standing = standing
        self._taken = taken

    def standing(self) -> tuple[Step, ...]:
        """Write down those of the skipped inputs that say who is linked, in order."""
        return tuple(taken.step(self._models) for taken in self._standing)

    def steps(self) -> tuple[Step, ...]:
        """Write down the inputs that are kept, in order."""
        return tuple(taken.step(self._models) for taken in self._taken)


class Recorder:
    """A ring of inputs, bounded in number and in content; and who is linked, from before it."""

    def __init__(
        self,
        models: Iterable[str],
        *,
        events_max: int = EVENTS_MAX,
        bytes_max: int = BYTES_MAX,
    ) -> None:
        self._models = frozenset(models)
        self._events_max = events_max
        self._bytes_max = bytes_max
        self._ring: deque[_Taken] = deque()
        self._size_bytes = 0
        self.skipped = 0
        """How many inputs are not kept any more."""
        # By link, and by replica that discovery has dropped.
        self._standing: dict[tuple[str, int | str], _Taken] = {}

    def __len__(self) -> int:
        return len(self._ring)

    def take(self, event: Event, now_s: float) -> None:
        """Note an input, before the core takes it."""
        taken = _Taken(event, now_s)
        if type(event) is RowsArrived:
            rows = event.rows
            taken.slots = [row.slot for row in rows]
            taken.size_bytes = sum(
                [len(row.text) if row.body is None else len(row.body.inline) for row in rows]
            )
        elif type(event) is Opened:
            taken.size_bytes = request_bytes(event.request) + event.journal.size_bytes
            taken.size_bytes += sum(row.size_bytes for row in event.inputs)
        elif type(event) is InputsAppended:
            taken.size_bytes = sum(row.size_bytes for row in event.rows)
        elif type(event) is InteractAsked:
            taken.size_bytes = len(event.text)
        self._size_bytes += taken.size_bytes
        self._ring.append(taken)
        while len(self._ring) > self._events_max or (
            self._size_bytes > self._bytes_max and len(self._ring) > 1
        ):
            self._skip(self._ring.popleft())

    def gave(self, effects: list[Effect]) -> None:
        """Note what the core made of the last input."""
        taken = self._ring[-1]
        taken.effects = tuple([type(effect) for effect in effects])
        for effect in effects:
            if type(effect) is SubmitAttempts:
                taken.submitted += _submitted(effect)
            elif type(effect) is EndRequest:
                taken.ended += (Ended(effect.request_id, int(effect.terminal.outcome)),)

    def kept(self) -> "Recording":
        """Give what is kept now; later inputs do not change it."""
        standing = sorted(self._standing.values(), key=lambda taken: taken.now_s)
        return Recording(self._models, self.skipped, standing, list(self._ring))

    def _skip(self, taken: _Taken) -> None:
        self._size_bytes -= taken.size_bytes
        self.skipped += 1
        match taken.event:
            case ClientAttached(link=link) | ReplicaAttached(link=link):
                self._standing["attached", link] = taken
            case ReplicaReported(link=link):
                self._standing["reported", link] = taken
            case ClientLost(link=link) | ReplicaLost(link=link):
                self._standing.pop(("attached", link), None)
                self._standing.pop(("reported", link), None)
            case ReplicaListed(replica_id=replica_id, listed=listed):
                self._standing.pop(("unlisted", replica_id), None)
                if not listed and len(self._standing) < STANDING_MAX:
                    self._standing["unlisted", replica_id] = taken
            case _:
                pass


def _submitted(effect: SubmitAttempts) -> tuple[Submitted, ...]:
    return tuple(
        Submitted(
            effect.link,
            role.slot,
            effect.request_id,
            effect.epoch,
            effect.attempt,
            effect.stage,
            role.role,
        )
        for role in effect.roles
    )
