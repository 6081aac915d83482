"""Links over gRPC: the codec, the two loops, and the two ends that open them."""

from stagemesh.link.pump.codec import Received, WireFault, decode, encode
from stagemesh.link.pump.dialer import Attach, Dialer
from stagemesh.link.pump.greeting import PROTOCOL
from stagemesh.link.pump.journals import (
    journal_from_proto,
    journal_to_proto,
    lane_journal_from_proto,
    lane_journal_to_proto,
    placed_from_proto,
    placed_to_proto,
)
from stagemesh.link.pump.link import FRAME_BYTES_MAX, FrameTooLarge, Link, LinkEvents
from stagemesh.link.pump.policy import Backoff, LinkEnd, LinkPolicy
from stagemesh.link.pump.serve import serve_link

__all__ = [
    "FRAME_BYTES_MAX",
    "PROTOCOL",
    "Attach",
    "Backoff",
    "Dialer",
    "FrameTooLarge",
    "Link",
    "LinkEnd",
    "LinkEvents",
    "LinkPolicy",
    "Received",
    "WireFault",
    "decode",
    "encode",
    "journal_from_proto",
    "journal_to_proto",
    "lane_journal_from_proto",
    "lane_journal_to_proto",
    "placed_from_proto",
    "placed_to_proto",
    "serve_link",
]
