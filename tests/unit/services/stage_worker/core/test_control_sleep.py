"""Sleeping and waking up at a worker."""

import pytest

from services.stage_worker.core import ProcessState
from services.stage_worker.engines.base import Piece
from stagemesh.control import (
    KV_CACHE,
    TAGS,
    WEIGHTS,
    Gate,
    Pause,
    PauseMode,
    Resume,
    Sleep,
    WakeUp,
)
from stagemesh.outcome import ErrorCode, error_for
from tests.helpers.worker_controls import Steered
from tests.helpers.worker_core import END, submission, text_piece

ABORT, WAIT, KEEP = PauseMode.ABORT, PauseMode.WAIT, PauseMode.KEEP
OVER = error_for("aborted")


def asleep(worker: Steered, *tags: str) -> None:
    sleep = worker.ask(Sleep(mode=WAIT, tags=tags))
    call = worker.carry_out()
    assert isinstance(call, Sleep)
    assert worker.reason(sleep) == ""


@pytest.mark.parametrize("mode", [ABORT, WAIT])
def test_nothing_runs_when_the_engine_is_told_to_sleep(mode: PauseMode) -> None:
    worker = Steered()
    (running,) = worker.start()
    sleep = worker.ask(Sleep(mode=mode))
    assert worker.given == []
    assert worker.refuses(7) is ErrorCode.PAUSED
    last = Piece(attempt=running, error=OVER) if mode is ABORT else text_piece(running, end=END)
    worker.note(worker.pieces(last))
    assert worker.carry_out() == Sleep(mode=mode, tags=(KV_CACHE, WEIGHTS))
    assert worker.reason(sleep) == ""
    assert worker.state() is ProcessState.ASLEEP
    assert worker.refuses(8) is ErrorCode.ASLEEP


def test_a_sleep_that_cannot_begin_in_time_leaves_the_engine_awake() -> None:
    worker = Steered()
    worker.start()
    sleep = worker.ask(Sleep(mode=ABORT), timeout_s=2.0)  # The engine ignores the abort.
    worker.wait(2.0)
    assert worker.reason(sleep) == "deadline_exceeded"
    assert worker.given == []
    assert worker.state() is ProcessState.READY


def test_an_engine_that_fails_to_sleep_is_awake_and_open() -> None:
    worker = Steered()
    sleep = worker.ask(Sleep(mode=WAIT))
    worker.carry_out("engine_error")
    assert worker.reason(sleep) == "engine_error"
    assert worker.state() is ProcessState.READY
    assert worker.start()


def test_waking_up_opens_nothing_and_a_resume_does() -> None:
    worker = Steered()
    asleep(worker)
    early = worker.ask(Resume())
    assert worker.reason(early) == "conflict"
    wake = worker.ask(WakeUp())
    assert worker.carry_out() == WakeUp(tags=(KV_CACHE, WEIGHTS))
    assert worker.reason(wake) == ""
    assert (worker.core.state, worker.core.gate) == (ProcessState.PAUSED, Gate(paused=WAIT))
    assert worker.refuses(1) is ErrorCode.PAUSED
    assert worker.reason(worker.ask(Resume())) == ""
    assert worker.start(submission(slots=(2,)))


def test_a_part_may_wake_up_and_the_rest_keeps_the_worker_asleep() -> None:
    worker = Steered()
    asleep(worker)
    worker.ask(WakeUp(tags=(WEIGHTS,)))
    worker.carry_out()
    assert worker.core.gate.asleep == {KV_CACHE}
    assert worker.refuses(1) is ErrorCode.ASLEEP
    worker.ask(WakeUp(tags=(KV_CACHE,)))
    worker.carry_out()
    assert worker.state() is ProcessState.PAUSED


def test_the_engine_never_hears_twice_of_what_is_so() -> None:
    worker = Steered()
    asleep(worker, WEIGHTS)
    assert worker.reason(worker.ask(Sleep(mode=WAIT, tags=(WEIGHTS,)))) == ""
    assert worker.given == []
    worker.ask(Sleep(mode=WAIT))
    assert worker.carry_out() == Sleep(mode=WAIT, tags=(KV_CACHE,))
    worker.ask(WakeUp())
    worker.carry_out()
    assert worker.reason(worker.ask(WakeUp())) == ""
    assert worker.given == []
    assert worker.core.gate.asleep == frozenset()


def test_waking_up_ends_a_sleep_that_still_waits() -> None:
    worker = Steered()
    worker.start()
    sleep = worker.ask(Sleep(mode=WAIT))
    wake = worker.ask(WakeUp())
    assert (worker.reason(sleep), worker.reason(wake)) == ("conflict", "")
    assert worker.state() is ProcessState.PAUSED


def test_a_sleeping_worker_has_nothing_to_freeze() -> None:
    worker = Steered()
    asleep(worker)
    assert worker.reason(worker.ask(Pause(mode=KEEP))) == ""
    assert worker.given == []
    assert worker.core.gate == Gate(paused=KEEP, asleep=TAGS)
