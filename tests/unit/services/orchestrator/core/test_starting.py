"""When a stage can begin."""

import pytest

from services.orchestrator.core.request import Group
from services.orchestrator.core.starting import can_start, wants_more, was_last
from stagemesh.link.core import REQUEST_SOURCE, Row
from tests.helpers.core_stage import END, CoreStage, make_request


def listener_of(stage: CoreStage) -> Group:
    """Open a conversation that no replica serves; give its one stage."""
    stage.converse(make_request("listen"))
    (request,) = stage.core._state.requests.values()
    (group,) = request.groups
    return group


def test_a_stage_that_hears_its_client_begins_with_the_first_piece() -> None:
    stage = CoreStage()
    group = listener_of(stage)
    assert not can_start(group)
    group.request.lanes[REQUEST_SOURCE].keep(Row(1, REQUEST_SOURCE, 0, 1, "a"))
    assert can_start(group)


def test_a_stage_whose_input_is_complete_begins_with_nothing_too() -> None:
    stage = CoreStage()
    group = listener_of(stage)
    group.request.lanes[REQUEST_SOURCE].closed = True
    assert can_start(group)


def turns_of(stage: CoreStage) -> tuple[Group, Group]:
    """Open a conversation of two stages that run by segments."""
    stage.converse(make_request("turns"))
    (request,) = stage.core._state.requests.values()
    listener, mixer = request.groups
    return listener, mixer


@pytest.mark.invariant("ORCH-INV-143")
def test_a_stage_that_reads_by_segments_begins_with_each_that_is_complete() -> None:
    stage = CoreStage()
    listener, mixer = turns_of(stage)
    lane = listener.request.lanes[REQUEST_SOURCE]
    lane.keep(Row(1, REQUEST_SOURCE, 0, 1, "a"))
    assert not can_start(listener)
    lane.keep(Row(1, REQUEST_SOURCE, 1, 1, segment_end=True))
    assert can_start(listener)
    assert not can_start(mixer), "each stage is at a segment of its own"
    assert wants_more(listener, lane)
    listener.lanes[0].next_run()
    assert not can_start(listener)
    assert not was_last(listener)
    lane.keep(Row(1, REQUEST_SOURCE, 2, 0, end=END))
    assert was_last(listener)
    assert not was_last(mixer)
