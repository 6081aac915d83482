"""Payloads that are gone."""

from services.orchestrator.core import effects as fx
from services.orchestrator.core import events as ev
from services.orchestrator.core.contracts import ResumeContract
from stagemesh.link.core import Row
from stagemesh.media import Body, Handle, Modality, lane_of
from stagemesh.outcome import ErrorCode
from tests.helpers.core_stage import END, CoreStage, make_request, of_kind

REPLAY, RESTART = ResumeContract.REPLAY, ResumeContract.RESTART
MEANT, MEANT_NOT = (lane_of(0, role, Modality.TENSOR) for role in range(2))
PICTURE = lane_of(1, 0, Modality.IMAGE)


def kept(name: str) -> Body:
    handle = Handle(handle_id=name, request_id="r1", holder_id="w", incarnation=1, address="")
    return Body(handle=handle)


def painting(encoder: ResumeContract, *, mirrors: bool = True) -> tuple[CoreStage, int, int]:
    """Bring a request as far as that its painter reads two handles."""
    stage = CoreStage(mirrors=mirrors)
    first, _ = stage.replica("encoder", encoder)
    painter, _ = stage.replica("painter", REPLAY)
    stage.open(make_request("paint"))
    stage.rows(first, Row(1, MEANT, 0, 1, body=kept("p"), end=END))
    stage.rows(first, Row(2, MEANT_NOT, 0, 1, body=kept("n"), end=END))
    return stage, first, painter


def ends(effects: list[fx.Effect]) -> list[ErrorCode]:
    return [e.terminal.error.code for e in of_kind(effects, fx.EndRequest) if e.terminal.error]


def test_only_the_role_whose_payload_is_gone_works_again() -> None:
    stage, _, painter = painting(REPLAY)
    effects = stage.do(ev.HandleLost(link=painter, slot=1, handle_id="n")) + stage.wait(0.05)
    (submit,) = of_kind(effects, fx.SubmitAttempts)
    assert (submit.stage, [role.role for role in submit.roles]) == (0, [1])


def test_what_the_gateway_was_told_is_dropped_before_it_is_made_again() -> None:
    stage, _, painter = painting(RESTART)
    effects = stage.do(ev.HandleLost(link=painter, slot=1, handle_id="n")) + stage.wait(0.05)
    assert [reset.stages for reset in of_kind(effects, fx.ResetLanes)] == [(0, 1)]
    (submit,) = of_kind(effects, fx.SubmitAttempts)
    assert [role.role for role in submit.roles] == [0, 1]


def test_a_payload_that_is_none_of_its_inputs_ends_the_request() -> None:
    stage, _, painter = painting(REPLAY)
    effects = stage.do(ev.HandleLost(link=painter, slot=1, handle_id="strange"))
    assert ends(effects + stage.do(ev.AttemptUnknown(link=painter, slot=1))) == [
        ErrorCode.REPLICA_LOST
    ]


def test_a_payload_that_is_lost_again_and_again_ends_the_request() -> None:
    stage, encoder, painter = painting(REPLAY)
    slot, name, causes = 3, "p", []
    for turn in range(1, 5):
        effects = stage.do(ev.HandleLost(link=painter, slot=turn, handle_id=name))
        effects += stage.wait(1.0)
        causes += ends(effects)
        if causes:
            break
        name = f"p{turn}"
        stage.rows(encoder, Row(slot, MEANT, 0, 1, body=kept(name), end=END))
        slot += 1
    assert causes == [ErrorCode.REPLICA_LOST]


def test_a_caller_has_taken_what_it_was_shown() -> None:
    for mirrors in (True, False):
        stage, _, painter = painting(REPLAY, mirrors=mirrors)
        stage.rows(painter, Row(1, PICTURE, 0, 1, body=kept("picture")))
        effects = stage.do(ev.HandleLost(link=1, slot=1, handle_id="picture"))
        again = of_kind(effects + stage.wait(0.05), fx.SubmitAttempts)
        assert bool(again) is mirrors
        if again:
            assert again[0].resume == (), "nothing was taken"


def test_an_output_is_made_again_behind_what_was_fetched() -> None:
    stage, _, painter = painting(REPLAY)
    for pos, name in enumerate(("one", "two", "three")):
        stage.rows(painter, Row(1, PICTURE, pos, 1, body=kept(name)))
    effects = stage.do(ev.HandleLost(link=1, slot=1, handle_id="two")) + stage.wait(0.05)
    (submit,) = of_kind(effects, fx.SubmitAttempts)
    assert [(mark.next, mark.digest) for mark in submit.resume] == [(1, b"")]
    row = Row(2, PICTURE, 1, 1, body=kept("again"), end=END)
    (end,) = of_kind(stage.rows(painter, row), fx.EndRequest)
    assert end.terminal.usage.images == 2


def test_a_word_on_payloads_that_nobody_asked_for_changes_nothing() -> None:
    stage, encoder, _ = painting(REPLAY)
    assert stage.do(ev.Fenced(link=encoder, request_id="r1", epoch=1, held=())) == []
