"""Protobuf and core values, each way; pure."""

from services.orchestrator.translate.generated import PIECE_BYTES_MAX, GeneratedOutputs
from services.orchestrator.translate.inbound import (
    client_attached,
    gateway_event,
    opened,
    replica_attached,
    worker_event,
)
from services.orchestrator.translate.outbound import (
    FrameEffect,
    frame_of,
    published_pipelines,
    terminal_frame,
)
from services.orchestrator.translate.portrait import Portrait, hello_of, news_of, sign_of_life
from services.orchestrator.translate.submits import Submits
from services.orchestrator.translate.timelines import (
    request_summary_to_proto,
    request_view_to_proto,
)
from services.orchestrator.translate.views import KnownReplica, replica_to_proto

__all__ = [
    "PIECE_BYTES_MAX",
    "FrameEffect",
    "GeneratedOutputs",
    "KnownReplica",
    "Portrait",
    "Submits",
    "client_attached",
    "frame_of",
    "gateway_event",
    "hello_of",
    "news_of",
    "opened",
    "published_pipelines",
    "replica_attached",
    "replica_to_proto",
    "request_summary_to_proto",
    "request_view_to_proto",
    "sign_of_life",
    "terminal_frame",
    "worker_event",
]
