from services.stage_worker.core import Identity, State
from services.stage_worker.core import effects as do
from services.stage_worker.core import events as seen
from services.stage_worker.core.attempt import Attempt
from services.stage_worker.core.endings import Endings
from services.stage_worker.core.orders import Orders
from services.stage_worker.core.table import AttemptTable
from services.stage_worker.engines.base import Piece
from stagemesh.outcome import Outcome, error_for
from tests.helpers.worker_core import END, LINK, Stepped, of_kind, submission, text_piece

ABORTED = error_for("aborted")


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


def waiting(**more: bool) -> tuple[Stepped, int]:
    """An attempt that has sent all that it had credit for, and holds two tokens more."""
    worker = Stepped(window=(1, 1 << 20))
    (attempt,) = worker.start()
    worker.pieces(text_piece(attempt, " a"))
    worker.pieces(text_piece(attempt, " b"))
    assert not worker.pieces(text_piece(attempt, " c", end=END if more.get("ended") else None))
    return worker, attempt


def asked(worker: Stepped, *, partials: bool) -> list[do.Effect]:
    return worker.step(seen.AbortAsked(link=LINK, slot=1, cause="asked", partials=partials))


def texts(effects: list[do.Effect]) -> str:
    return "".join(row.text for order in of_kind(effects, do.SendRows) for row in order.rows)


def test_what_waits_for_credit_goes_before_the_answer_of_an_abort_that_wants_it() -> None:
    worker, attempt = waiting()
    effects = asked(worker, partials=True)
    assert texts(effects) == " b c"
    assert len(of_kind(effects, do.AbortEngine)) == 1
    last = worker.pieces(text_piece(attempt, " d"), Piece(attempt=attempt, error=ABORTED))
    assert texts(last) == "", "the engine went on by itself"
    assert len(of_kind(last, do.SendTerminal)) == 1


def test_an_abort_that_does_not_want_it_drops_it() -> None:
    worker, attempt = waiting()
    effects = asked(worker, partials=False)
    effects += worker.pieces(Piece(attempt=attempt, error=ABORTED))
    assert texts(effects) == ""


def test_an_attempt_that_waited_only_to_give_its_end_is_finished_by_giving_it() -> None:
    worker, _ = waiting(ended=True)
    effects = asked(worker, partials=True)
    assert texts(effects) == " b c"
    assert not of_kind(effects, do.SendTerminal), "its lanes have all ended"
    assert [order.end for order in of_kind(effects, do.ForgetAttempt)] == ["finished"]
