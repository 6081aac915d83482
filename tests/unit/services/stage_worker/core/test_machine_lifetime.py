import pytest

from services.stage_worker.core import Limits, ProcessState, Source
from services.stage_worker.core import effects as do
from services.stage_worker.core import events as seen
from services.stage_worker.engines.base import ResumeContract
from stagemesh.media import Modality, lane_of
from stagemesh.outcome import ErrorCode, Outcome, error_for
from tests.helpers.worker_core import (
    END,
    LINK,
    Stepped,
    of_kind,
    submission,
    terminal_of,
    text_piece,
)

SOURCES = (Source(lane=lane_of(0, 0, Modality.TEXT), stage="source", companion="", choice=0),)


@pytest.mark.parametrize(
    ("event", "code"),
    [
        (seen.DrainAsked(drain_s=9.0), ErrorCode.DRAINING),
        (seen.EngineBroke(error=error_for("engine_error")), ErrorCode.DRAINING),
    ],
)
def test_a_worker_on_its_way_out_refuses(event: seen.Event, code: ErrorCode) -> None:
    worker = Stepped()
    worker.step(event)
    assert terminal_of(worker.submit(submission())) == (Outcome.REJECTED, code)


def test_work_without_steps_is_a_stall_and_a_step_ends_it() -> None:
    worker = Stepped(limits=Limits(stall_s=10.0))
    (a,) = worker.start()
    while (due_s := worker.core.next_wakeup_s()) is not None and due_s <= 110.0:
        worker.now_s = due_s
        worker.step(seen.Tick(steps=0))
    states = [worker.core.state]
    assert terminal_of(worker.submit(submission(request_id="req_b", slots=(2,))))[1] is (
        ErrorCode.STALLED
    )
    effects = worker.pieces(text_piece(a))
    assert of_kind(effects, do.ReportState)
    states.append(worker.core.state)
    assert states == [ProcessState.STALLED, ProcessState.READY]


def test_an_attempt_that_waits_for_input_is_no_stall() -> None:
    worker = Stepped(limits=Limits(stall_s=10.0))
    (order,) = of_kind(worker.submit(submission(sources=SOURCES)), do.StartAttempt)
    worker.step(seen.AttemptStarted(attempt=order.attempt))
    worker.now_s += 1000.0
    worker.step(seen.Tick(steps=0))
    assert worker.core.state is ProcessState.READY


def test_a_drain_waits_for_what_runs_and_then_exits() -> None:
    worker = Stepped()
    (a,) = worker.start()
    effects = worker.step(seen.DrainAsked(drain_s=9.0))
    assert effects == [
        do.ReportState(),
        do.SayGoAway(link=LINK, reason="draining", drain_s=9.0),
    ]
    effects = worker.pieces(text_piece(a, end=END))
    assert effects[-1] == do.Exit()


@pytest.mark.parametrize(
    ("engine", "agreed", "token_ids", "sent", "at_once"),
    [
        (ResumeContract.TOKENS, None, True, True, True),
        (ResumeContract.TOKENS, None, False, True, False),
        (ResumeContract.TOKENS, None, False, False, True),
        (ResumeContract.TOKENS, ResumeContract.RESTART, True, True, False),
        (ResumeContract.RESTART, None, False, False, True),
        (ResumeContract.RESTART, None, False, True, False),
        (ResumeContract.REPLAY, None, False, False, False),
        (ResumeContract.PER_INPUT, None, False, False, False),
        (ResumeContract.NONE, None, False, False, False),
    ],
)  # fmt: skip
def test_a_drain_hands_back_at_once_what_loses_nothing_by_it(
    engine: ResumeContract,
    agreed: ResumeContract | None,
    token_ids: bool,
    sent: bool,
    at_once: bool,
) -> None:
    worker = Stepped(contract=engine)
    (a,) = worker.start(submission(token_ids=token_ids, contract=agreed))
    if sent:
        worker.pieces(text_piece(a))
    effects = worker.step(seen.DrainAsked(drain_s=9.0))
    handed_back = of_kind(effects, do.SendHandBack)
    assert handed_back == ([do.SendHandBack(link=LINK, slot=1)] if at_once else [])
    assert (effects[-1] == do.Exit()) == at_once
    if at_once:
        assert do.AbortEngine(attempt=a) in effects
        assert worker.pieces(text_piece(a)) == []


def test_a_drain_keeps_nothing_that_nobody_hears() -> None:
    worker = Stepped()
    worker.start()
    worker.step(seen.LinkLost(link=LINK))
    effects = worker.step(seen.DrainAsked(drain_s=9.0))
    assert [type(effect) for effect in effects] == [
        do.ReportState, do.AbortEngine, do.ForgetAttempt, do.Exit,
    ]  # fmt: skip


def test_what_still_runs_when_the_drain_is_over_is_handed_back() -> None:
    worker = Stepped()
    worker.start()
    worker.step(seen.DrainAsked(drain_s=9.0))
    assert worker.core.next_wakeup_s() is not None
    worker.now_s += 9.0
    effects = worker.step(seen.Tick(steps=0))
    assert of_kind(effects, do.SendHandBack) == [do.SendHandBack(link=LINK, slot=1)]
    assert effects[-1] == do.Exit()


def test_an_abort_that_waits_is_answered_when_the_drain_is_over() -> None:
    worker = Stepped()
    worker.start()
    worker.step(seen.AbortAsked(link=LINK, slot=1, cause="client"))
    worker.step(seen.DrainAsked(drain_s=9.0))
    worker.now_s += 9.0
    effects = worker.step(seen.Tick(steps=0))
    assert terminal_of(effects) == (Outcome.CANCELLED, ErrorCode.ABORTED)


def test_a_link_that_comes_during_a_drain_is_told() -> None:
    worker = Stepped()
    worker.start()
    worker.step(seen.DrainAsked(drain_s=9.0))
    worker.now_s += 4.0
    effects = worker.step(seen.LinkAttached(link=5, window_units=1, window_bytes=1))
    assert effects == [do.SayGoAway(link=5, reason="draining", drain_s=5.0)]


def test_a_broken_engine_fails_everything_and_ends_the_process() -> None:
    worker = Stepped()
    worker.start()
    error = error_for("engine_error", "it broke")
    effects = worker.step(seen.EngineBroke(error=error))
    assert terminal_of(effects) == (Outcome.FAILED, ErrorCode.ENGINE_ERROR)
    assert effects[-1] == do.Exit(error=error)
