"""When a stage has enough of its inputs to begin."""

from services.orchestrator.core.request import Group
from stagemesh.pipeline import EdgeMode

__all__ = ["can_start"]


def can_start(group: Group) -> bool:
    """Whether whole inputs are complete and streams have begun, as far as it may be sent them."""
    for source, lane in zip(group.plan.sources, group.sources, strict=True):
        if lane.closed:
            continue
        if source.mode is EdgeMode.WHOLE or not lane.end:
            return False
    return True
