"""Control calls: all at once, beside requests, and remembered for those to come."""

import pytest

from services.orchestrator.core import effects as fx
from services.orchestrator.core import events as ev
from services.orchestrator.core.replicas import WorkerState
from stagemesh.control import Call, Drain, Gate, Pause, PauseMode, ResetCache, Resume
from tests.helpers.core_stage import CoreStage, make_request, of_kind

KEEP = PauseMode.KEEP
PAUSED = Gate(paused=KEEP)


def ask(stage: CoreStage, call: Call, call_id: int = 1, wait_s: float = 3.0) -> list[fx.Effect]:
    pools = frozenset({"thinker"})
    return stage.do(ev.ControlAsked(call_id=call_id, call=call, wait_s=wait_s, pools=pools))


@pytest.mark.invariant("ORCH-INV-230")
def test_all_replicas_are_asked_in_one_step_and_the_call_takes_no_longer_than_one() -> None:
    stage = CoreStage()
    links = [stage.replica("thinker")[0] for _ in range(4)]
    orders = of_kind(ask(stage, ResetCache()), fx.AskWorker)
    assert [order.link for order in orders] == links
    assert {order.timeout_s for order in orders} == {3.0}
    for order in orders[1:]:
        assert stage.carried_out(order) == []
    (answer,) = of_kind(stage.wait(3.0), fx.AnswerControl)
    assert [bool(one.answer.error) for one in answer.results] == [True, False, False, False]
    assert stage.carried_out(orders[0]) == []
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
        stage.carried_out(order, "engine_error")
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
    stage.carried_out(order)
    _, effects = stage.replica("thinker")
    assert isinstance(effects[-1], fx.AskWorker)
    assert not of_kind(effects, fx.SubmitAttempts)


@pytest.mark.invariant("ORCH-INV-232")
def test_a_new_incarnation_gets_no_work_before_it_is_what_it_shall_be() -> None:
    stage = CoreStage()
    first, _ = stage.replica("thinker")
    (order,) = of_kind(ask(stage, Pause(mode=KEEP)), fx.AskWorker)
    stage.report(first, gate=PAUSED)
    stage.carried_out(order)
    stage.lose(first)
    stage.open(make_request())
    second, effects = stage.replica("thinker")
    (again,) = of_kind(effects, fx.AskWorker)
    assert (again.link, again.call) == (second, Pause(mode=KEEP))
    assert not of_kind(effects, fx.SubmitAttempts)
    stage.report(second, gate=PAUSED)
    assert stage.carried_out(again) == []
    (resume,) = of_kind(ask(stage, Resume(), 2), fx.AskWorker)
    assert of_kind(stage.report(second, gate=Gate()), fx.SubmitAttempts)
    stage.carried_out(resume)
    assert of_kind(stage.replica("thinker")[1], fx.AskWorker) == []


def test_a_call_that_no_replica_carried_out_is_not_remembered() -> None:
    stage = CoreStage()
    stage.replica("thinker")
    (order,) = of_kind(ask(stage, Pause(mode=KEEP)), fx.AskWorker)
    stage.carried_out(order, "unsupported_value")
    assert of_kind(stage.replica("thinker")[1], fx.AskWorker) == []
    assert of_kind(stage.open(make_request())[1], fx.SubmitAttempts)


def test_a_replica_that_has_not_obeyed_yet_undoes_nothing() -> None:
    """Its ping crossed the call: what the other one has done still holds."""
    stage = CoreStage()
    slow, quick = stage.replica("thinker")[0], stage.replica("thinker")[0]
    orders = of_kind(ask(stage, Pause(mode=KEEP)), fx.AskWorker)
    stage.report(quick, gate=PAUSED)
    stage.carried_out(orders[1])
    stage.report(slow, gate=Gate())
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
        stage.report(quick, gate=Gate() if call == Resume() else PAUSED)
        stage.carried_out(order)
    for gate in (PAUSED, Gate()):
        stage.report(slow, gate=gate)
    assert of_kind(stage.replica("thinker")[1], fx.AskWorker)


def test_a_worker_whose_engine_is_not_loaded_is_not_asked_before_it_comes_again() -> None:
    stage = CoreStage()
    first, _ = stage.replica("thinker")
    (order,) = of_kind(ask(stage, Pause(mode=KEEP)), fx.AskWorker)
    stage.report(first, gate=PAUSED)
    stage.carried_out(order)
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
