"""Control calls at a worker: what is closed, what waits, what comes of each."""

import pytest

from services.stage_worker.core import ProcessState
from services.stage_worker.core import effects as do
from services.stage_worker.core import events as seen
from services.stage_worker.engines.base import Piece
from stagemesh.control import (
    Call,
    CollectiveCall,
    ControlKind,
    ControlSupport,
    Gate,
    ListAdapters,
    Pause,
    PauseMode,
    ResetCache,
    Resume,
    Sleep,
    StartProfile,
    WakeUp,
)
from stagemesh.outcome import ErrorCode, Outcome, error_for
from tests.helpers.worker_controls import Steered
from tests.helpers.worker_core import (
    END,
    LINK,
    of_kind,
    submission,
    text_piece,
)

ABORT, WAIT, KEEP = PauseMode.ABORT, PauseMode.WAIT, PauseMode.KEEP
OVER = error_for("aborted")


@pytest.mark.parametrize("mode", PauseMode)
def test_a_paused_worker_refuses_until_it_is_resumed(mode: PauseMode) -> None:
    worker = Steered()
    pause = worker.ask(Pause(mode=mode))
    if mode is KEEP:
        assert worker.carry_out() == Pause(mode=KEEP)
    assert worker.reason(pause) == ""
    assert (worker.core.state, worker.core.gate) == (ProcessState.PAUSED, Gate(paused=mode))
    assert worker.refuses(1) is ErrorCode.PAUSED

    resume = worker.ask(Resume())
    if mode is KEEP:
        assert worker.state() is ProcessState.PAUSED, "frozen attempts have not gone on yet"
        assert worker.carry_out() == Resume()
    assert worker.reason(resume) == ""
    assert worker.state() is ProcessState.READY
    assert worker.start(submission(slots=(2,)))


def test_every_orchestrator_is_told_at_once() -> None:
    worker = Steered()
    asked = seen.ControlAsked(link=LINK, control_id=9, call=Pause(mode=WAIT), timeout_s=1.0)
    effects = worker.step(asked)
    assert [type(effect) for effect in effects] == [do.ReportState, do.SendControlled]


def test_a_pause_that_aborts_ends_what_runs_with_its_cause_and_then_answers() -> None:
    worker = Steered()
    (running,) = worker.start(submission(slots=(1,)))
    worker.submit(submission(request_id="req_b", slots=(2,)))
    asked = seen.ControlAsked(link=LINK, control_id=1, call=Pause(mode=ABORT), timeout_s=30.0)

    effects = worker.note(worker.step(asked))

    ends = of_kind(effects, do.SendTerminal)
    assert [(one.slot, one.terminal.outcome) for one in ends] == [
        (1, Outcome.CANCELLED),
        (2, Outcome.CANCELLED),
    ]
    for one in ends:
        assert one.terminal.error is not None
        assert one.terminal.error.reason == "stopped_by_operator"
    assert worker.answers == {}, "the engine has not let go yet"
    worker.note(worker.pieces(Piece(attempt=running, error=OVER)))
    assert worker.reason(1) == ""


def test_a_pause_that_waits_answers_when_the_last_attempt_has_ended() -> None:
    worker = Steered()
    (first,) = worker.start(submission(slots=(1,)))
    (second,) = worker.start(submission(request_id="req_b", slots=(2,)))
    pause = worker.ask(Pause(mode=WAIT))
    worker.note(worker.pieces(text_piece(first, end=END)))
    assert worker.answers == {}
    worker.note(worker.pieces(text_piece(second, end=END)))
    assert worker.reason(pause) == ""


def test_what_stands_still_by_an_operators_will_has_not_stalled() -> None:
    worker = Steered()
    worker.start()
    worker.ask(Pause(mode=KEEP))
    worker.carry_out()
    for _ in range(10):
        worker.wait(8.0)
    assert worker.state() is ProcessState.PAUSED
    worker.ask(Resume())
    worker.carry_out()
    for _ in range(5):
        worker.wait(8.0)
    assert worker.state() is ProcessState.STALLED


