"""Calls that never come to be carried out."""

from services.stage_worker.core import Identity, StageWorker
from services.stage_worker.core import effects as do
from services.stage_worker.core import events as seen
from stagemesh.control import Drain, ListAdapters, Pause, PauseMode
from stagemesh.outcome import error_for
from tests.helpers.worker_controls import Steered
from tests.helpers.worker_core import LINK, of_kind


def test_a_process_that_is_being_stopped_takes_no_call() -> None:
    worker = Steered()
    worker.start()
    worker.step(seen.DrainAsked(drain_s=9.0))
    for call in (Pause(mode=PauseMode.WAIT), ListAdapters(), Drain(drain_s=1.0)):
        assert worker.reason(worker.ask(call)) == "draining"


def test_a_worker_whose_engine_is_not_loaded_takes_no_call() -> None:
    core = StageWorker(Identity(pool="p", replica_id="r"))
    core.step(seen.LinkAttached(link=LINK, window_units=1, window_bytes=1), 0.0)
    asked = seen.ControlAsked(link=LINK, control_id=1, call=ListAdapters(), timeout_s=1.0)
    (answer,) = of_kind(core.step(asked, 0.0), do.SendControlled)
    assert answer.answer.error == error_for("no_replica")


def test_a_call_that_cannot_be_read_is_answered_with_what_is_wrong() -> None:
    worker = Steered()
    refused = seen.ControlRefused(link=LINK, control_id=3, error=error_for("invalid_value"))
    (answer,) = of_kind(worker.step(refused), do.SendControlled)
    assert answer.control_id == 3
    assert answer.answer.error == error_for("invalid_value")
