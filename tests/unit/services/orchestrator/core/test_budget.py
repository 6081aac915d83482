"""The retry budget."""

import pytest

from services.orchestrator.core.budget import RetryBudget


def budget(*, share: float = 0.2, burst: float = 2, refill_s: float = 10.0) -> RetryBudget:
    return RetryBudget(share=share, burst=burst, refill_s=refill_s)


def test_a_burst_is_free_and_then_one_waits_in_turn() -> None:
    made = budget()
    assert [made.take(0.0) for _ in range(4)] == [0.0, 0.0, 5.0, 10.0]


def test_who_would_wait_too_long_is_told_so_and_takes_nothing() -> None:
    made = budget()
    for _ in range(4):
        made.take(0.0)
    assert made.take(0.0) is None
    assert made.take(5.0) == 10.0, "as if nobody had asked in vain"


def test_submissions_earn_a_share_and_never_more_than_the_burst() -> None:
    made = budget(share=0.5)
    for _ in range(100):
        made.earn()
    assert [made.take(0.0) for _ in range(3)] == [0.0, 0.0, 5.0]
    made.earn()
    made.earn()
    made.earn()
    assert made.take(0.0) == pytest.approx(2.5)


def test_the_loss_of_the_largest_replica_is_within_the_burst() -> None:
    made = budget()
    made.know_replica(8)
    made.know_replica(3)
    assert [made.take(0.0) for _ in range(8)] == [0.0] * 8
    wait_s = made.take(0.0)
    assert wait_s is not None
    assert wait_s > 0


def test_time_brings_it_back() -> None:
    made = budget()
    made.take(0.0)
    made.take(0.0)
    assert made.take(10.0) == 0.0
