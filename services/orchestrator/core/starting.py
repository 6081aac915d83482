"""When a stage has enough of its inputs to begin."""

from services.orchestrator.core.flow import Lane
from services.orchestrator.core.request import Group
from stagemesh.pipeline import EdgeMode

__all__ = ["can_start", "leave_segments", "wants_more", "was_last"]


def can_start(group: Group) -> bool:
    """Whether whole inputs are complete and streams have begun, as far as it may be sent them.

    A stage that reads by segments needs the whole of its next one.
    """
    for source, lane in zip(group.plan.sources, group.sources, strict=True):
        if source.mode is EdgeMode.SEGMENT:
            if lane.segments_there <= group.segment:
                return False
            continue
        if lane.closed:
            continue
        if source.mode is EdgeMode.WHOLE or not lane.end:
            return False
    return True


def was_last(group: Group) -> bool:
    """Whether a group that reads by segments has had all that there will ever be."""
    return all(
        lane.closed and lane.segments_there <= group.segment
        for source, lane in zip(group.plan.sources, group.sources, strict=True)
        if source.mode is EdgeMode.SEGMENT
    )


def leave_segments(group: Group) -> None:
    """Note that a group wants no more segments."""
    for lane in group.sources:
        if group in lane.by_segment:
            lane.by_segment.remove(group)
            group.request.journal_bytes += lane.trim()


def wants_more(group: Group, lane: Lane) -> bool:
    """Whether a group that runs still has to be sent something of a lane."""
    if group.plan.reads_segments(lane.number) and not (
        lane.closed and lane.segments_there <= group.segment + 1
    ):
        return True
    feeds = [attempt.feeds.get(lane.number) for attempt in group.attempts]
    return any(feed is not None and not feed.complete for feed in feeds)
