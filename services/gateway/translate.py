"""Plain values to frames of the orchestrator link, and back. Pure."""

from typing import Final

import msgspec
from google.protobuf.message import DecodeError

from stagemesh.api.types.v1 import link_pb2, request_pb2
from stagemesh.errors import MeshError
from stagemesh.link.core import Journal, split_journal
from stagemesh.link.pump.journals import journal_to_proto
from stagemesh.media import Request
from stagemesh.outcome import Terminal, error_for
from stagemesh.wire import (
    PublishedModelValue,
    published_from_proto,
    request_from_proto,
    request_to_proto,
    terminal_from_proto,
)

__all__ = [
    "PROTOCOL_VERSION",
    "SelfPortrait",
    "abort_frame",
    "fence_frame",
    "go_frame",
    "handle_lost_frame",
    "hello_of",
    "models_of",
    "open_frames",
    "ping_of",
    "request_bytes",
    "request_of",
    "takes_work",
    "terminal_of",
]

PROTOCOL_VERSION: Final = 1

_LARGE_BYTES: Final = 1024 * 1024
"""A request above this has its journal in frames of their own, so that no frame is too large."""

_NO_EPOCH: Final = 2**32 - 1
"""The epoch of a fence for what is unknown or done."""


class SelfPortrait(msgspec.Struct, frozen=True, kw_only=True):
    """Who this gateway is; the windows are those of every request."""

    gateway_id: str
    incarnation: int
    version: str
    pid: int
    payload_address: str
    window_units: int
    window_bytes: int


def hello_of(portrait: SelfPortrait) -> link_pb2.Hello:
    """Introduce this gateway."""
    return link_pb2.Hello(
        service=link_pb2.SERVICE_KIND_GATEWAY,
        id=portrait.gateway_id,
        incarnation=portrait.incarnation,
        version=portrait.version,
        protocol=PROTOCOL_VERSION,
        pid=portrait.pid,
        limits=link_pb2.LinkLimits(
            window_units=portrait.window_units, window_bytes=portrait.window_bytes
        ),
        state=link_pb2.PROCESS_STATE_READY,
        payload_address=portrait.payload_address,
    )


def ping_of(*, draining: bool) -> link_pb2.Ping:
    """Give a sign of life."""
    return link_pb2.Ping(
        state=link_pb2.PROCESS_STATE_DRAINING if draining else link_pb2.PROCESS_STATE_READY
    )


def open_frames(
    *,
    slot: int,
    request_id: str,
    epoch: int,
    deadline_left_s: float,
    request: Request,
    journal: Journal,
    streamed: bool = False,
    inputs_follow: bool = False,
    detach_s: float = 0.0,
    owner_since: int = 0,
) -> list[link_pb2.Frame]:
    """Give a request to an orchestrator, with what it has produced so far; in parts if it is large.

    The first frame has the request, and may be about a journal's part larger. Where pieces of its
    streamed input follow, `go_frame` comes after those, and not here.
    """
    parts = split_journal(journal) if journal else []
    opened = link_pb2.Open(
        slot=slot,
        request_id=request_id,
        epoch=epoch,
        deadline_left_s=deadline_left_s,
        request=request_to_proto(request),
        streamed=streamed,
        more=inputs_follow,
        detach_s=detach_s,
        owner_since=owner_since,
    )
    if len(parts) <= 1 and opened.ByteSize() <= _LARGE_BYTES:
        if parts:
            opened.journal.CopyFrom(journal_to_proto(journal))
        parts = []
    if not parts:
        return [link_pb2.Frame(open=opened)]
    opened.more = True
    return [
        link_pb2.Frame(open=opened),
        *(
            link_pb2.Frame(
                journal_part=link_pb2.JournalPart(slot=slot, journal=journal_to_proto(part))
            )
            for part in parts
        ),
        *(() if inputs_follow else (go_frame(slot),)),
    ]


def go_frame(slot: int) -> link_pb2.Frame:
    """Say that everything of a large request was sent."""
    return link_pb2.Frame(go=link_pb2.Go(slot=slot))


def abort_frame(slot: int, cause: str) -> link_pb2.Frame:
    """End a request."""
    return link_pb2.Frame(abort=link_pb2.Abort(slot=slot, cause=cause))


def fence_frame(slot: int, *, detach: bool = False) -> link_pb2.Frame:
    """Say that a slot means nothing here, or nothing any more; with `detach` it may elsewhere."""
    return link_pb2.Frame(fence=link_pb2.Fence(slot=slot, epoch=_NO_EPOCH, detach=detach))


def handle_lost_frame(slot: int, handle_id: str) -> link_pb2.Frame:
    """Say that the bytes of an output could not be fetched."""
    return link_pb2.Frame(handle_lost=link_pb2.HandleLost(slot=slot, handle_id=handle_id))


def request_bytes(request: Request) -> bytes:
    """Write a request for whoever goes on with it later."""
    return request_to_proto(request).SerializeToString()


def request_of(data: bytes) -> Request:
    """Read a request that was written before.

    Raises:
        MeshError: If it cannot be read, or is of a modality that is not known here.
    """
    try:
        message = request_pb2.Request.FromString(data)
    except DecodeError as error:
        raise MeshError(error_for("internal_error", "A stored request is damaged.")) from error
    return request_from_proto(message)


def terminal_of(message: link_pb2.Terminal) -> Terminal:
    """Read the end of a request.

    Raises:
        MeshError: With `PROTOCOL`, if it names no outcome that is known here.
    """
    return terminal_from_proto(message)


def models_of(
    message: link_pb2.Hello | link_pb2.Ping,
) -> dict[str, PublishedModelValue]:
    """Read what an orchestrator publishes, by name.

    Raises:
        MeshError: If a pipeline is of a modality that is not known here.
    """
    return {pipeline.model: published_from_proto(pipeline) for pipeline in message.pipelines}


def takes_work(state: int) -> bool:
    """Tell whether a process in this state takes new requests."""
    return state == link_pb2.PROCESS_STATE_READY
