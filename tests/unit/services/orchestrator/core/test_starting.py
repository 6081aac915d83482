"""When a stage can begin."""

from services.orchestrator.core.request import Group
from services.orchestrator.core.starting import can_start
from stagemesh.link.core import REQUEST_SOURCE, Row
from tests.helpers.core_stage import CoreStage, make_request


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
