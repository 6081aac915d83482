from services.stage_worker.core import Identity, State
from services.stage_worker.core import effects as do
from services.stage_worker.core.attempt import Attempt
from services.stage_worker.core.endings import Endings
from services.stage_worker.core.orders import Orders
from services.stage_worker.core.table import AttemptTable
from stagemesh.outcome import Outcome, error_for
from tests.helpers.worker_core import LINK, of_kind, submission


class Setting:
    """One attempt that the engine has, and what ends it."""

    def __init__(self) -> None:
        self.table, self.orders = AttemptTable(), Orders()
        self.endings = Endings(
            Identity(pool="pool", replica_id="replica-0"), self.table, self.orders
        )
        given = submission()
        self.attempt = Attempt(
            number=self.table.next_number(),
            link=LINK,
            submission=given,
            role=given.roles[0],
            output_window=(1, 1),
            input_window=(1, 1),
            now_s=0.0,
        )
        self.table.add(self.attempt)
        self.attempt.started(0.0)


def test_a_failure_is_told_once_and_stops_the_engine_once() -> None:
    it = Setting()
    it.endings.fail(it.attempt, error_for("engine_error"))
    it.endings.fail(it.attempt, error_for("engine_error"))
    effects = it.orders.take()
    assert len(of_kind(effects, do.SendTerminal)) == 1
    assert len(of_kind(effects, do.AbortEngine)) == 1
    assert it.table.occupied == 1
    it.endings.engine_let_go(it.attempt)
    assert it.table.occupied == 0
    assert it.orders.take() == []


def test_an_attempt_that_is_being_stopped_can_still_run_out_of_time() -> None:
    it = Setting()
    it.endings.abort(it.attempt)
    assert it.attempt.state is State.STOPPING
    it.endings.fail(it.attempt, error_for("deadline_exceeded"))
    effects = it.orders.take()
    assert len(of_kind(effects, do.AbortEngine)) == 1
    (told,) = of_kind(effects, do.SendTerminal)
    assert told.terminal.outcome is Outcome.DEADLINE_EXCEEDED
