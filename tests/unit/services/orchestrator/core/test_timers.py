"""Timers."""

from services.orchestrator.core.timers import Due, Timers


def test_timers_fire_in_order_of_time_then_of_setting() -> None:
    timers = Timers()
    timers.at(2.0, Due.DRAIN, "late")
    timers.at(1.0, Due.STALL, "first")
    timers.at(1.0, Due.DRAIN, "second")
    assert timers.next_s == 1.0
    assert timers.take_due(0.9) is None
    assert timers.take_due(1.0) == (Due.STALL, "first")
    assert timers.take_due(1.0) == (Due.DRAIN, "second")
    assert timers.take_due(1.5) is None
    assert timers.take_due(9.0) == (Due.DRAIN, "late")
    assert timers.next_s is None


def test_a_cancelled_timer_never_fires_and_wakes_nobody() -> None:
    timers = Timers()
    timer = timers.at(1.0, Due.DRAIN, "x")
    timers.at(2.0, Due.DRAIN, "y")
    timers.cancel(timer)
    timers.cancel(timer)
    timers.cancel(None)
    assert len(timers) == 1
    assert timers.next_s == 2.0
    assert timers.take_due(5.0) == (Due.DRAIN, "y")
    assert len(timers) == 0


def test_cancelling_a_timer_that_fired_changes_nothing() -> None:
    timers = Timers()
    timer = timers.at(1.0, Due.DRAIN, "x")
    assert timers.take_due(1.0) == (Due.DRAIN, "x")
    timers.cancel(timer)
    assert len(timers) == 0
    assert timers.next_s is None


def test_cancelled_timers_do_not_pile_up() -> None:
    timers = Timers()
    kept = timers.at(1e9, Due.DRAIN, "kept")
    for number in range(10_000):
        timers.cancel(timers.at(1e6 + number, Due.DEADLINE, number))
    assert len(timers) == 1
    assert timers.entries < 200
    assert timers.next_s == kept.when_s
