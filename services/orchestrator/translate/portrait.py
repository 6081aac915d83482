"""What this orchestrator says of itself on its links."""

from collections.abc import Sequence

import msgspec

from stagemesh.api.types.v1 import link_pb2
from stagemesh.link.core import WINDOW_BYTES, WINDOW_UNITS

__all__ = ["Portrait", "hello_of", "news_of", "sign_of_life"]


class Portrait(msgspec.Struct, frozen=True, kw_only=True):
    """Who this process is; the windows are those of every attempt's outputs."""

    orchestrator_id: str
    incarnation: int
    version: str
    pid: int
    payload_address: str
    window_units: int = WINDOW_UNITS
    window_bytes: int = WINDOW_BYTES


def hello_of(
    portrait: Portrait, *, draining: bool, pipelines: Sequence[link_pb2.PublishedPipeline]
) -> link_pb2.Hello:
    """Introduce this orchestrator."""
    return link_pb2.Hello(
        service=link_pb2.SERVICE_KIND_ORCHESTRATOR,
        id=portrait.orchestrator_id,
        incarnation=portrait.incarnation,
        version=portrait.version,
        pid=portrait.pid,
        limits=link_pb2.LinkLimits(
            window_units=portrait.window_units, window_bytes=portrait.window_bytes
        ),
        state=_state(draining),
        pipelines=pipelines,
        payload_address=portrait.payload_address,
    )


def news_of(*, draining: bool, pipelines: Sequence[link_pb2.PublishedPipeline]) -> link_pb2.Ping:
    """Tell a gateway which models can be served."""
    return link_pb2.Ping(state=_state(draining), pipelines=pipelines, has_pipelines=True)


def sign_of_life(*, draining: bool) -> link_pb2.Ping:
    """Tell a worker that its orchestrator is there."""
    return link_pb2.Ping(state=_state(draining))


def _state(draining: bool) -> link_pb2.ProcessState.ValueType:
    return link_pb2.PROCESS_STATE_DRAINING if draining else link_pb2.PROCESS_STATE_READY
