from services.stage_worker.core import Identity, Limits
from services.stage_worker.core import effects as do
from services.stage_worker.core.admission import Admission
from services.stage_worker.core.endings import Endings
from services.stage_worker.core.orders import Orders
from services.stage_worker.core.table import AttemptTable
from stagemesh.outcome import ErrorInfo, error_for
from tests.helpers.worker_core import LINK, of_kind, submission, text_piece


class Door:
    """An admission with what it needs."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.attempts = AttemptTable()
        self.orders = Orders()
        endings = Endings(Identity(pool="p", replica_id="r"), self.attempts, self.orders)
        self.admission = Admission(self.attempts, endings, self.orders, limits or Limits())
        self.error: ErrorInfo | None = None
        self.asked: list[int] = []

    def closed(self, attempts: int) -> ErrorInfo | None:
        """Say what the test wants to be against it."""
        self.asked.append(attempts)
        return self.error

    def take(self, **values: object) -> list[do.Effect]:
        """Submit something."""
        self.admission.take(
            LINK,
            submission(**values),  # type: ignore[arg-type]
            window=(8, 800),
            closed=self.closed,
            now_s=1.0,
        )
        return self.orders.take()


def test_room_is_asked_for_group_by_group() -> None:
    door = Door()
    door.take(slots=(1, 2, 3), choices=2)
    assert door.asked == [2, 1]
    assert len(door.attempts) == 3


def test_what_is_closed_refuses_and_keeps_nothing() -> None:
    door = Door()
    door.error = error_for("draining")
    assert [order.slot for order in of_kind(door.take(), do.SendTerminal)] == [1]
    assert len(door.attempts) == 0


def test_the_higher_of_two_keys_stays() -> None:
    door = Door()
    door.take(attempt=2)
    refused = door.take(attempt=1, slots=(2,))
    assert [order.slot for order in of_kind(refused, do.SendTerminal)] == [2]
    effects = door.take(epoch=2, attempt=1, slots=(3,))
    assert [order.slot for order in of_kind(effects, do.SendTerminal)] == [1]
    assert [order.role.slot for order in of_kind(effects, do.StartAttempt)] == [3]


def test_another_role_or_stage_is_not_replaced() -> None:
    door = Door()
    door.take(request_id="req_a")
    assert not of_kind(door.take(request_id="req_b", slots=(2,)), do.SendTerminal)
    assert len(door.attempts) == 2


def test_there_is_room_up_to_each_bound() -> None:
    door = Door(Limits(attempts_max=2))
    assert door.admission.has_room(2, slots_free=2)
    assert not door.admission.has_room(2, slots_free=1)
    assert not door.admission.has_room(3, slots_free=9)
    door.take()
    assert door.admission.has_room(1, slots_free=9)
    assert not door.admission.has_room(2, slots_free=9), "one of two is there already"


def test_while_too_much_waits_for_credit_there_is_no_room() -> None:
    door = Door(Limits(held_bytes_max=9))
    door.take()
    (attempt,) = door.attempts.of_request(submission().request_id)
    attempt.started(1.0)
    attempt.take(text_piece(attempt.number, "x" * 900), 1.0)  # Its window is overrun by itself.
    attempt.take(text_piece(attempt.number, "y" * 10), 1.0)
    assert attempt.held_bytes == 10
    assert not door.admission.has_room(1, slots_free=9)