def test_what_runs_and_is_frozen_may_still_be_aborted() -> None:
    worker = Steered()
    (running,) = worker.start()
    worker.ask(Pause(mode=KEEP))
    worker.carry_out()
    effects = worker.step(seen.AbortAsked(link=LINK, slot=1, cause="asked"))
    assert of_kind(effects, do.AbortEngine) == [do.AbortEngine(attempt=running)]


def test_a_pause_that_is_too_slow_leaves_the_worker_open() -> None:
    worker = Steered()
    worker.start()
    pause = worker.ask(Pause(mode=WAIT), timeout_s=2.0)
    assert worker.core.next_wakeup_s() == worker.now_s + 2.0
    worker.wait(2.0)
    assert worker.reason(pause) == "deadline_exceeded"
    assert worker.state() is ProcessState.READY
    assert worker.start(submission(request_id="req_b", slots=(2,)))


def test_a_freeze_that_fails_leaves_the_worker_open() -> None:
    worker = Steered()
    pause = worker.ask(Pause(mode=KEEP))
    worker.carry_out("engine_error")
    assert worker.reason(pause) == "engine_error"
    assert worker.state() is ProcessState.READY


def test_a_freeze_that_comes_late_still_counts() -> None:
    worker = Steered()
    pause = worker.ask(Pause(mode=KEEP), timeout_s=1.0)
    worker.wait(1.0)
    assert worker.reason(pause) == "deadline_exceeded"
    assert worker.state() is ProcessState.PAUSED, "the engine may freeze at any moment"
    worker.carry_out()
    assert worker.core.gate.paused is KEEP
    resume = worker.ask(Resume())
    assert worker.carry_out() == Resume()
    assert worker.reason(resume) == ""


def test_a_later_call_comes_in_the_place_of_one_that_still_waits() -> None:
    worker = Steered()
    (running,) = worker.start()
    waiting = worker.ask(Pause(mode=WAIT))
    aborting = worker.ask(Pause(mode=ABORT))
    assert worker.reason(waiting) == "conflict"
    worker.note(worker.pieces(Piece(attempt=running, error=OVER)))
    assert worker.reason(aborting) == ""


def test_a_resume_ends_a_pause_that_still_waits() -> None:
    worker = Steered()
    (running,) = worker.start()
    pause = worker.ask(Pause(mode=WAIT))
    resume = worker.ask(Resume())
    assert (worker.reason(pause), worker.reason(resume)) == ("conflict", "")
    assert worker.state() is ProcessState.READY
    worker.note(worker.pieces(text_piece(running, end=END)))


def test_what_is_frozen_goes_on_when_it_is_to_be_waited_for() -> None:
    worker = Steered()
    (running,) = worker.start()
    worker.ask(Pause(mode=KEEP))
    worker.carry_out()
    pause = worker.ask(Pause(mode=WAIT))
    assert worker.carry_out() == Resume()
    assert worker.core.gate.paused is WAIT, "going on is not being open"
    worker.note(worker.pieces(text_piece(running, end=END)))
    assert worker.reason(pause) == ""


def test_a_resume_under_way_does_not_open_what_was_closed_after_it() -> None:
    worker = Steered()
    worker.ask(Pause(mode=KEEP))
    worker.carry_out()
    resume = worker.ask(Resume())
    pause = worker.ask(Pause(mode=WAIT))
    worker.carry_out()
    worker.carry_out()
    assert (worker.reason(resume), worker.reason(pause)) == ("", "")
    assert worker.state() is ProcessState.PAUSED


# What cannot be done


