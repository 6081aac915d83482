"""Open requests and their attempts."""

import pytest

from services.orchestrator.core.moves import (
    ATTEMPT_MOVES,
    AttemptState,
    IllegalMove,
    RequestState,
    Standing,
)
from services.orchestrator.core.plan import compile_plan
from services.orchestrator.core.request import Attempt, Client, OpenRequest
from stagemesh.link.core import Meter
from stagemesh.media import Modality
from tests.helpers.core_mesh import core_mesh


def opened(model: str) -> OpenRequest:
    plan = compile_plan(
        core_mesh().pipelines[model],
        modalities=frozenset(),
        choices=1,
        inputs=frozenset({Modality.TEXT}),
    )
    return OpenRequest(
        number=1,
        request_id="r1",
        epoch=1,
        client=Client(1, 64, 1024),
        slot=1,
        plan=plan,
        body=None,
        input_bytes=0,
        opened_s=0.0,
        deadline_s=9.0,
    )


def test_lanes_know_who_reads_them() -> None:
    talk = opened("talk")
    text, audio = talk.groups[0].lanes[0], talk.groups[1].lanes[0]
    assert (text.visible, text.direct, text.unfed) == (True, False, 1)
    assert (audio.visible, audio.direct, audio.unfed) == (True, True, 0)
    assert talk.groups[1].sources == (text,)
    assert talk.lanes_left == 2
    paint = opened("paint")
    assert [lane.visible for lane in paint.groups[0].lanes] == [False, False]
    assert paint.groups[1].sources == paint.groups[0].lanes


def test_a_request_moves_by_its_table() -> None:
    request = opened("echo")
    request.move(RequestState.RUNNING)
    request.move(RequestState.DONE)
    with pytest.raises(IllegalMove, match="request: from DONE to RUNNING"):
        request.move(RequestState.RUNNING)


@pytest.mark.invariant("ORCH-INV-107")
def test_a_group_moves_by_its_table_only() -> None:
    group = opened("echo").groups[0]
    group.move(Standing.WAITING)
    group.move(Standing.PENDING)
    group.move(Standing.LIVE)
    group.move(Standing.OVER)
    with pytest.raises(IllegalMove, match="group: from OVER to LIVE"):
        group.move(Standing.LIVE)


def test_an_attempt_moves_by_its_table_and_has_no_replica_before_it_is_placed() -> None:
    group = opened("echo").groups[0]
    attempt = Attempt(
        group=group,
        role=group.plan.roles[0],
        number=0,
        state=ATTEMPT_MOVES.start,
        meter=Meter(1, 1),
    )
    with pytest.raises(IllegalMove, match="state PENDING has no replica"):
        _ = attempt.replica
    with pytest.raises(IllegalMove, match="attempt: from PENDING to STREAMING"):
        attempt.move(AttemptState.STREAMING)
    attempt.move(AttemptState.CANCELLED)
    assert (attempt.running, attempt.state) == (False, AttemptState.CANCELLED)
