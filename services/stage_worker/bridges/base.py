"""Bridges: the pure code that turns a request and upstream outputs into a stage's input.

A bridge lives as long as one attempt and does no I/O: handles were fetched before it sees a body.
"""

from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from services.stage_worker.engines.base import EngineInput
from stagemesh.media import Body, OutputKind, Params, Request

__all__ = ["Bridge", "BridgeFactory", "Context", "Fed", "SourceSpec"]


class SourceSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One input lane: the source stage's name, and the companion's where it is a companion's."""

    lane: int
    stage: str
    companion: str = ""


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """What a bridge may know of its attempt.

    `request.messages` is empty where the stage does not read the client's input; media in it is
    inline where the bridge reads media.
    """

    request: Request
    params: Params
    stage: str
    companion: str
    choice: int
    sources: tuple[SourceSpec, ...]
    options: Mapping[str, Any]


class Fed(msgspec.Struct, frozen=True, kw_only=True):
    """One upstream output as a bridge gets it; `last` marks the end of its lane.

    It covers `[pos, pos + units)` of the source. The first one begins above 0 where the attempt
    goes on from an input in the middle; the bridge begins there as if nothing had been before.

    What a client gives piece by piece comes alike, from the source `input`: text, audio in `body`,
    or nothing but the end of a segment. There `units` is 1, and pieces are cut where the client or
    its connection cut them.
    """

    source: SourceSpec
    units: int
    pos: int = 0
    text: str = ""
    ids: list[int] | None = None
    kind: OutputKind = OutputKind.TEXT
    body: Body | None = None
    last: bool = False
    segment_end: bool = False


class Bridge(Protocol):
    """Makes the inputs of one attempt.

    The first input that it gives starts the attempt, later ones are appended to it. Once `complete`
    is true it gives no more. It raises `MeshError` where the input cannot be used.
    """

    @property
    def complete(self) -> bool:
        """Whether everything has been given."""
        ...

    def start(self) -> list[EngineInput]:
        """Give what the request alone allows."""
        ...

    def feed(self, fed: Fed) -> list[EngineInput]:
        """Take one upstream output; give what it completes."""
        ...


class BridgeFactory(Protocol):
    """Makes a bridge for each attempt: what the entry points of `stagemesh.bridges` name.

    It raises `MeshError` where its options, or the sources of the attempt, make no sense.
    """

    @property
    def reads_media(self) -> bool:
        """Whether it reads the media of the request, which are then fetched first."""
        ...

    def __call__(self, context: Context) -> Bridge:
        """Make the bridge of one attempt."""
        ...
