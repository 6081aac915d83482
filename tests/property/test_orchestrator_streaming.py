"""A conversation is whole, whatever is lost in the middle of it.

`World` checks every effect on the way: each piece once and in order, nothing without credit.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stagemesh.link.core import REQUEST_SOURCE, Row
from stagemesh.media import Message, Request, TextPart
from stagemesh.outcome import Outcome
from tests.helpers.core_losses import END, LOSSES, LosingMesh, gaps_between
from tests.helpers.core_parties import WorldAttempt, WorldRequest, text_at

PIECES = 12
SEGMENT = 3
"""Pieces in a segment; a run of a stage gives as many units."""
MESSAGES = [(), (Message(role="user", parts=(TextPart("hi"),)),)]


class Conversing(LosingMesh):
    """Clients speak piece by piece, and stages answer what they have heard."""

    def speak(self, request: WorldRequest) -> None:
        """Let the client say the next piece, if it may; every third ends a segment."""
        if request.lost or request.said_all or not request.input_window.open:
            return
        said = request.said or []
        at = len(said)
        row = Row(request.slot, REQUEST_SOURCE, at, 1, chr(97 + at))
        row.segment_end = at % SEGMENT == SEGMENT - 1
        if at == PIECES:
            row = Row(request.slot, REQUEST_SOURCE, at, 0, end=END)
        self.world.append(request, row)

    def say(self, attempt: WorldAttempt, lane: int) -> None:
        """Let a worker give a unit for each that it heard, or a run for a whole segment."""
        pos = attempt.next[lane]
        if not attempt.window.open:
            return
        plain = attempt.request.plain
        complete = len(attempt.input_ended) == len(attempt.inputs)
        heard = sum(attempt.input_next.values())
        may = (SEGMENT if complete else 0) if plain else heard
        if pos < may:
            row = Row(attempt.slot, lane, pos, 1, text_at(lane, pos, 1, plain=plain))
            row.ids = [pos] if attempt.ids else None
            self.world.give(attempt, row)
        elif complete:
            self.world.give(attempt, Row(attempt.slot, lane, pos, 0, end=END))


@pytest.mark.invariant(
    "ORCH-INV-104", "ORCH-INV-106", "ORCH-INV-141", "ORCH-INV-143", "ORCH-INV-204"
)
@given(
    data=st.data(),
    model=st.sampled_from(["listen", "turns"]),
    losses=st.lists(st.sampled_from(LOSSES), max_size=3),
)
def test_a_conversation_is_whole_whatever_is_lost(
    data: st.DataObject, model: str, losses: list[str]
) -> None:
    mesh = Conversing(data)
    at = gaps_between(data, losses)
    asked = Request(model=model, messages=mesh.pick(MESSAGES))
    request = mesh.world.open_request(mesh.gate, asked, 0.0, streamed=True)
    mesh.run(request, losses, at)

    assert request.terminal is not None, "it hangs"
    assert request.terminal.outcome is Outcome.COMPLETED, request.terminal
    [shown] = [lane for lane in request.journal.lanes.values() if lane.visible]
    assert shown.cursor.next == PIECES
    assert shown.segments == (PIECES // SEGMENT if model == "turns" else 0)
    assert "".join(row.text for row in shown.rows) == text_at(
        shown.number, 0, PIECES, plain=request.plain
    )
    mesh.world.run_dry()
    for attempt in mesh.world.attempts:
        mesh.work(attempt)
    mesh.world.run_dry()
    kept = {what: count for what, count in mesh.world.core.footprint().items() if count}
    assert not kept, "nothing is kept of requests that are over"
