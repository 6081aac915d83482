"""Control calls: all at once, beside requests, and remembered for those to come."""

import pytest

from services.orchestrator.core import effects as fx
from services.orchestrator.core import events as ev
from services.orchestrator.core.replicas import LoadReport, WorkerState
from stagemesh.control import Answer, Call, Drain, Gate, Pause, PauseMode, ResetCache, Resume
from stagemesh.outcome import error_for
from tests.helpers.core_stage import CoreStage, make_request, of_kind

KEEP = PauseMode.KEEP
PAUSED = Gate(paused=KEEP)


def ask(stage: CoreStage, call: Call, call_id: int = 1, wait_s: float = 3.0) -> list[fx.Effect]:
    pools = frozenset({"thinker"})
    return stage.do(ev.ControlAsked(call_id=call_id, call=call, wait_s=wait_s, pools=pools))


def done(stage: CoreStage, order: fx.AskWorker, reason: str = "") -> list[fx.Effect]:
    answer = Answer(error=error_for(reason) if reason else None)
    return stage.do(ev.ControlDone(link=order.link, control_id=order.control_id, answer=answer))


def report(stage: CoreStage, link: int, gate: Gate) -> list[fx.Effect]:
    state = WorkerState.READY if gate == Gate() else WorkerState.PAUSED
    return stage.do(ev.ReplicaReported(link=link, state=state, load=LoadReport(), gate=gate))


@pytest.mark.invariant("ORCH-INV-230")
def test_all_replicas_are_asked_in_one_step_and_the_call_takes_no_longer_than_one() -> None:
    stage = CoreStage()
    links = [stage.replica("thinker")[0] for _ in range(4)]
    orders = of_kind(ask(stage, ResetCache()), fx.AskWorker)
    assert [order.link for order in orders] == links
    assert {order.timeout_s for order in orders} == {3.0}
    for order in orders[1:]:
        assert done(stage, order) == []
    (answer,) = of_kind(stage.wait(3.0), fx.AnswerControl)
    assert [bool(one.answer.error) for one in answer.results] == [True, False, False, False]
    assert done(stage, orders[0]) == []
    assert stage.core.counts.control_answers_late == 1
    assert stage.core.footprint()["controls"] == 0


@pytest.mark.invariant("ORCH-INV-230")
def test_a_call_that_fails_everywhere_harms_no_request() -> None:
    stage = CoreStage()
    link, _ = stage.replica("thinker")
    _, effects = stage.open(make_request())
    (submit,) = of_kind(effects, fx.SubmitAttempts)
    calls: list[Call] = [ResetCache(), Pause(mode=KEEP), Drain(drain_s=1.0)]
    for call_id, call in enumerate(calls, 1):
        (order,) = of_kind(ask(stage, call, call_id), fx.AskWorker)
        done(stage, order, "engine_error")
    row = stage.text(submit.roles[0].slot, 0, "a", end=True)
    (end,) = of_kind(stage.rows(link, row), fx.EndRequest)
    assert end.terminal.error is None
    assert of_kind(stage.open(make_request())[1], fx.SubmitAttempts)


def test_calls_come_behind_what_the_same_step_brings_for_requests() -> None:
    """A replica that attaches while its pool shall be paused is asked before it gets work."""
    stage = CoreStage()
    _, _ = stage.open(make_request())
    _, effects = stage.replica("thinker")
    assert [type(effect) for effect in effects] == [fx.PublishModels, fx.SubmitAttempts]
    (order,) = of_kind(ask(stage, Pause(mode=KEEP)), fx.AskWorker)
    done(stage, order)
    _, effects = stage.replica("thinker")
    assert isinstance(effects[-1], fx.AskWorker)
    assert not of_kind(effects, fx.SubmitAttempts)


@pytest.mark.invariant("ORCH-INV-232")
def test_a_new_incarnation_gets_no_work_before_it_is_what_it_shall_be() -> None:
    stage = CoreStage()
    first, _ = stage.replica("thinker")
    (order,) = of_kind(ask(stage, Pause(mode=KEEP)), fx.AskWorker)
    report(stage, first, PAUSED)
    done(stage, order)
    stage.lose(first)
    stage.open(make_request())
    second, effects = stage.replica("thinker")
    (again,) = of_kind(effects, fx.AskWorker)
    assert (again.link, again.call) == (second, Pause(mode=KEEP))
    assert not of_kind(effects, fx.SubmitAttempts)
    report(stage, second, PAUSED)
    assert done(stage, again) == []
    (resume,) = of_kind(ask(stage, Resume(), 2), fx.AskWorker)
    assert of_kind(report(stage, second, Gate()), fx.SubmitAttempts)
    done(stage, resume)
    assert of_kind(stage.replica("thinker")[1], fx.AskWorker) == []


def test_a_call_that_no_replica_carried_out_is_not_remembered() -> None:
    stage = CoreStage()
    stage.replica("thinker")
    (order,) = of_kind(ask(stage, Pause(mode=KEEP)), fx.AskWorker)
    done(stage, order, "unsupported_value")
    assert of_kind(stage.replica("thinker")[1], fx.AskWorker) == []
    assert of_kind(stage.open(make_request())[1], fx.SubmitAttempts)


def test_a_replica_that_has_not_obeyed_yet_undoes_nothing() -> None:
    """Its ping crossed the call: what the other one has done still holds."""
    stage = CoreStage()
    slow, quick = stage.replica("thinker")[0], stage.replica("thinker")[0]
    orders = of_kind(ask(stage, Pause(mode=KEEP)), fx.AskWorker)
    report(stage, quick, PAUSED)
    done(stage, orders[1])
    report(stage, slow, Gate())
    assert of_kind(stage.replica("thinker")[1], fx.AskWorker)


def test_what_a_replica_reports_between_two_calls_undoes_nothing() -> None:
    """It lags behind: on its way to the last call it goes through what the first ones made it."""
    stage = CoreStage()
    slow, quick = stage.replica("thinker")[0], stage.replica("thinker")[0]
    calls: list[Call] = [Pause(mode=KEEP), Resume(), Pause(mode=KEEP)]
    for call_id, call in enumerate(calls, 1):
        (order,) = (
            one for one in of_kind(ask(stage, call, call_id), fx.AskWorker) if one.link == quick
        )
        report(stage, quick, Gate() if call == Resume() else PAUSED)
        done(stage, order)
    for gate in (PAUSED, Gate()):
        report(stage, slow, gate)
    assert of_kind(stage.replica("thinker")[1], fx.AskWorker)


def test_a_worker_whose_engine_is_not_loaded_is_not_asked_before_it_comes_again() -> None:
    stage = CoreStage()
    first, _ = stage.replica("thinker")
    (order,) = of_kind(ask(stage, Pause(mode=KEEP)), fx.AskWorker)
    report(stage, first, PAUSED)
    done(stage, order)
    attached = ev.ReplicaAttached(
        link=77,
        pool="thinker",
        replica_id="thinker-x",
        incarnation=1,
        card=stage.card,
        state=WorkerState.STARTING,
        window_units=1,
        window_bytes=1,
    )
    assert of_kind(stage.do(attached), fx.AskWorker) == []
