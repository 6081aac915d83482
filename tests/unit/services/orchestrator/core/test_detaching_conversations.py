"""Detachable conversations: they outlive their gateway once their input is whole."""

import pytest

from services.orchestrator.core import effects as fx
from services.orchestrator.core import events as ev
from stagemesh.link.core import REQUEST_SOURCE, Row
from stagemesh.outcome import ErrorCode, Outcome
from tests.helpers.core_stage import END, make_request
from tests.helpers.core_takeover import BYTES, DETACH_S, UNITS, Detached, sent, terminals


class Conversation(Detached):
    """A request whose client gives its input piece by piece; one of them has come."""

    def __init__(self, model: str = "chatter", pool: str = "mixer") -> None:
        super().__init__(model, streamed=True)
        self.links = [self.replica(pool, units=1)[0]]
        self.say(0, "hello")

    def say(self, pos: int, text: str = "", *, link: int = 1) -> list[fx.Effect]:
        """Give a piece, or the end where there is no text."""
        end = None if text else END
        row = Row(7, REQUEST_SOURCE, pos, 1 if text else 0, text, end=end)
        return self.do(ev.InputsAppended(link=link, rows=[row]))


def test_a_conversation_whose_input_is_whole_goes_on_at_the_next_gateway() -> None:
    stage = Conversation()
    (mixer,) = stage.links
    stage.say(1)
    stage.lose_gateway()
    stage.rows(mixer, stage.text(1, 0, "a", end=True))
    assert sent(stage.take_over()) == [(7, 0, "a", True)]
    assert terminals(stage.confirm(2, 1, link=50)) == [(50, Outcome.COMPLETED, None)]


def test_a_conversation_that_waits_for_its_turn_is_given_it_at_the_next_gateway() -> None:
    stage = Conversation("listen", "listener")
    stage.do(ev.ClientAttached(link=40, window_units=UNITS, window_bytes=BYTES, mirrors=True))
    for slot in (1, 2):  # These have the turns: their worker has not taken all of it.
        opened = ev.Opened(
            link=40, slot=slot, request_id=f"other-{slot}", epoch=1, deadline_left_s=0.0,
            request=make_request("listen"), body=None, streamed=True,
        )  # fmt: skip
        stage.do(opened)
        rows = [Row(slot, REQUEST_SOURCE, at, 1, "a") for at in range(2)]
        stage.do(ev.InputsAppended(link=40, rows=rows))
    stage.say(1)
    assert [stage.core.footprint()[what] for what in ("running", "waiting")] == [2, 1]
    stage.lose_gateway()
    stage.do(ev.AbortAsked(link=40, slot=1, cause="asked"))
    stage.do(ev.AttemptUnknown(link=stage.links[0], slot=2))
    stage.take_over()
    assert stage.core.footprint()["running"] == 2
    assert stage.core.footprint()["idle"] == stage.core.footprint()["waiting"] == 0


@pytest.mark.parametrize("living", [True, False])
def test_a_conversation_that_is_still_being_spoken_goes_on_nowhere(living: bool) -> None:
    """How much of its input has come is known to nobody but the gateway that gave it."""
    stage = Conversation()
    if not living:
        stage.lose_gateway()
    assert terminals(stage.take_over()) == [(50, Outcome.FAILED, ErrorCode.LINK_LOST)]
    assert stage.core.requests_open == 0


def test_a_conversation_that_is_still_being_spoken_is_given_up_soon() -> None:
    stage = Conversation()
    stage.lose_gateway()
    stage.wait(2.0)
    assert stage.core.requests_open == 0


def test_a_conversation_without_its_input_is_not_begun() -> None:
    stage = Conversation()
    stage.say(1)
    stage.lose_gateway()
    stage.wait(DETACH_S)
    assert terminals(stage.take_over()) == [(50, Outcome.FAILED, ErrorCode.LINK_LOST)]
