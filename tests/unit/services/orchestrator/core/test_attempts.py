"""What workers say of attempts."""

import msgspec
import pytest

from services.orchestrator.core import effects as fx
from services.orchestrator.core import events as ev
from services.orchestrator.core.contracts import ResumeContract
from services.orchestrator.core.replicas import LoadReport, WorkerState
from stagemesh.link.core import Grant, Row
from stagemesh.media import Body, Handle, Modality, lane_of
from stagemesh.outcome import ErrorCode, ErrorInfo, Outcome, Terminal, error_for
from tests.helpers.core_stage import CoreStage, make_request, of_kind

REFUSALS = {
    ErrorCode.ASLEEP,
    ErrorCode.DRAINING,
    ErrorCode.NO_REPLICA,
    ErrorCode.OVERLOADED,
    ErrorCode.PAUSED,
    ErrorCode.STALLED,
}


def said(outcome: Outcome, code: ErrorCode) -> Terminal:
    return Terminal(outcome=outcome, error=ErrorInfo(code=code, reason="why", message="said"))


@pytest.mark.parametrize("code", list(ErrorCode))
def test_only_want_of_room_or_of_will_is_tried_elsewhere(code: ErrorCode) -> None:
    stage = CoreStage()
    first, _ = stage.replica("thinker")
    second, _ = stage.replica("thinker")
    stage.open(make_request("echo"))
    effects = stage.do(ev.AttemptEnded(link=first, slot=1, terminal=said(Outcome.REJECTED, code)))
    if code in REFUSALS:
        (submit,) = of_kind(effects, fx.SubmitAttempts)
        assert (submit.link, submit.attempt) == (second, 2)
        assert stage.core.counts.refusals == 1
    else:
        (end,) = of_kind(effects, fx.EndRequest)
        assert end.terminal.outcome is Outcome.REJECTED
        assert end.terminal.error is not None
        assert (end.terminal.error.code, end.terminal.error.reason) == (code, "why")


def test_a_refusal_after_the_first_output_is_a_failure() -> None:
    stage = CoreStage()
    thinker, _ = stage.replica("thinker")
    stage.replica("thinker")
    stage.open(make_request("echo"))
    stage.rows(thinker, CoreStage.text(1, 0, "a"))
    late = Terminal(outcome=Outcome.REJECTED, error=error_for("no_slot"))
    (end,) = of_kind(stage.do(ev.AttemptEnded(link=thinker, slot=1, terminal=late)), fx.EndRequest)
    assert end.terminal.outcome is Outcome.FAILED


def test_a_cause_is_told_with_the_place_where_it_happened() -> None:
    stage = CoreStage()
    thinker, _ = stage.replica("thinker")
    stage.open(make_request("echo"))
    broken = said(Outcome.FAILED, ErrorCode.ENGINE_ERROR)
    (end,) = of_kind(
        stage.do(ev.AttemptEnded(link=thinker, slot=1, terminal=broken)), fx.EndRequest
    )
    error = end.terminal.error
    assert error is not None
    assert (error.stage, error.pool, error.replica_id, error.attempt) == (
        "thinker", "thinker", f"thinker-{thinker}", 1,
    )  # fmt: skip
    assert error.message == "said"


@pytest.mark.parametrize(
    "outcome, code",
    [
        (Outcome.FAILED, ErrorCode.ENGINE_ERROR),
        (Outcome.DEADLINE_EXCEEDED, ErrorCode.DEADLINE),
        (Outcome.CANCELLED, ErrorCode.REPLICA_LOST),
        (Outcome.COMPLETED, ErrorCode.PROTOCOL),
    ],
)
def test_an_end_without_a_cause_gets_one(outcome: Outcome, code: ErrorCode) -> None:
    stage = CoreStage()
    thinker, _ = stage.replica("thinker")
    stage.open(make_request("echo"))
    (end,) = of_kind(
        stage.do(ev.AttemptEnded(link=thinker, slot=1, terminal=Terminal(outcome=outcome))),
        fx.EndRequest,
    )
    assert end.terminal.error is not None
    assert end.terminal.error.code is code


