"""Who is held, who is refused, and who does not notice."""

import pytest

from services.orchestrator.core import effects as fx
from services.orchestrator.core.replicas import WorkerState
from stagemesh.control import Gate, PauseMode
from stagemesh.media import Modality
from stagemesh.outcome import ErrorCode, Outcome
from tests.helpers.core_stage import CoreStage, make_request, of_kind

ASLEEP = Gate(paused=PauseMode.WAIT, asleep=frozenset({"weights"}))


@pytest.mark.invariant("ORCH-INV-233")
@pytest.mark.parametrize(
    ("state", "gate"),
    [
        (WorkerState.ASLEEP, ASLEEP),
        (WorkerState.PAUSED, Gate(paused=PauseMode.KEEP)),
        (WorkerState.PAUSED, Gate(paused=PauseMode.ABORT)),
    ],
)
def test_a_request_that_does_not_need_the_closed_pool_does_not_notice(
    state: WorkerState, gate: Gate
) -> None:
    stage = CoreStage()
    stage.replica("thinker")
    talker, _ = stage.replica("talker")
    stage.report(talker, state, gate)
    text = make_request("talk", give=(Modality.TEXT,))
    assert of_kind(stage.open(text)[1], fx.SubmitAttempts)
    assert of_kind(stage.open(make_request())[1], fx.SubmitAttempts)
    needing = stage.open(make_request("talk", give=(Modality.AUDIO,)))[1]
    assert of_kind(needing, fx.SubmitAttempts) == []


@pytest.mark.invariant("ORCH-INV-233")
def test_a_refusal_says_which_pool_and_when_to_try_again() -> None:
    stage = CoreStage()
    link, _ = stage.replica("thinker")
    stage.report(link, WorkerState.ASLEEP, ASLEEP)
    (end,) = of_kind(stage.open(make_request())[1], fx.EndRequest)
    error = end.terminal.error
    assert error is not None
    assert end.terminal.outcome is Outcome.REJECTED
    assert (error.code, error.pool, error.stage) == (ErrorCode.ASLEEP, "thinker", "thinker")
    assert error.retry_after_s == 1.0
    assert error.retryable


def test_held_requests_do_not_stand_in_the_way_of_others_of_their_pipeline() -> None:
    stage = CoreStage()
    stage.replica("thinker")
    talker, _ = stage.replica("talker")
    stage.report(talker, WorkerState.PAUSED, Gate(paused=PauseMode.WAIT))
    for _ in range(3):
        stage.open(make_request("talk", give=(Modality.AUDIO,)))
    assert stage.core.footprint()["held"] == 3
    assert stage.core.footprint()["running"] == 0
    text = make_request("talk", give=(Modality.TEXT,))
    assert of_kind(stage.open(text)[1], fx.SubmitAttempts)
    effects = stage.report(talker, WorkerState.READY, Gate())
    assert len(of_kind(effects, fx.SubmitAttempts)) == 3
    assert stage.core.footprint()["held"] == 0
