from services.stage_worker.core import State
from services.stage_worker.core.attempt import Attempt
from services.stage_worker.core.table import AttemptTable
from tests.helpers.worker_core import LINK, submission


def added(table: AttemptTable, slot: int, deadline_left_s: float = 0.0) -> Attempt:
    given = submission(request_id=f"req_{slot}", slots=(slot,), deadline_left_s=deadline_left_s)
    attempt = Attempt(
        number=table.next_number(),
        link=LINK,
        submission=given,
        role=given.roles[0],
        output_window=(1, 1),
        input_window=(1, 1),
        now_s=0.0,
    )
    table.add(attempt)
    return attempt


def test_an_attempt_stays_until_link_and_engine_are_done_with_it() -> None:
    table = AttemptTable()
    one = added(table, 1)
    assert (table.waiting, table.running, table.occupied) == (1, 0, 1)
    one.started(0.0)
    one.move(State.FAILED)
    table.let_go(one)
    assert table.at(LINK, 1) is None
    assert table.get(one.number) is one
    assert (table.open, table.occupied) == (0, 1)
    one.in_engine = False
    table.let_go(one)
    assert len(table) == 0


def test_only_attempts_with_all_their_input_make_the_engine_busy() -> None:
    table = AttemptTable()
    one = added(table, 1)
    one.started(0.0)
    assert not table.busy
    one.input_closed = True
    assert table.busy


def test_late_attempts_are_found_once_in_order() -> None:
    table = AttemptTable()
    late, later = added(table, 1, 5.0), added(table, 2, 7.0)
    added(table, 3)
    gone = added(table, 4, 1.0)
    gone.move(State.CANCELLED)
    table.let_go(gone)
    assert table.next_deadline_s() == 5.0
    assert table.late(7.0) == [late, later]
    assert table.late(9.0) == []
    assert table.next_deadline_s() is None


def test_deadlines_of_ended_attempts_do_not_pile_up() -> None:
    table = AttemptTable()
    for slot in range(1, 1000):
        one = added(table, slot, 1e6)
        one.move(State.CANCELLED)
        table.let_go(one)
    assert len(table._deadlines) < 100


def test_attempts_are_found_by_request_and_by_link() -> None:
    table = AttemptTable()
    one, other = added(table, 1), added(table, 2)
    assert table.of_request("req_1") == [one]
    assert table.of_link(LINK) == [one, other]
    assert table.of_link(LINK + 1) == []
    assert list(table.spoken_of()) == [one, other]
    assert table.load(7).steps == 7