@pytest.mark.invariant("ORCH-INV-203")
def test_late_rows_free_the_slot_of_a_request_that_is_over() -> None:
    stage = CoreStage()
    thinker, _ = stage.replica("thinker", slots=2)
    stage.open(make_request("echo", choices=2))
    stage.do(ev.AbortAsked(link=1, slot=1, cause="asked"))
    assert len(of_kind(stage.wait(1.0), fx.EndRequest)) == 1
    assert stage.core.replica_views()[0].in_flight == 2
    stage.rows(thinker, CoreStage.text(1, 0, "a"))
    assert stage.core.replica_views()[0].in_flight == 2
    stage.rows(thinker, CoreStage.text(1, 1, "a", end=True))
    assert stage.core.replica_views()[0].in_flight == 1
    stage.do(ev.AttemptUnknown(link=thinker, slot=2))
    assert stage.core.replica_views()[0].in_flight == 0


@pytest.mark.parametrize("over", [False, True], ids=["while-it-stops", "when-it-is-over"])
def test_bytes_that_come_too_late_are_dropped_where_they_lie(over: bool) -> None:
    stage = CoreStage()
    encoder, _ = stage.replica("encoder", slots=4)
    stage.replica("painter")
    stage.open(make_request("paint"))
    request_id = "r1"
    stage.do(ev.AbortAsked(link=1, slot=1, cause="asked"))
    if over:
        assert len(of_kind(stage.wait(1.0), fx.EndRequest)) == 1
    handle = Handle(
        handle_id="h_late", request_id=request_id, holder_id="encoder-1", incarnation=1,
        address="127.0.0.1:1", size_bytes=9,
    )  # fmt: skip
    late = Row(1, lane_of(0, 0, Modality.TENSOR), 0, 1, body=Body(handle=handle))
    (release,) = of_kind(stage.rows(encoder, late), fx.ReleaseHandles)
    assert (release.link, release.request_id, release.epoch) == (encoder, request_id, 1)
    assert release.handle_ids == ("h_late",)
    unheard_of = msgspec.structs.replace(handle, request_id="req_unheard_of")
    late = Row(1, lane_of(0, 0, Modality.TENSOR), 1, 1, body=Body(handle=unheard_of))
    assert of_kind(stage.rows(encoder, late), fx.ReleaseHandles) == []


@pytest.mark.invariant("ORCH-INV-200")
def test_one_engines_failure_ends_its_request_and_no_other() -> None:
    stage = CoreStage()
    thinker, _ = stage.replica("thinker")
    stage.open(make_request("echo"))
    stage.open(make_request("echo"))
    broken = said(Outcome.FAILED, ErrorCode.ENGINE_ERROR)
    effects = stage.do(ev.AttemptEnded(link=thinker, slot=1, terminal=broken))
    assert [end.slot for end in of_kind(effects, fx.EndRequest)] == [1]
    (end,) = of_kind(stage.rows(thinker, CoreStage.text(2, 0, "a", end=True)), fx.EndRequest)
    assert end.terminal.outcome is Outcome.COMPLETED


def test_one_choice_failing_fails_the_request_once() -> None:
    stage = CoreStage()
    thinker, _ = stage.replica("thinker")
    stage.open(make_request("echo", choices=2))
    broken = said(Outcome.FAILED, ErrorCode.ENGINE_ERROR)
    effects = stage.do(ev.AttemptEnded(link=thinker, slot=1, terminal=broken))
    assert [abort.slot for abort in of_kind(effects, fx.AbortAttempt)] == [2]
    effects = stage.do(ev.AttemptEnded(link=thinker, slot=2, terminal=broken))
    assert len(of_kind(effects, fx.EndRequest)) == 1


def test_credit_for_an_input_that_is_none_is_ignored() -> None:
    stage = CoreStage()
    thinker, _ = stage.replica("thinker")
    stage.open(make_request("echo"))
    grants = [Grant(1, lane_of(3, 0, Modality.TEXT), 9, 9), Grant(8, 0, 9, 9)]
    assert stage.do(ev.InputCreditGranted(link=thinker, grants=grants)) == []