@pytest.mark.parametrize(
    ("call", "reason", "param"),
    [
        (Pause(mode=KEEP), "unsupported_value", "mode"),
        (Sleep(mode=WAIT), "unsupported_value", ""),
        (WakeUp(), "unsupported_value", ""),
        (ResetCache(), "unsupported_value", ""),
        (ListAdapters(), "unsupported_value", ""),
        (StartProfile(), "unsupported_value", ""),
        (CollectiveCall(name="state"), "invalid_value", "name"),
    ],
)
def test_an_engine_that_declares_nothing_is_asked_for_nothing(
    call: Call, reason: str, param: str
) -> None:
    worker = Steered(ControlSupport())
    error = worker.answers[worker.ask(call)]
    assert error is not None
    assert (error.reason, error.param) == (reason, param)
    assert worker.given == []
    assert worker.state() is ProcessState.READY


@pytest.mark.parametrize(
    ("call", "param"),
    [
        (Sleep(mode=WAIT, tags=("hair",)), "tags"),
        (WakeUp(tags=("hair",)), "tags"),
        (Sleep(mode=KEEP), "mode"),
        (Sleep(mode=WAIT, level=2), "level"),
        (CollectiveCall(name="reboot"), "name"),
    ],
)
def test_what_is_wrong_with_a_call_is_named(call: Call, param: str) -> None:
    worker = Steered()
    error = worker.answers[worker.ask(call)]
    assert error is not None
    assert error.param == param
    assert worker.given == []
    assert worker.state() is ProcessState.READY


# One at a time


def test_the_engine_has_one_call_at_a_time_in_their_order() -> None:
    worker = Steered()
    worker.ask(ResetCache())
    worker.ask(CollectiveCall(name="state"))
    worker.ask(ListAdapters())
    assert len(worker.given) == 1
    calls = [worker.carry_out() for _ in range(3)]
    assert calls == [ResetCache(), CollectiveCall(name="state"), ListAdapters()]
    assert set(worker.answers.values()) == {None}


def test_a_call_that_waits_too_long_is_never_begun() -> None:
    worker = Steered()
    worker.ask(ResetCache())
    late = worker.ask(ListAdapters(), timeout_s=1.0)
    worker.wait(1.0)
    assert worker.reason(late) == "deadline_exceeded"
    worker.carry_out()
    assert worker.given == []


def test_only_so_many_calls_may_wait() -> None:
    worker = Steered()
    for _ in range(17):
        worker.ask(ResetCache())
    assert worker.reason(worker.ask(ResetCache())) == "queue_full"


def test_nobody_is_answered_on_a_link_that_is_lost_and_the_calls_go_on() -> None:
    worker = Steered()
    worker.ask(ResetCache())
    worker.ask(Pause(mode=KEEP))
    worker.step(seen.LinkLost(link=LINK))
    worker.carry_out()
    worker.carry_out()
    assert worker.answers == {}
    assert worker.core.gate.paused is KEEP


def test_an_answer_that_the_engine_was_not_asked_for_changes_nothing() -> None:
    worker = Steered()
    worker.given.append((77, Resume()))
    worker.carry_out()
    assert worker.answers == {}
    assert worker.state() is ProcessState.READY


def test_adapters_and_caches_wait_for_no_attempt() -> None:
    worker = Steered(ControlSupport(kinds=frozenset({ControlKind.RESET_CACHE})))
    (running,) = worker.start()
    worker.ask(Pause(mode=WAIT))
    reset = worker.ask(ResetCache())
    worker.carry_out()
    assert worker.reason(reset) == ""
    worker.note(worker.pieces(text_piece(running, end=END)))


def test_two_pauses_that_both_fail_leave_the_worker_open() -> None:
    worker = Steered()
    worker.start()
    first = worker.ask(Pause(mode=WAIT), timeout_s=5.0)
    second = worker.ask(Pause(mode=WAIT), timeout_s=5.0)
    assert worker.reason(first) == "conflict"
    worker.wait(6)
    assert worker.reason(second) == "deadline_exceeded"
    assert worker.core.gate == Gate()
