"""Between a bridge and an engine: what the bridge gives becomes one start, appends and a close."""

from functools import reduce

import msgspec

from services.stage_worker.bridges.base import Bridge, Fed
from services.stage_worker.engines.base import EngineInput, TextInput
from stagemesh.errors import MeshError
from stagemesh.outcome import error_for

__all__ = ["Append", "Begin", "Close", "Intake", "Nothing", "Order"]


class Begin(msgspec.Struct, frozen=True):
    """Start the attempt; `streamed` means that more may come."""

    input: EngineInput
    streamed: bool


class Append(msgspec.Struct, frozen=True):
    """Give the attempt its next input."""

    input: EngineInput


class Close(msgspec.Struct, frozen=True):
    """The input of a streamed attempt is complete."""


class Nothing(msgspec.Struct, frozen=True):
    """The input is complete and was empty: there is nothing to run."""


Order = Append | Begin | Close | Nothing


class Intake:
    """Gives an engine its input in the way that it can take it.

    An engine that takes no streamed input gets everything at once, when it is complete.
    """

    def __init__(self, bridge: Bridge, *, streams: bool) -> None:
        self._bridge = bridge
        self._streams = streams
        self._kept: list[EngineInput] = []
        self._streamed = False
        self._closed = False

    def start(self) -> list[Order]:
        """Give what the request alone allows."""
        return self._orders(self._bridge.start())

    def feed(self, fed: Fed) -> list[Order]:
        """Take one upstream output; give what it completes."""
        return [] if self._closed else self._orders(self._bridge.feed(fed))

    def _orders(self, inputs: list[EngineInput]) -> list[Order]:
        complete = self._bridge.complete
        self._closed = complete
        if self._streamed:
            return [*map(Append, inputs), *([Close()] if complete else [])]
        kept = self._kept
        kept += inputs
        if complete:
            if not kept:
                return [Nothing()]
            if len(kept) == 1 or not self._streams:
                return [Begin(reduce(_joined, kept), streamed=False)]
        elif not (kept and self._streams):
            return []
        self._streamed = True
        first, *rest = kept
        kept.clear()
        return [Begin(first, streamed=True), *map(Append, rest), *([Close()] if complete else [])]


def _joined(one: EngineInput, other: EngineInput) -> EngineInput:
    if isinstance(one, TextInput) and isinstance(other, TextInput):
        return TextInput(
            text=one.text + other.text,
            units=one.units + other.units,
            origin=_spanning(one.origin, other.origin),
        )
    raise MeshError(error_for("protocol_error", "this engine takes one input of this kind only"))


def _spanning(one: tuple[int, int] | None, other: tuple[int, int] | None) -> tuple[int, int] | None:
    if one is None or other is None:
        return one or other
    return min(one[0], other[0]), max(one[1], other[1])
