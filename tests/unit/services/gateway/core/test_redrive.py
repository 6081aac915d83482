"""When a request goes to another owner, and when it is given up."""

import pytest

from services.gateway.core.redrive import Loss, LossKind, Redrive, RedrivePolicy, is_refusal
from stagemesh.outcome import ErrorCode, Outcome, Terminal, error_for

INFO = error_for("link_lost")
LINK = Loss(kind=LossKind.LINK, info=INFO)
BACK = Loss(kind=LossKind.HANDED_BACK, info=INFO)
REFUSED = Loss(kind=LossKind.REFUSED, info=error_for("queue_full"))


def _opened(policy: RedrivePolicy | None = None) -> Redrive:
    redrive = Redrive(policy or RedrivePolicy())
    redrive.opened(0.0)
    return redrive


def test_each_owner_has_an_epoch_of_its_own() -> None:
    redrive = Redrive(RedrivePolicy())
    assert [redrive.opened(0.0) for _ in range(3)] == [1, 2, 3]


def test_no_more_owners_are_lost_than_epochs_max() -> None:
    redrive = _opened()
    for now_s in (1.0, 2.0, 3.0):
        assert redrive.lost(LINK, now_s) is None
        redrive.opened(now_s)
        redrive.progress()
    assert redrive.lost(LINK, 4.0) is INFO


@pytest.mark.parametrize("loss", [BACK, REFUSED])
def test_who_gives_a_request_up_in_good_order_costs_nothing(loss: Loss) -> None:
    redrive = _opened()
    for at in range(20):
        assert redrive.lost(loss, at / 100) is None
        redrive.opened(at / 100)


def test_the_first_wait_is_short_and_grows_while_nobody_works_on_the_request() -> None:
    redrive = _opened()
    redrive.lost(LINK, 0.0)
    assert (redrive.delay_s(0.0), redrive.delay_s(1.0)) == (0.0, 0.05)
    waits = []
    for _ in range(7):
        redrive.opened(0.0)
        redrive.lost(REFUSED, 0.0)
        waits.append(redrive.delay_s(1.0))
    assert waits == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0]
    redrive.opened(0.0)
    redrive.progress()
    redrive.lost(BACK, 0.0)
    assert redrive.delay_s(1.0) == 0.05


def test_the_time_without_an_owner_runs_on_over_refusals() -> None:
    redrive = _opened()
    redrive.lost(LINK, 100.0)
    assert redrive.ends_s == 110.0
    redrive.opened(104.0)
    redrive.lost(REFUSED, 104.0)
    assert redrive.ends_s == 110.0
    redrive.opened(108.0)
    redrive.progress()
    redrive.lost(BACK, 109.0)
    assert redrive.ends_s == 119.0


def test_an_owner_that_had_the_request_long_begins_the_time_anew() -> None:
    """It waited for room, say, and was then stopped: nothing came of it, but it was no refusal."""
    redrive = _opened()
    redrive.lost(LINK, 100.0)
    redrive.opened(101.0)
    redrive.lost(BACK, 140.0)
    assert redrive.ends_s == 150.0


def test_a_lost_link_begins_the_time_anew() -> None:
    redrive = _opened()
    redrive.lost(LINK, 100.0)
    redrive.opened(101.0)
    redrive.lost(LINK, 105.0)
    assert redrive.ends_s == 115.0


def test_the_verdict_is_the_last_cause_and_tells_of_a_drain() -> None:
    redrive = _opened()
    assert redrive.verdict().reason == "link_lost"
    redrive.lost(REFUSED, 0.0)
    redrive.none_found(error_for("model_not_found"))
    assert redrive.verdict().reason == "queue_full"
    redrive.none_found(error_for("draining"))
    assert redrive.verdict().reason == "draining"


def test_bytes_may_be_lost_as_often_as_owners() -> None:
    redrive = _opened(RedrivePolicy(epochs_max=2))
    assert redrive.handle_lost(INFO) is None
    assert redrive.handle_lost(INFO) is INFO


def test_only_an_owner_that_is_being_stopped_refuses_a_request_that_is_new() -> None:
    for reason, first, later in (
        ("draining", True, True),
        ("queue_full", False, True),
        ("no_replica", False, True),
        ("paused", False, True),
        ("invalid_value", False, False),
    ):
        rejected = Terminal(outcome=Outcome.REJECTED, error=error_for(reason))
        assert (is_refusal(rejected, 1), is_refusal(rejected, 2)) == (first, later), reason


def test_what_had_started_is_not_refused() -> None:
    failed = Terminal(outcome=Outcome.FAILED, error=error_for("draining"))
    assert failed.error is not None
    assert failed.error.code is ErrorCode.DRAINING
    assert not is_refusal(failed, 2)
    assert not is_refusal(Terminal(outcome=Outcome.REJECTED), 2)


def test_where_others_mint_epochs_the_next_owner_has_theirs() -> None:
    redrive = _opened()
    redrive.minted(7)
    assert redrive.opened(1.0) == 7
