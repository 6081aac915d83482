"""Whatever is lost: where the contracts allow it, a client gets one continuous stream.

`World` checks every effect on the way: no position twice or skipped, no effect before its cause.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stagemesh.media import Message, Request, TextPart
from stagemesh.outcome import Outcome
from tests.helpers.core_losses import LOSSES, UNITS, LosingMesh, gaps_between
from tests.helpers.core_parties import text_at

CHOICES = {"echo": 3, "talk": 2, "relay3": 2, "paint": 2, "twice": 1, "rejoin": 1}


@pytest.mark.invariant("ORCH-INV-106", "ORCH-INV-108", "ORCH-INV-109", "ORCH-INV-204")
@given(
    data=st.data(),
    model=st.sampled_from(sorted(CHOICES)),
    losses=st.lists(st.sampled_from(LOSSES), max_size=3),
)
def test_a_request_completes_with_every_position_whatever_is_lost(
    data: st.DataObject, model: str, losses: list[str]
) -> None:
    mesh = LosingMesh(data)
    at = gaps_between(data, losses)
    choices = data.draw(st.integers(1, CHOICES[model]))
    asked = Request(
        model=model,
        messages=(Message(role="user", parts=(TextPart("hi"),)),),
        choices=choices,
    )
    request = mesh.world.open_request(mesh.gate, asked, 0.0)
    mesh.run(request, losses, at)

    assert request.terminal is not None, "it hangs"
    assert request.terminal.outcome is Outcome.COMPLETED, request.terminal
    shown = [lane for lane in request.journal.lanes.values() if lane.visible]
    assert all(lane.cursor.next == UNITS for lane in shown)
    for lane in shown:
        if lane.rows:
            assert "".join(row.text for row in lane.rows) == text_at(lane.number, 0, UNITS)
    mesh.world.run_dry()
    for attempt in mesh.world.attempts:
        mesh.work(attempt)
    mesh.world.run_dry()
    kept = {what: count for what, count in mesh.world.core.footprint().items() if count}
    assert not kept, "nothing is kept of requests that are over"