def thinking(contract: ResumeContract) -> tuple[CoreStage, int, int]:
    stage = CoreStage()
    first, _ = stage.replica("thinker", contract)
    second, _ = stage.replica("thinker", contract)
    stage.open(make_request("echo"))
    return stage, first, second


def test_a_worker_that_gives_up_unasked_has_lost_the_attempt() -> None:
    for error in (None, error_for("aborted")):
        stage, first, second = thinking(ResumeContract.RESTART)
        gone = Terminal(outcome=Outcome.CANCELLED, error=error)
        stage.do(ev.AttemptEnded(link=first, slot=1, terminal=gone))
        submits = of_kind(stage.wait(0.05), fx.SubmitAttempts)
        assert [submit.attempt for submit in submits] == [2]
        assert submits[0].link in (first, second)


def test_a_worker_that_gives_up_for_a_cause_has_failed() -> None:
    stage, first, _ = thinking(ResumeContract.RESTART)
    gone = said(Outcome.CANCELLED, ErrorCode.GUARDRAIL)
    (end,) = of_kind(stage.do(ev.AttemptEnded(link=first, slot=1, terminal=gone)), fx.EndRequest)
    assert end.terminal.outcome is Outcome.FAILED


def test_a_hand_back_is_free_if_something_came_of_it_or_the_worker_is_leaving() -> None:
    for leaving in (True, False):
        stage, first, second = thinking(ResumeContract.TOKENS)
        if leaving:
            report = ev.ReplicaReported(link=first, state=WorkerState.DRAINING, load=LoadReport())
            stage.do(report)
        else:
            row = CoreStage.text(1, 0, "a")
            row.ids = [7]
            stage.rows(first, row)
        effects = stage.do(ev.HandedBack(link=first, slot=1))
        assert [submit.link for submit in of_kind(effects, fx.SubmitAttempts)] == [second]


def test_who_hands_back_everything_at_once_is_not_asked_for_ever() -> None:
    stage = CoreStage()
    thinker, _ = stage.replica("thinker", ResumeContract.TOKENS)
    stage.open(make_request("echo"), deadline_s=1000.0)
    ends: list[fx.EndRequest] = []
    for slot in range(1, 10):
        effects = stage.do(ev.HandedBack(link=thinker, slot=slot)) + stage.wait(1.0)
        ends += of_kind(effects, fx.EndRequest)
        if ends:
            break
    assert slot == 4
    assert ends[0].terminal.error is not None
    assert ends[0].terminal.error.code is ErrorCode.REPLICA_LOST


def test_a_hand_back_of_what_is_being_stopped_is_its_answer() -> None:
    stage, first, _ = thinking(ResumeContract.TOKENS)
    stage.do(ev.AbortAsked(link=1, slot=1, cause="asked"))
    effects = stage.do(ev.HandedBack(link=first, slot=1))
    assert [end.terminal.outcome for end in of_kind(effects, fx.EndRequest)] == [Outcome.CANCELLED]


def test_a_hand_back_of_what_nobody_waits_for_frees_its_slot() -> None:
    stage, first, _ = thinking(ResumeContract.TOKENS)
    stage.do(ev.AbortAsked(link=1, slot=1, cause="asked"))
    stage.wait(1.0)
    assert stage.core.replica_views()[0].in_flight == 1
    stage.do(ev.HandedBack(link=first, slot=1))
    assert stage.core.replica_views()[0].in_flight == 0


def test_a_role_that_is_refused_while_its_companion_works_is_a_failure() -> None:
    stage = CoreStage()
    encoder, _ = stage.replica("encoder", ResumeContract.REPLAY)
    stage.open(make_request("paint"))
    lane = lane_of(0, 0, Modality.TENSOR)
    stage.rows(encoder, Row(1, lane, 0, 1, body=Body(inline=b"x")))
    full = Terminal(outcome=Outcome.REJECTED, error=error_for("no_slot"))
    stage.do(ev.AttemptEnded(link=encoder, slot=2, terminal=full))
    (end,) = of_kind(stage.do(ev.AttemptUnknown(link=encoder, slot=1)), fx.EndRequest)
    assert end.terminal.error is not None
    assert end.terminal.error.code is ErrorCode.OVERLOADED
