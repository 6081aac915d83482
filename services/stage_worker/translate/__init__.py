"""Between link messages and the core's values: two pure ways, next to each other."""

from services.stage_worker.translate.cards import card_to_proto, limits_to_proto, load_to_proto
from services.stage_worker.translate.inbound import event_of, link_attached
from services.stage_worker.translate.outbound import FrameEffect, frame_of

__all__ = [
    "FrameEffect",
    "card_to_proto",
    "event_of",
    "frame_of",
    "limits_to_proto",
    "link_attached",
    "load_to_proto",
]
