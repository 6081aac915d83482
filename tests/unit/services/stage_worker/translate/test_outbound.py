import pytest

from services.stage_worker.core.effects import (
    SayGoAway,
    SendFenced,
    SendHandBack,
    SendHandleLost,
    SendInteracted,
    SendTerminal,
    SendUnknown,
)
from services.stage_worker.translate import FrameEffect, frame_of
from stagemesh.api.types.v1 import link_pb2
from stagemesh.outcome import Outcome, Terminal, error_for
from stagemesh.wire import error_from_proto, terminal_from_proto


@pytest.mark.parametrize(
    ("effect", "frame"),
    [
        (SendUnknown(link=1, slot=3), link_pb2.Frame(unknown=link_pb2.Unknown(slot=3))),
        (
            SendFenced(link=1, request_id="a", epoch=2),
            link_pb2.Frame(fenced=link_pb2.Fenced(request_id="a", epoch=2)),
        ),
        (
            SendFenced(link=1, request_id="a", epoch=2, held=("h",)),
            link_pb2.Frame(fenced=link_pb2.Fenced(request_id="a", epoch=2, held=["h"])),
        ),
        (SendHandBack(link=1, slot=3), link_pb2.Frame(hand_back=link_pb2.HandBack(slot=3))),
        (
            SendHandleLost(link=1, slot=3, handle_id="h"),
            link_pb2.Frame(handle_lost=link_pb2.HandleLost(slot=3, handle_id="h")),
        ),
        (
            SendInteracted(link=1, slot=3, interaction_id="p", applied_at=7, error=None),
            link_pb2.Frame(
                interacted=link_pb2.Interacted(slot=3, interaction_id="p", applied_at=7)
            ),
        ),
        (
            SayGoAway(link=1, reason="draining", drain_s=2.5),
            link_pb2.Frame(go_away=link_pb2.GoAway(reason="draining", drain_s=2.5)),
        ),
    ],
)
def test_an_effect_is_one_frame(effect: FrameEffect, frame: link_pb2.Frame) -> None:
    assert frame_of(effect) == frame


def test_a_terminal_comes_back_as_it_was() -> None:
    terminal = Terminal(outcome=Outcome.FAILED, error=error_for("engine_error", stage="s"))
    frame = frame_of(SendTerminal(link=1, slot=7, terminal=terminal))
    assert frame.terminal.slot == 7
    assert terminal_from_proto(frame.terminal) == terminal


def test_a_refused_prompt_tells_its_cause() -> None:
    error = error_for("conflict", "too late")
    frame = frame_of(SendInteracted(link=1, slot=3, interaction_id="p", applied_at=0, error=error))
    assert error_from_proto(frame.interacted.error) == error
