"""Taking a worker out and in again, while its process stays up."""

from services.stage_worker.core import ProcessState
from services.stage_worker.core import effects as do
from services.stage_worker.core import events as seen
from services.stage_worker.engines.base import ResumeContract
from stagemesh.control import Drain, Undrain
from stagemesh.outcome import ErrorCode, Outcome
from tests.helpers.worker_controls import Steered
from tests.helpers.worker_core import END, LINK, of_kind, submission, terminal_of, text_piece


def test_a_worker_that_is_taken_out_refuses_and_stays_up() -> None:
    worker = Steered()
    assert worker.reason(worker.ask(Drain(drain_s=5.0))) == ""
    assert worker.state() is ProcessState.DRAINING
    assert terminal_of(worker.submit(submission())) == (Outcome.REJECTED, ErrorCode.DRAINING)
    assert of_kind(worker.wait(60.0), do.Exit) == []

    assert worker.reason(worker.ask(Undrain())) == ""
    assert worker.state() is ProcessState.READY
    assert worker.start(submission(slots=(2,)))


def test_the_answer_comes_when_nothing_is_left() -> None:
    worker = Steered()
    (running,) = worker.start()
    drain = worker.ask(Drain(drain_s=5.0))
    assert worker.answers == {}
    worker.note(worker.pieces(text_piece(running, end=END)))
    assert worker.reason(drain) == ""


def test_what_is_left_in_the_end_is_handed_back() -> None:
    worker = Steered()
    worker.start()
    drain = worker.ask(Drain(drain_s=5.0))
    assert worker.core.next_wakeup_s() is not None
    effects = worker.wait(5.0)
    assert of_kind(effects, do.SendHandBack) == [do.SendHandBack(link=LINK, slot=1)]
    assert worker.reason(drain) == ""


def test_what_loses_nothing_is_handed_back_at_once() -> None:
    worker = Steered()
    worker.start(submission(contract=ResumeContract.RESTART))
    asked = seen.ControlAsked(link=LINK, control_id=1, call=Drain(drain_s=5.0), timeout_s=1.0)
    effects = worker.note(worker.step(asked))
    assert of_kind(effects, do.SendHandBack) == [do.SendHandBack(link=LINK, slot=1)]
    assert worker.reason(1) == ""


def test_a_drain_that_is_undone_lets_everything_go_on() -> None:
    worker = Steered()
    (running,) = worker.start()
    drain, undrain = worker.ask(Drain(drain_s=5.0)), worker.ask(Undrain())
    assert (worker.reason(drain), worker.reason(undrain)) == ("conflict", "")
    assert of_kind(worker.wait(9.0), do.SendHandBack) == []
    worker.note(worker.pieces(text_piece(running, end=END)))


def test_of_two_drains_the_earlier_end_holds() -> None:
    worker = Steered()
    worker.start()
    first, second = worker.ask(Drain(drain_s=5.0)), worker.ask(Drain(drain_s=50.0))
    assert worker.reason(first) == "conflict"
    worker.wait(5.0)
    assert worker.reason(second) == ""


def test_a_drain_of_an_orchestrator_that_is_gone_goes_on() -> None:
    worker = Steered()
    worker.ask(Drain(drain_s=5.0))
    worker.step(seen.LinkLost(link=LINK))
    worker.wait(5.0)
    assert worker.state() is ProcessState.DRAINING
